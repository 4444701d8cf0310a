// Machine: all that a program needs of a GPU: memory, the order of work, matrix products, convolutions. CudaMachine is
// the real one; tests run whole programs on one that computes on the host.
//
// A Machine belongs to one Program, and so is used by one thread at a time. Work is enqueued on one stream and done in
// order. Copies in, copies out and work that is enqueued `aside` run beside it, each kind in its own order; work aside
// uses only what is complete, and is never recorded. Invariants:
//   1. A product or convolution that was prepared can be enqueued without allocating or waiting, also while a Recording
//      is made.
//   2. With Precision.deterministic the bits of a product or a convolution depend only on its arguments and the kind of
//      device.
//   3. Once the device is lost, nothing is waited for or released: memory, streams and recordings stay until the
//      process ends, since the device may still write to them.
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
  std::string fingerprint;  // all that the bits depend on: model, libraries
  int driver = 0;           // the newest CUDA version that the driver supports: 13000
  int64_t memory_bytes = 0;
};

inline int64_t SizeOf(DType type) { return type == DType::kFloat32 ? 4 : 2; }
const char* Name(DType type);  // "f32", "bf16", "f16"

struct Precision {
  DType type = DType::kFloat32;  // of activations and of the copies of weights
  bool tf32 = false;             // float32 products may round their inputs to 10 bits of mantissa
  bool deterministic = true;
};

// C[m][n] = alpha * A'[m][k] B'[k][n] + beta * C in row-major order. A' is A, or with transpose_a the transpose of A,
// which is stored as [k][m]; B' likewise. `batch` such products. A and B are of Precision.type.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t batch = 1;  // the matrices of the products are stored one after the other
  float alpha = 1, beta = 0;
  DType out = DType::kFloat32;  // of C: Precision.type or float32
  // Adds bias[n] (of Precision.type), then applies relu; beta must be 0.
  bool bias = false, relu = false;
  auto operator<=>(const Product&) const = default;
};
std::string ToString(const Product& p);

// Images [examples, height, width, channels], kernels [out, height, width, in], all of Precision.type except the
// gradient of the kernel, which is float32. Gradients are overwritten. Padding is the same on both sides of each axis.
struct Convolution {
  enum Kind { kForward, kBackwardData, kBackwardFilter };
  Kind kind = kForward;
  kernels::Window window;
  // For kForward: adds bias[out channels] (of Precision.type), then applies relu.
  bool bias = false, relu = false;
};
std::string ToString(const Convolution& c);
bool operator<(const Convolution& a, const Convolution& b);

// Memory of a machine, released with the object.
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

// Work that can be launched repeatedly: captured, or, where that is not possible, enqueued again at every launch.
class Recording {
 public:
  virtual ~Recording() = default;
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual int device() const = 0;  // DeviceInfo.index

  // Sets the health of the device, which all its machines share; whoever waits for the device notes there how the wait
  // ended. Called before anything is allocated; without it the machine has a health of its own.
  void Share(std::shared_ptr<DeviceHealth> health) { health_ = std::move(health); }
  DeviceHealth& health() const { return *health_; }

  // Errors: RESOURCE_EXHAUSTED says how much was asked for and how much there is.
  virtual absl::StatusOr<Block> Allocate(int64_t bytes) = 0;        // on the device
  virtual absl::StatusOr<Block> AllocatePinned(int64_t bytes) = 0;  // on the host, for CopyIn and CopyOut

  virtual kernels::Stream stream() = 0;
  // Starts at once, beside all work, even work that was enqueued before: that must not read or write `to`.
  virtual absl::Status CopyIn(void* to, const void* pinned, int64_t bytes) = 0;
  virtual absl::Status JoinCopiesIn() = 0;  // later work waits for all copies in so far; not while a Recording is made
  virtual absl::Status Zero(void* to, int64_t bytes) = 0;
  virtual absl::Status Copy(void* to, const void* from, int64_t bytes) = 0;  // on the device, in the order of work
  // Runs after all work enqueued so far, beside later work, and then gives the signal (WaitFor).
  virtual absl::Status CopyOut(void* pinned, const void* from, int64_t bytes, int signal) = 0;
  // Gives the signal when all work enqueued so far is done.
  virtual absl::Status Announce(int signal) = 0;
  virtual absl::Status JoinCopiesOut() = 0;  // later work waits for all copies out so far

  virtual kernels::Stream aside() = 0;
  // Copies from the device of another machine, aside.
  virtual absl::Status CopyPeer(void* to, const void* from, int from_device, int64_t bytes) = 0;
  virtual absl::Status CopyOutAside(void* pinned, const void* from, int64_t bytes) = 0;
  // Waits for all work that was enqueued aside. Errors: as WaitFor.
  virtual absl::Status WaitAside(absl::Duration patience) = 0;

  // Calls `enqueue`, which uses this machine, and records the work instead of doing it; or keeps `enqueue` and calls it
  // at every launch.
  virtual absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<absl::Status()>& enqueue) = 0;
  virtual absl::Status Launch(Recording& recording) = 0;

  // Forgets all signals. Called before the work that gives signals 0 .. count - 1 is enqueued or launched.
  virtual void ResetSignals(int count) = 0;
  // Waits for a signal. Errors: that of the device, if it stopped (UNAVAILABLE: for good); DEADLINE_EXCEEDED after
  // `patience`.
  virtual absl::Status WaitFor(int signal, absl::Duration patience) = 0;
  virtual absl::Status WaitForAll(absl::Duration patience) = 0;  // for all work

  // Chooses the algorithm and returns how many bytes of workspace it needs. Errors: UNIMPLEMENTED if there is none; for
  // a convolution only if it has a bias or relu, which must then be launches of their own.
  virtual absl::StatusOr<int64_t> Prepare(const Product& product) = 0;
  virtual absl::StatusOr<int64_t> Prepare(const Convolution& convolution) = 0;
  virtual absl::Status Multiply(const Product& product, const void* a, const void* b, const void* bias, void* c,
                                void* workspace) = 0;
  // first, second -> to. kForward: x, kernel -> y; kBackwardData: dy, kernel -> dx; kBackwardFilter: x, dy -> dkernel.
  // bias: null without Convolution.bias.
  virtual absl::Status Convolve(const Convolution& convolution, const void* first, const void* second, const void* bias,
                                void* to, void* workspace) = 0;

 protected:
  // A Block that does not release its memory once the device is lost.
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
