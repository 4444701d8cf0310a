// Lets a kernel be written once and run on a GPU and on the CPU: as blocks of threads, with the same additions in the
// same order.
//
// A kernel is a struct of its arguments with kThreads, kSharedBytes and
//   template <class Block> CAIRN_DEVICE void operator()(Block& block) const;
// Its body is a sequence of ForEachThread and Reduce calls; the code between two of them is the same for all threads of
// a block. nvcc compiles it to a GPU kernel, g++ to loops (see the README of the folder). The loops can run over blocks
// and threads in either order, so that a body whose threads interfere gives different bits. Invariants of every body:
//   1. Blocks share nothing; each number of the output is written by one thread of one block.
//   2. What is added, and in which order, depends only on the shapes: not on the device, not on the number of blocks.
//   3. Within one ForEachThread a thread reads from shared memory only what earlier calls wrote, and writes only to its
//      own part of it.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define CAIRN_DEVICE __device__ __forceinline__
#define CAIRN_UNROLL _Pragma("unroll")
#define CAIRN_UNROLL_SOME _Pragma("unroll 4")
#else
#include <vector>
#define CAIRN_DEVICE inline
#define CAIRN_UNROLL
#define CAIRN_UNROLL_SOME
#endif

#include "worker/backend/cudnn/kernels/kernels.h"

namespace cairn::cudnn::kernels {

inline constexpr int kBlockThreads = 256;

inline constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

#if defined(__CUDACC__)

template <int kThreads>
class Block {
 public:
  CAIRN_DEVICE explicit Block(unsigned char* shared) : shared_(shared) {}
  CAIRN_DEVICE int64_t index() const { return blockIdx.x; }
  // The shared memory from `byte` on; its initial contents are undefined.
  template <class T>
  CAIRN_DEVICE T* Shared(int byte = 0) const {
    return reinterpret_cast<T*>(shared_ + byte);
  }
  template <class Fn>
  CAIRN_DEVICE void ForEachThread(Fn fn) const {
    fn(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  // Joins values[0 .. kThreads) of the shared memory as a tree of fixed shape: (i, i + half) for half = kThreads / 2,
  // ...,
  // 1. Overwrites the values.
  template <class T, class Join>
  CAIRN_DEVICE T Reduce(T* values, Join join) const {
    const int thread = static_cast<int>(threadIdx.x);
    CAIRN_UNROLL
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (thread < half) values[thread] = join(values[thread], values[thread + half]);
      if (half > 32) {
        __syncthreads();
      } else {
        __syncwarp();  // the rest is one warp's
      }
    }
    __syncthreads();
    const T result = values[0];
    __syncthreads();  // before anybody writes the next values
    return result;
  }

 private:
  unsigned char* shared_;
};

// At least two blocks on a multiprocessor: with one, all of its threads wait for memory at the same time.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 2) Run(const __grid_constant__ Kernel kernel) {
  __shared__ alignas(16) unsigned char shared[Kernel::kSharedBytes > 0 ? Kernel::kSharedBytes : 1];
  Block<Kernel::kThreads> block(shared);
  kernel(block);
}

template <class Kernel>
Error Launch(Stream stream, int64_t blocks, const Kernel& kernel) {
  if (blocks <= 0) return 0;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  // The error of this launch: cudaGetLastError may return one of an earlier call of a library.
  void* arguments[] = {const_cast<Kernel*>(&kernel)};
  return cudaLaunchKernel(&Run<Kernel>, dim3(static_cast<unsigned>(blocks)), dim3(Kernel::kThreads), arguments, 0,
                          stream);
}

#else

inline bool run_backwards = false;  // set by tests: blocks and threads from the last to the first

template <int kThreads>
class Block {
 public:
  Block(unsigned char* shared, int64_t index) : shared_(shared), index_(index) {}
  int64_t index() const { return index_; }
  template <class T>
  T* Shared(int byte = 0) const {
    return reinterpret_cast<T*>(shared_ + byte);
  }
  template <class Fn>
  void ForEachThread(Fn fn) const {
    for (int i = 0; i < kThreads; ++i) fn(run_backwards ? kThreads - 1 - i : i);
  }
  template <class T, class Join>
  T Reduce(T* values, Join join) const {
    for (int half = kThreads / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) values[i] = join(values[i], values[i + half]);
    }
    return values[0];
  }

 private:
  unsigned char* shared_;
  int64_t index_;
};

template <class Kernel>
Error Launch(Stream, int64_t blocks, const Kernel& kernel) {
  struct alignas(16) Piece {
    unsigned char bytes[16];
  };
  std::vector<Piece> shared(Kernel::kSharedBytes / 16 + 1);
  for (int64_t i = 0; i < blocks; ++i) {
    Block<Kernel::kThreads> block(shared.data()->bytes, run_backwards ? blocks - 1 - i : i);
    kernel(block);
  }
  return 0;
}

#endif

// Calls fn.Do<1>(i) for i in [0, n), each on a thread of its own; with `wide` fn.Do<8>(i) for whole groups of eight,
// and Do<1> for the rest.
template <class Fn>
struct ForEach {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = 0;
  int64_t n;
  bool wide;
  Fn fn;
  template <class B>
  CAIRN_DEVICE void operator()(B& block) const {
    block.ForEachThread([&](int thread) {
      const int64_t place = block.index() * kThreads + thread;
      if (!wide) {
        if (place < n) fn.template Do<1>(place);
      } else if (place * 8 + 8 <= n) {
        fn.template Do<8>(place * 8);
      } else {
        for (int64_t i = place * 8; i < n; ++i) fn.template Do<1>(i);
      }
    });
  }
};

template <class Fn>
Error LaunchForEach(Stream stream, int64_t n, bool wide, const Fn& fn) {
  return Launch(stream, CeilDivide(n, wide ? kBlockThreads * 8 : kBlockThreads), ForEach<Fn>{n, wide, fn});
}

}  // namespace cairn::cudnn::kernels
