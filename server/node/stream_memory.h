// StreamMemory: the shared memory of one Exchange stream, from the offer to its end (common/rpc/shared_frames.h).
//
// Thread rule: the stream's mutex guards it; End by the last of its callbacks, without the mutex. Invariants:
//   1. A stream whose frames go through the call never gets a link, and a link once there stays until End.
//   2. All streams of a ps have kSharedLinksMax links at most.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "common/shared_memory/handover.h"
#include "common/shared_memory/limits.h"
#include "common/shared_memory/shared_link.h"

namespace cairn {

// Of all streams of a ps.
struct StreamMemories {
  std::unique_ptr<HandoverSocket> handover;  // null: no shared memory
  std::atomic<size_t> links{0};
};

class StreamMemory {
 public:
  explicit StreamMemory(StreamMemories* all) : all_(all) {}

  // Returns the ticket with which the client gets what `give` returns; "": there is no memory for it.
  std::string Offer(HandoverSocket::Give give) {
    if (all_->handover == nullptr || all_->links >= kSharedLinksMax) return "";
    ticket_ = all_->handover->Offer(std::move(give));
    return ticket_;
  }
  // Makes the memory and its link, and returns what the client needs for it. Errors: RESOURCE_EXHAUSTED;
  // FAILED_PRECONDITION: the call is used.
  absl::StatusOr<FileDescriptor> Begin(SharedLink::User* user) {
    if (called_ || link_ != nullptr) return absl::FailedPreconditionError("the frames go another way already");
    CAIRN_ASSIGN_OR_RETURN(SharedRegion region, SharedRegion::Create(SharedLink::kRegionBytes));
    FileDescriptor descriptor = region.TakeDescriptor();
    auto link = std::make_unique<SharedLink>(std::move(region), SharedLink::End::kGiver, user);
    if (++all_->links > kSharedLinksMax) {
      --all_->links;
      return absl::ResourceExhaustedError(absl::StrFormat("%d streams use shared memory, the most", kSharedLinksMax));
    }
    // The client has no descriptor yet: the thread finds nothing to do.
    if (absl::Status started = link->Start(); !started.ok()) {
      --all_->links;
      return started;
    }
    link_ = std::move(link);
    return descriptor;
  }
  // A frame came through the call. False: that is wrong, for they go through the memory.
  bool NoteCall() {
    called_ = true;
    return link_ == nullptr;
  }
  SharedLink* link() const { return link_.get(); }  // null: the frames go through the call
  // Waits for the link's thread. Nothing of this is used after it but link().
  void End() {
    if (!ticket_.empty()) all_->handover->Withdraw(ticket_);
    if (link_ == nullptr) return;
    link_->Stop();
    --all_->links;
  }

 private:
  StreamMemories* const all_;
  std::string ticket_;
  std::unique_ptr<SharedLink> link_;
  bool called_ = false;
};

}  // namespace cairn
