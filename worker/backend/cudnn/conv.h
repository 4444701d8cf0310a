// Convolutions by cuDNN's graph API.
//
// Of one CudaMachine. The engine is chosen when Prepare sees a convolution first and kept: the first of the heuristics' that keeps what
// Precision promises and can be made ready. What cuDNN has no such engine for is computed by kernels of our own, slowly.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/backend/cudnn/device.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

// One of cuDNN's descriptors.
class Descriptor {
 public:
  Descriptor() = default;
  static absl::StatusOr<Descriptor> Make(cudnnBackendDescriptorType_t type, const char* what);
  Descriptor(Descriptor&& other) noexcept { *this = std::move(other); }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(what_, other.what_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
  }

  absl::Status Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values);
  absl::Status Set(cudnnBackendAttributeName_t name, int64_t value) { return Set(name, CUDNN_TYPE_INT64, 1, &value); }
  absl::Status Set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.descriptor_);
  }
  absl::Status Finalize();
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  const char* what_ = "";
};

// A convolution as an operation of cuDNN: can be made without a device.
struct ConvolutionOperation {
  // The unique ids of the tensors.
  static constexpr int64_t kImage = 'x', kKernel = 'w', kResult = 'y', kBias = 'b';
  Descriptor image, kernel, result;  // x, w, y; or their gradients
  Descriptor window, operation;
  // Where bias or relu follow: tensors that exist only within the engine, and the operations.
  std::vector<Descriptor> inner;
  std::vector<cudnnBackendDescriptor_t> operations;  // all of them, in order
};
// filter_gradient: the type of the kernel's gradient.
absl::StatusOr<ConvolutionOperation> MakeOperation(const Convolution& c, const Precision& precision, DType filter_gradient);

// Whether an engine with these numerical notes computes what Precision promises.
bool Keeps(const Precision& precision, const std::vector<cudnnBackendNumericalNote_t>& notes);

// A GPU that an engine is chosen for: the one of a handle, or one that is only described (cuDNN's JSON of a device), which need not be here.
struct EngineTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* device = nullptr;
};
absl::StatusOr<Descriptor> DescribeDevice(const std::string& json);

struct EngineChoice {
  Descriptor execution;  // an execution plan
  int64_t workspace_bytes = 0;
};
// Errors: UNIMPLEMENTED, cuDNN has no engine that keeps what Precision promises.
absl::StatusOr<EngineChoice> ChooseEngine(const EngineTarget& target, const Convolution& c, const Precision& precision,
                                          DType filter_gradient);

class Conv {
 public:
  static absl::StatusOr<std::unique_ptr<Conv>> Make(const Precision& precision, cudaStream_t stream);
  ~Conv();
  Conv(const Conv&) = delete;
  Conv& operator=(const Conv&) = delete;

  absl::StatusOr<int64_t> Prepare(const Convolution& convolution);
  absl::Status Run(const Convolution& convolution, const void* first, const void* second, const void* bias, void* to, void* workspace);

 private:
  struct Plan {
    EngineChoice engine;       // none: kernels of our own
    int64_t narrow_bytes = 0;  // of a kernel's gradient in Precision.type, in front of the workspace; 0: float32 where it belongs
  };
  Conv(const Precision& precision, cudaStream_t stream) : precision_(precision), stream_(stream) {}
  absl::Status RunKernels(const Convolution& c, const void* first, const void* second, void* to);

  const Precision precision_;
  const cudaStream_t stream_;
  cudnnHandle_t handle_ = nullptr;
  std::map<Convolution, Plan> plans_;
};

}  // namespace cairn::cudnn
