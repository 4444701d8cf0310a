// cuDNN's graph API: a convolution as an operation, and the engines that compute it. Neither making descriptors nor
// finding engines for a GPU that is only described needs a device.
//
// Not thread-safe: used on the thread of the owner.
#pragma once

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

  absl::Status Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                   const void* values);
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

// A convolution as an operation of cuDNN.
struct ConvolutionOperation {
  // The unique ids of the tensors.
  static constexpr int64_t kImage = 'x', kKernel = 'w', kResult = 'y', kBias = 'b';
  Descriptor image, kernel, result;  // x, w, y; or their gradients
  Descriptor window, operation;
  // If bias or relu follow: the tensors that exist only within the engine, and those operations.
  std::vector<Descriptor> inner;
  std::vector<cudnnBackendDescriptor_t> operations;  // all of them, in order
};
// filter_gradient: the type of the kernel's gradient.
absl::StatusOr<ConvolutionOperation> MakeOperation(const Convolution& c, const Precision& precision,
                                                   DType filter_gradient);

// Whether an engine with these numerical notes computes what Precision promises.
bool Keeps(const Precision& precision, const std::vector<cudnnBackendNumericalNote_t>& notes);

// The GPU for which an engine is chosen: that of a handle, or one that is only described (by cuDNN's JSON of a device)
// and need not be present.
struct EngineTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* device = nullptr;
};
absl::StatusOr<Descriptor> DescribeDevice(const std::string& json);

struct Engine {
  Descriptor execution;  // an execution plan
  Descriptor config;     // the plan was made from it; cuDNN does not promise that a plan keeps it alive
  int64_t workspace_bytes = 0;
  std::string name;  // "engine 38 knobs 2=1 5=0": of this version of cuDNN
};
// The engines that keep what Precision promises and can be prepared, in the order of the heuristics, at most
// `count_max`. Errors: UNIMPLEMENTED if cuDNN has none.
absl::StatusOr<std::vector<Engine>> FindEngines(const EngineTarget& target, const Convolution& c,
                                                const Precision& precision, DType filter_gradient, size_t count_max);

}  // namespace cairn::cudnn
