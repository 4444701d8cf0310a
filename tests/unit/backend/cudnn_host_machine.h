// HostMachine: a Machine without a GPU. Launches are the kernels' host build, products and convolutions are loops, done
// when the call returns; so whole programs of the cuDNN backend run here. Copies are done as early as a GPU may do
// them, at once, or as late: those in when they are joined, those out at the end of all work; what a program computes
// must not depend on it.
//
// With a tuner there are two ways to compute a product, the sum along k forward and backward: another way, other bits.
//
// Memory is filled with NaN when it is allocated, and between any two it keeps room that must not be written.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "worker/backend/cudnn/machine.h"
#include "worker/backend/cudnn/tuning.h"

namespace cairn::cudnn {

class HostMachine : public Machine {
 public:
  enum class Copies { kEarly, kLate };
  // microseconds: of the two ways to compute a product.
  using Times = std::function<absl::StatusOr<double>(size_t way)>;
  explicit HostMachine(const Precision& precision, Copies copies = Copies::kEarly, Tuner* tuner = nullptr,
                       Times microseconds = nullptr, int device = 0)
      : precision_(precision),
        copies_(copies),
        tuner_(tuner),
        microseconds_(std::move(microseconds)),
        device_(device) {}
  int device() const override { return device_; }

  absl::StatusOr<Block> Allocate(int64_t bytes) override;
  absl::StatusOr<Block> AllocatePinned(int64_t bytes) override;
  kernels::Stream stream() override { return nullptr; }
  absl::Status CopyIn(void* to, const void* pinned, int64_t bytes) override;
  absl::Status JoinCopiesIn() override;
  absl::Status Zero(void* to, int64_t bytes) override;
  absl::Status Copy(void* to, const void* from, int64_t bytes) override;
  absl::Status CopyOut(void* pinned, const void* from, int64_t bytes, int signal) override;
  absl::Status Announce(int signal) override { return CopyOut(nullptr, nullptr, 0, signal); }
  absl::Status JoinCopiesOut() override;
  kernels::Stream aside() override {
    aside_under_way_ = true;
    return nullptr;
  }
  absl::Status CopyPeer(void* to, const void* from, int from_device, int64_t bytes) override;
  absl::Status CopyOutAside(void* pinned, const void* from, int64_t bytes) override;
  absl::Status WaitAside(absl::Duration) override;
  absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<absl::Status()>& enqueue) override;
  absl::Status Launch(Recording& recording) override;
  void ResetSignals(int count) override { arrived_.assign(count, false); }
  absl::Status WaitFor(int signal, absl::Duration patience) override;
  absl::Status WaitForAll(absl::Duration) override;
  absl::StatusOr<int64_t> Prepare(const Product& product) override;
  // Has no launch with bias or relu for a single example: so tests see both ways.
  absl::StatusOr<int64_t> Prepare(const Convolution& convolution) override;
  absl::Status Multiply(const Product& p, const void* a, const void* b, const void* bias, void* c,
                        void* workspace) override;
  absl::Status Convolve(const Convolution& c, const void* first, const void* second, const void* bias, void* to,
                        void* workspace) override;

  int launches() const { return launches_; }  // of recordings
  int recorded() const { return recorded_; }
  void RefusePinned(bool refuse) { refuses_pinned_ = refuse; }  // from now on there is no pinned memory
  int peer_copies() const { return peer_copies_; }
  bool aside_under_way() const { return aside_under_way_; }  // something was enqueued aside that nobody has waited for

 private:
  struct LateCopy {
    void* to;
    const void* from;
    int64_t bytes;
    int signal;
  };
  static void Do(std::vector<LateCopy>* copies, std::vector<bool>* arrived);
  void Epilogue(const Convolution& c, const void* bias, void* to) const;

  const Precision precision_;
  const Copies copies_;
  Tuner* const tuner_;
  const Times microseconds_;
  const int device_;
  std::vector<LateCopy> late_in_, late_out_, late_aside_;
  std::vector<bool> arrived_;
  std::map<Product, size_t> products_;  // that Prepare was told of: the way to compute each
  std::set<Convolution> convolutions_;
  int launches_ = 0, recorded_ = 0, peer_copies_ = 0;
  bool aside_under_way_ = false, refuses_pinned_ = false;
};

}  // namespace cairn::cudnn
