// Machine: what a program needs of a GPU, and nothing more: memory, the order of work, matrix products, convolutions.
// CudaMachine is the real one; tests run whole programs on one that computes on the host.
//
// A Machine belongs to one Program and so to one thread at a time. Work is enqueued and done in order on one stream;
// copies in and copies out are done beside it, each kind in its order, and so is what is enqueued `aside`: of what is
// complete, never recorded. Invariants:
//   1. What Prepare was told of can be enqueued without allocating and without waiting, also while a Recording is made.
//   2. With Precision.deterministic the bits of a product or a convolution depend on its arguments and the kind of
//      device only.
//   3. Once its device is lost nothing is waited for or given back: memory, streams, recordings stay behind, until the
//      process ends. What the device may still write to is among them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "worker/backend/cudnn/device_health.h"
#include "worker/backend/cudnn/kernels/kernels.h"

namespace cairn::cudnn {

using kernels::DType;

struct DeviceInfo {
  int index = 0;
  std::string name;         // "NVIDIA H100 80GB HBM3"
  std::string fingerprint;  // what decides the bits: model, libraries
  int driver = 0;           // the newest CUDA that the driver knows: 13000
  int64_t memory_bytes = 0;
};

inline int64_t SizeOf(DType type) { return type == DType::kFloat32 ? 4 : 2; }
const char* Name(DType type);  // "f32", "bf16", "f16"

struct Precision {
  DType type = DType::kFloat32;  // of activations and of the copies of weights
  bool tf32 = false;             // float32 products may round their inputs to 10 bits of mantissa
  bool deterministic = true;
};

// C[m][n] = alpha * A'[m][k] B'[k][n] + beta * C, row by row; A' is A or, transposed, the A that stands as [k][m]. Of
// `batch` such products in a row. Inputs are of Precision.type.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t batch = 1;  // dense: products lie one behind the other
  float alpha = 1, beta = 0;
  DType out = DType::kFloat32;  // of C: Precision.type or float32
  // + bias[n] (of Precision.type), then relu; beta is 0 then.
  bool bias = false, relu = false;
  auto operator<=>(const Product&) const = default;
};
std::string ToString(const Product& p);

// Images [examples, height, width, channels], kernels [out, height, width, in], all of Precision.type but the gradient
// of the kernel, which is float32. Every gradient is overwritten. Padding is the same on both sides of each axis.
struct Convolution {
  enum Kind { kForward, kBackwardData, kBackwardFilter };
  Kind kind = kForward;
  kernels::Window window;
  // Of kForward: + bias[out channels] (of Precision.type), then relu.
  bool bias = false, relu = false;
};
std::string ToString(const Convolution& c);
bool operator<(const Convolution& a, const Convolution& b);

// Memory of a machine, given back when it goes.
class Block {
 public:
  Block() = default;
  Block(void* data, int64_t bytes, std::function<void(void*)> release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Block() {
    if (data_ != nullptr) release_(data_);
  }
  char* data() const { return static_cast<char*>(data_); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  std::function<void(void*)> release_;
};

// Work to be launched again and again: captured, or where that is not possible enqueued anew each time.
class Recording {
 public:
  virtual ~Recording() = default;
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual int device() const = 0;  // DeviceInfo.index

  // The device's, known to all its machines: whoever waits tells it how that ended. Shared before anything is
  // allocated; without that its own.
  void Share(std::shared_ptr<DeviceHealth> health) { health_ = std::move(health); }
  DeviceHealth& health() const { return *health_; }

  // Errors: RESOURCE_EXHAUSTED says how much was asked for and how much there is.
  virtual absl::StatusOr<Block> Allocate(int64_t bytes) = 0;        // on the device
  virtual absl::StatusOr<Block> AllocatePinned(int64_t bytes) = 0;  // on the host, for CopyIn and CopyOut

  virtual kernels::Stream stream() = 0;
  // Begins at once, beside all work, also beside what was enqueued before: that must not read or write `to`.
  virtual absl::Status CopyIn(void* to, const void* pinned, int64_t bytes) = 0;
  virtual absl::Status JoinCopiesIn() = 0;  // later work waits for the copies in so far; not while a Recording is made
  virtual absl::Status Zero(void* to, int64_t bytes) = 0;
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes) = 0;  // on the device, in the order of work
  // After all work enqueued so far, beside what is enqueued later; then Arrived(signal) becomes true.
  virtual absl::Status CopyOut(void* pinned, const void* from, int64_t bytes, int signal) = 0;
  // The same without a copy: work up to here is done.
  virtual absl::Status Announce(int signal) = 0;
  virtual absl::Status JoinCopiesOut() = 0;  // later work waits for them

  virtual kernels::Stream aside() = 0;
  virtual absl::Status CopyPeer(void* to, const void* from, int from_device,
                                int64_t bytes) = 0;  // aside: from another machine's device
  virtual absl::Status CopyOutAside(void* pinned, const void* from, int64_t bytes) = 0;
  virtual absl::Status WaitAside(absl::Duration patience) = 0;  // for all that was enqueued aside. Errors: as WaitFor

  // Calls `enqueue`, which uses this machine, and keeps what it enqueued instead of doing it; or calls it again at
  // every launch.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<absl::Status()>& enqueue) = 0;
  virtual absl::Status Launch(Recording& recording) = 0;

  // Forgets the signals that arrived. Before the work that gives them is enqueued or launched.
  virtual void ResetSignals(int count) = 0;
  // Waits for one. Errors: the device's, if it stopped (UNAVAILABLE: for good); DEADLINE_EXCEEDED after `patience`.
  virtual absl::Status WaitFor(int signal, absl::Duration patience) = 0;
  virtual absl::Status WaitForAll(absl::Duration patience) = 0;  // for all work

  // Chooses the algorithms. Returns the bytes of workspace that it needs. Errors: UNIMPLEMENTED, no algorithm; of a
  // convolution only with bias or relu, which have to follow it then.
  virtual absl::StatusOr<int64_t> Prepare(const Product& product) = 0;
  virtual absl::StatusOr<int64_t> Prepare(const Convolution& convolution) = 0;
  virtual absl::Status Multiply(const Product& product, const void* a, const void* b, const void* bias, void* c,
                                void* workspace) = 0;
  // Of kForward x, kernel -> y; kBackwardData dy, kernel -> dx; kBackwardFilter x, dy -> dkernel.
  // bias: null without Convolution.bias.
  virtual absl::Status Convolve(const Convolution& convolution, const void* first, const void* second, const void* bias,
                                void* to, void* workspace) = 0;

 protected:
  // Memory that is not released once the device is lost.
  Block Own(void* data, int64_t bytes, std::function<void(void*)> release) const {
    return Block(data, bytes, [health = health_, release = std::move(release)](void* p) {
      if (!health->lost()) release(p);
    });
  }
  const std::shared_ptr<DeviceHealth>& shared_health() const { return health_; }

 private:
  std::shared_ptr<DeviceHealth> health_ = std::make_shared<DeviceHealth>("the device");
};

}  // namespace cairn::cudnn
