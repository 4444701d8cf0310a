// Replication: the primary's side: what backups are sent, which of them are required, and whether this copy may serve.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. An accepted update is kept when the store and every required backup (BackupLink::required) have it.
//   2. A new or restarted primary answers no request before the state that it began with is kept (Settled). That state
//      may hold updates that were never acknowledged; if they were shown earlier, they could still be lost with this
//      copy. Which backups must have it is known from the first assignment on.
//   3. An unreachable backup is reported as lost after a bounded time, but stays required: only the coordinator removes
//      it, by an assignment of a higher generation if the backup was in sync.
//   4. A primary refused by a backup of a higher generation is fenced: it serves no request until a newer assignment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/core/updates.h"

namespace cairn {

class Replication {
 public:
  Replication(CopyContext& copy, Updates& updates) : copy_(copy), updates_(updates) {}

  // `newer`: of a higher generation than the previous one; `dropped`: a backup may have dropped its copy
  // since.
  void Assign(const AssignEvent& event, bool newer, bool dropped);
  void BecomePrimary() { settled_ = false; }
  void OnLinkUp(const LinkUpEvent& event);
  void OnLinkDown(const LinkDownEvent& event);
  void OnAnswer(const PeerFrameEvent& event);

  // To all backups that are streaming.
  void Send(Updates::Update& update);
  // To all backups that want an image.
  void SendImages();
  // The state was replaced: all backups start over.
  void SendAnew();
  // Call after every event: handles backups that have caught up or fallen too far behind, and retries.
  void Tend();
  // Reports again backups that have caught up and are not named in sync yet, and reports lost ones.
  void OnTick(const TickEvent& event);

  bool Kept(uint64_t version) const;
  bool Settled();
  bool was_settled() const { return settled_; }
  bool serves() const { return !copy_.config.backup && !fenced_; }  // this copy answers clients
  absl::Status CheckServes() const;
  bool fenced() const { return fenced_; }
  bool WantsImage(absl::Time now) const;
  bool sending_image() const;
  const std::vector<BackupLink>& links() const { return links_; }

 private:
  BackupLink* LinkOf(const std::string& address, uint64_t epoch);
  void Replicate(BackupLink& link, Updates::Update& update);
  void Report(const BackupLink& link, const BackupLink::Loss& loss = {});

  CopyContext& copy_;
  Updates& updates_;
  std::vector<BackupLink> links_;
  uint64_t next_request_id_ = 1;  // across all links
  bool assigned_ = false;         // since this core was made
  bool settled_ = false;
  bool fenced_ = false;
  absl::Time ticked_ = absl::InfiniteFuture();  // when links were last looked at
  absl::Time report_lost_at_ = absl::InfinitePast();
};

}  // namespace cairn
