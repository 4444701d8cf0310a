// Convolutions by cuDNN's graph API.
//
// Part of one CudaMachine. Prepare chooses the engine of a convolution once and keeps it: the first one of the
// heuristics that keeps what Precision promises and can be prepared, or with a Tuner the fastest of those. If cuDNN has
// no such engine, Cairn's own kernels compute the convolution, slowly.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/backend/cudnn/engine.h"
#include "worker/backend/cudnn/tuning.h"

namespace cairn::cudnn {

class Conv {
 public:
  static absl::StatusOr<std::unique_ptr<Conv>> Make(const Precision& precision, cudaStream_t stream, Tuner* tuner);
  ~Conv();
  Conv(const Conv&) = delete;
  Conv& operator=(const Conv&) = delete;

  absl::StatusOr<int64_t> Prepare(const Convolution& convolution);
  absl::Status Run(const Convolution& convolution, const void* first, const void* second, const void* bias, void* to,
                   void* workspace);

 private:
  struct Plan {
    Engine engine;  // none: Cairn's own kernels
    // The engine writes the kernel's gradient in Precision.type, to this many bytes in front of the workspace; 0: it
    // writes float32 to the output itself.
    int64_t narrow_bytes = 0;
  };
  Conv(const Precision& precision, cudaStream_t stream, Tuner* tuner)
      : precision_(precision), stream_(stream), tuner_(tuner) {}
  absl::StatusOr<Engine> ChooseEngine(const Convolution& c, DType filter_gradient);
  // As the arguments of Run; `to` has the type that the engine writes.
  struct Buffers {
    const void *first = nullptr, *second = nullptr, *bias = nullptr;
    void *to = nullptr, *workspace = nullptr;
  };
  absl::Status Launch(const Engine& engine, const Convolution& c, const Buffers& at) const;
  absl::Status RunKernels(const Convolution& c, const void* first, const void* second, void* to);

  const Precision precision_;
  const cudaStream_t stream_;
  Tuner* const tuner_;
  cudnnHandle_t handle_ = nullptr;
  std::map<Convolution, Plan> plans_;
};

}  // namespace cairn::cudnn
