// StreamMemory: the shared memory of one Exchange stream, from the offer to its end (common/rpc/shared_frames.h).
//
// Thread rule: the stream's mutex guards it; End by the last of its callbacks, without the mutex. Invariants:
//   1. A stream whose frames go through the call never gets a link, and a link once there stays until End.
//   2. All streams of a ps have kSharedLinksMax links at most, and read kClientArenasMax arenas of their clients.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/shared_memory/handover.h"
#include "common/shared_memory/limits.h"
#include "common/shared_memory/shared_link.h"

namespace cairn {

// Of all streams of a ps.
struct StreamMemories {
  std::unique_ptr<HandoverSocket> handover;  // null: no shared memory
  std::atomic<size_t> links{0};
  std::atomic<size_t> client_arenas{0};
};

// The view of a client's arena, and its place among those of a ps.
class ClientArena {
 public:
  // Null: there is none (fd -1), it is not what it should be, or kClientArenasMax are read.
  static std::unique_ptr<ClientArena> Open(FileDescriptor fd, StreamMemories* all) {
    if (fd.get() < 0) return nullptr;
    if (++all->client_arenas <= kClientArenasMax) {
      absl::StatusOr<ArenaView> view = ArenaView::Open(std::move(fd), kArenaBytes);
      if (view.ok()) return std::unique_ptr<ClientArena>(new ClientArena(*std::move(view), all));
      LogInfo("gradients of a client of this host are copied, not read where they are: %s", view.status().message());
    }
    --all->client_arenas;
    return nullptr;
  }
  ~ClientArena() { --all_->client_arenas; }
  const ArenaView& view() const { return view_; }

 private:
  ClientArena(ArenaView view, StreamMemories* all) : view_(std::move(view)), all_(all) {}

  const ArenaView view_;
  StreamMemories* const all_;
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
  // Makes the memory and its link, and returns what the client needs for it. arena: the client's; null: none is read.
  // Errors: RESOURCE_EXHAUSTED; FAILED_PRECONDITION: the call is used.
  absl::StatusOr<HandoverSocket::Given> Begin(SharedLink::User* user, std::unique_ptr<ClientArena> arena) {
    if (called_ || link_ != nullptr) return absl::FailedPreconditionError("the frames go another way already");
    CAIRN_ASSIGN_OR_RETURN(SharedRegion region, SharedRegion::Create(SharedLink::kRegionBytes));
    HandoverSocket::Given given{region.TakeDescriptor(), arena != nullptr};
    const SharedLink::Arenas arenas{.read = arena == nullptr ? nullptr : &arena->view()};
    auto link = std::make_unique<SharedLink>(std::move(region), SharedLink::End::kGiver, user, arenas);
    if (++all_->links > kSharedLinksMax) {
      --all_->links;
      return absl::ResourceExhaustedError(absl::StrFormat("%d streams use shared memory, the most", kSharedLinksMax));
    }
    // The client has no descriptor yet: the thread finds nothing to do.
    if (absl::Status started = link->Start(); !started.ok()) {
      --all_->links;
      return started;
    }
    arena_ = std::move(arena);
    link_ = std::move(link);
    return given;
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
    arena_.reset();  // nothing is read any more
    --all_->links;
  }

 private:
  StreamMemories* const all_;
  std::string ticket_;
  std::unique_ptr<ClientArena> arena_;
  std::unique_ptr<SharedLink> link_;
  bool called_ = false;
};

}  // namespace cairn
