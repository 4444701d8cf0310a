// Convolutions by cuDNN's graph API.
//
// Of one CudaMachine. The engine is chosen when Prepare sees a convolution first and kept: of those that keep what
// Precision promises and can be made ready, the heuristics' first one, or with a Tuner the fastest. What cuDNN has no
// such engine for is computed by kernels of our own, slowly.
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
    Engine engine;  // none: kernels of our own
    int64_t narrow_bytes =
        0;  // of a kernel's gradient in Precision.type, in front of the workspace; 0: float32 where it belongs
  };
  Conv(const Precision& precision, cudaStream_t stream, Tuner* tuner)
      : precision_(precision), stream_(stream), tuner_(tuner) {}
  absl::StatusOr<Engine> ChooseEngine(const Convolution& c, DType filter_gradient);
  // first, second, to: as Run's, `to` of the type that the engine writes.
  absl::Status Launch(const Engine& engine, const Convolution& c, const void* first, const void* second,
                      const void* bias, void* to, void* workspace) const;
  absl::Status RunKernels(const Convolution& c, const void* first, const void* second, void* to);

  const Precision precision_;
  const cudaStream_t stream_;
  Tuner* const tuner_;
  cudnnHandle_t handle_ = nullptr;
  std::map<Convolution, Plan> plans_;
};

}  // namespace cairn::cudnn
