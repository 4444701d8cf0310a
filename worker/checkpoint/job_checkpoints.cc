#include "worker/checkpoint/job_checkpoints.h"

#include <optional>
#include <utility>

#include "worker/checkpoint/checkpoint_writer.h"
#include "worker/checkpoint/remote_checkpoints.h"

namespace cairn {
namespace {

class FolderCheckpoints : public JobCheckpoints {
 public:
  FolderCheckpoints(std::string dir, CheckpointOwner owner) : dir_(std::move(dir)), owner_(std::move(owner)) {}

  absl::StatusOr<std::string> Write(CheckpointContents contents, int64_t now_unix_ms) override {
    return WriteCheckpoint(dir_, std::move(contents), now_unix_ms, &set_aside_);
  }
  absl::StatusOr<std::string> KeepAsBest(int64_t step) override {
    return cairn::KeepAsBest(dir_, step, owner_, &set_aside_);
  }
  absl::Time BestKeptAt() override { return cairn::BestKeptAt(dir_); }
  absl::Status Open() override {
    if (own_) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(own_, OwnCheckpoints::Open(dir_, owner_));
    return absl::OkStatus();
  }
  absl::Status Check(const std::string& name) override {
    CAIRN_RETURN_IF_ERROR(Open());
    return own_->Check(name);
  }
  absl::Status Remove(const std::string& name) override {
    CAIRN_RETURN_IF_ERROR(Open());
    return own_->Remove(name);
  }
  absl::Status RemoveAll() override {
    CAIRN_RETURN_IF_ERROR(Open());
    return own_->RemoveAll();
  }

 private:
  const std::string dir_;
  const CheckpointOwner owner_;
  std::optional<OwnCheckpoints> own_;  // once it is open
};

}  // namespace

std::unique_ptr<JobCheckpoints> CheckpointsIn(const std::string& dir, CheckpointOwner owner, RemoteFiles* remote) {
  if (remote != nullptr && remote->Has(dir)) return std::make_unique<RemoteCheckpoints>(dir, std::move(owner), *remote);
  return std::make_unique<FolderCheckpoints>(dir, std::move(owner));
}

}  // namespace cairn
