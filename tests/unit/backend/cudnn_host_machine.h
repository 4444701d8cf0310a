// HostMachine: a Machine without a GPU. Launches are the kernels' host build, products and convolutions are loops, and all is done when
// the call returns; so whole programs of the cuDNN backend run here.
//
// Memory is filled with NaN when it is allocated, and between any two it keeps room that must not be written.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

class HostMachine : public Machine {
 public:
  explicit HostMachine(const Precision& precision) : precision_(precision) {}

  absl::StatusOr<Block> Allocate(int64_t bytes) override;
  absl::StatusOr<Block> AllocatePinned(int64_t bytes) override { return Allocate(bytes); }
  kernels::Stream stream() override { return nullptr; }
  absl::Status CopyIn(void* to, const void* pinned, int64_t bytes) override;
  absl::Status Zero(void* to, int64_t bytes) override;
  absl::Status CopyOut(void* pinned, const void* from, int64_t bytes, int signal) override;
  absl::Status JoinCopies() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<Recording>> Record(const std::function<absl::Status()>& enqueue) override;
  absl::Status Launch(Recording& recording) override;
  void ResetSignals(int count) override { arrived_.assign(count, false); }
  absl::Status WaitFor(int signal, absl::Duration patience) override;
  absl::Status WaitForAll(absl::Duration) override { return absl::OkStatus(); }
  absl::StatusOr<int64_t> Prepare(const Product& product) override;
  // Has no launch with bias or relu for a single example: so tests see both ways.
  absl::StatusOr<int64_t> Prepare(const Convolution& convolution) override;
  absl::Status Multiply(const Product& p, const void* a, const void* b, const void* bias, void* c, void* workspace) override;
  absl::Status Convolve(const Convolution& c, const void* first, const void* second, const void* bias, void* to,
                        void* workspace) override;

  int launches() const { return launches_; }  // of recordings

 private:
  void Epilogue(const Convolution& c, const void* bias, void* to) const;

  const Precision precision_;
  std::vector<bool> arrived_;
  std::set<Product> products_;  // that Prepare was told of
  std::set<Convolution> convolutions_;
  int launches_ = 0;
};

}  // namespace cairn::cudnn
