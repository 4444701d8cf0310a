// Runs launchers of worker/backend/cudnn/kernels: on the host's loops in unit tests, on a GPU in tests/gpu
// (CAIRN_KERNELS_ON_DEVICE).
//
// Every launch runs twice and must give the same bits: on the host with blocks and threads in the opposite order the
// second time. Outputs are filled with NaN before and have a guard behind them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "common/tensor/dtype.h"
#include "worker/backend/cudnn/kernels/kernels.h"
#ifdef CAIRN_KERNELS_ON_DEVICE
#include <cuda_runtime_api.h>
#else
#include "worker/backend/cudnn/kernels/launch.h"
#endif

namespace cairn::cudnn::kernels {

// ---- memory ----

class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
#ifdef CAIRN_KERNELS_ON_DEVICE
    EXPECT_EQ(cudaMalloc(&data_, bytes + kGuard), cudaSuccess);
#else
    data_ = std::aligned_alloc(64, (bytes + kGuard + 63) / 64 * 64);
#endif
    Put(std::vector<uint8_t>(bytes, 0xff).data(), bytes, 0);
    Put(std::vector<uint8_t>(kGuard, 0xa5).data(), kGuard, bytes);
  }
  ~Memory() {
    const std::vector<uint8_t> guard = Get(kGuard, bytes_);
    EXPECT_EQ(guard, std::vector<uint8_t>(kGuard, 0xa5)) << "written behind the end of " << bytes_ << " bytes";
#ifdef CAIRN_KERNELS_ON_DEVICE
    EXPECT_EQ(cudaFree(data_), cudaSuccess);
#else
    std::free(data_);
#endif
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  void Put(const void* from, size_t bytes, size_t at = 0) {
    uint8_t* to = static_cast<uint8_t*>(data_) + at;
#ifdef CAIRN_KERNELS_ON_DEVICE
    EXPECT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
#else
    if (bytes > 0) std::memcpy(to, from, bytes);
#endif
  }
  std::vector<uint8_t> Get(size_t bytes, size_t at = 0) const {
    std::vector<uint8_t> out(bytes);
    const uint8_t* from = static_cast<const uint8_t*>(data_) + at;
#ifdef CAIRN_KERNELS_ON_DEVICE
    EXPECT_EQ(cudaMemcpy(out.data(), from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
#else
    if (bytes > 0) std::memcpy(out.data(), from, bytes);
#endif
    return out;
  }
  std::vector<uint8_t> Get() const { return Get(bytes_); }

 private:
  static constexpr size_t kGuard = 64;
  size_t bytes_;
  void* data_ = nullptr;
};

// ---- numbers ----

inline v1::DataType WireType(DType type) {
  return type == DType::kFloat32 ? v1::FLOAT32 : type == DType::kBFloat16 ? v1::BFLOAT16 : v1::FLOAT16;
}
inline std::vector<uint8_t> Encoded(const std::vector<float>& numbers, DType type) {
  std::vector<uint8_t> out(numbers.size() * SizeOf(WireType(type)));
  FromFloat(numbers, WireType(type), absl::MakeSpan(out));
  return out;
}
inline std::vector<float> Decoded(const std::vector<uint8_t>& bytes, DType type) {
  std::vector<float> out(bytes.size() / SizeOf(WireType(type)));
  ToFloat(bytes, WireType(type), absl::MakeSpan(out));
  return out;
}

// A tensor: what kernels see, and the same numbers (rounded to its type) for the reference.
class Tensor {
 public:
  Tensor(const std::vector<float>& numbers, DType type) : memory_(numbers.size() * SizeOf(WireType(type))) {
    const std::vector<uint8_t> bytes = Encoded(numbers, type);
    memory_.Put(bytes.data(), bytes.size());
    const std::vector<float> rounded = Decoded(bytes, type);
    exact_.assign(rounded.begin(), rounded.end());
  }
  explicit Tensor(const std::vector<float>& numbers) : Tensor(numbers, DType::kFloat32) {}
  const void* data() const { return memory_.data(); }
  const float* floats() const { return static_cast<const float*>(memory_.data()); }
  const std::vector<double>& exact() const { return exact_; }
  size_t size() const { return exact_.size(); }

 private:
  Memory memory_;
  std::vector<double> exact_;
};

inline std::vector<float> Random(int64_t n, uint32_t seed, float low = -1, float high = 1) {
  std::mt19937 bits(seed);
  std::vector<float> out(n);
  for (float& f : out) f = low + (high - low) * static_cast<float>(bits() >> 8) * 0x1.0p-24f;
  return out;
}
// Numbers in steps of 1/8: many are equal.
inline std::vector<float> Coarse(int64_t n, uint32_t seed) {
  std::vector<float> out = Random(n, seed);
  for (float& f : out) f = std::round(f * 8) / 8;
  return out;
}

// ---- launches ----

// Runs launch(out) on n numbers of `type`, which hold `before` (NaN where it is empty).
inline std::vector<float> Launched(int64_t n, DType type, const std::function<Error(void*)>& launch,
                                   const std::vector<float>& before = {}) {
  std::vector<uint8_t> first;
  for (int run = 0; run < 2; ++run) {
    Memory out(n * SizeOf(WireType(type)));
    if (!before.empty()) {
      const std::vector<uint8_t> bytes = Encoded(before, type);
      out.Put(bytes.data(), bytes.size());
    }
#ifndef CAIRN_KERNELS_ON_DEVICE
    run_backwards = run == 1;
#endif
    EXPECT_EQ(launch(out.data()), 0);
#ifdef CAIRN_KERNELS_ON_DEVICE
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
#else
    run_backwards = false;
#endif
    if (run == 0) {
      first = out.Get();
    } else {
      EXPECT_TRUE(first == out.Get()) << "the bits depend on the order of blocks and threads";
    }
  }
  return Decoded(first, type);
}

inline double Precision(DType type) { return type == DType::kFloat32 ? 2e-6 : type == DType::kBFloat16 ? 5e-3 : 7e-4; }

// Each number within `tolerance` of the largest of the reference (0.02 at least: what cancels out); NaN never passes.
inline void ExpectNear(const std::vector<float>& got, const std::vector<double>& want, double tolerance,
                       const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0.02;
  for (double w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::abs(got[i] - want[i]) <= tolerance * largest)) {
      ADD_FAILURE() << what << ": number " << i << " of " << got.size() << " is " << got[i] << ", the reference "
                    << want[i];
      return;
    }
  }
}

inline std::vector<double> Sum(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
inline std::vector<float> Floats(const std::vector<double>& from) { return {from.begin(), from.end()}; }

// Runs with and without `add` and compares. launch(out, add).
inline void ExpectBoth(const std::vector<double>& want, DType type, double tolerance, const std::string& what,
                       const std::function<Error(void*, bool)>& launch) {
  const auto n = static_cast<int64_t>(want.size());
  ExpectNear(Launched(n, type, [&](void* out) { return launch(out, false); }), want, tolerance, what);
  const std::vector<float> before = Coarse(n, 99);  // exact in every type
  ExpectNear(Launched(
                 n, type, [&](void* out) { return launch(out, true); }, before),
             Sum(want, {before.begin(), before.end()}), tolerance, what + ", added");
}

class KernelTest : public testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }
  double precision() const { return Precision(type()); }
};
inline std::string TypeName(const testing::TestParamInfo<DType>& info) {
  return v1::DataType_Name(WireType(info.param));
}
inline constexpr DType kAllTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

}  // namespace cairn::cudnn::kernels
