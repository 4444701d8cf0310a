// Replication: a primary and its backups: what they get, who is waited for, and whether this copy may answer anybody.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. What was accepted is kept when this store and every backup that is waited for (BackupLink::required) have it.
//   2. A new primary, and one that was restarted, answers nobody before the state that it began with is kept (Settled):
//      that may hold updates that were never acknowledged, and if it were shown earlier they could be lost with this
//      copy. Which backups must have it is known from the first assignment on.
//   3. A backup that nothing gets across to is reported as lost after a bounded time, and waited for all the same: only
//      the coordinator takes it away, by an assignment of a higher generation where the backup was in sync.
//   4. A primary that a backup of a higher generation refused answers nobody until a newer assignment comes (fenced).
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

  // `newer`: of a higher generation than the one before; `dropped`: a backup may have dropped its copy
  // since then.
  void Assign(const AssignEvent& event, bool newer, bool dropped);
  void BecomePrimary() { settled_ = false; }
  void OnLinkUp(const LinkUpEvent& event);
  void OnLinkDown(const LinkDownEvent& event);
  void OnAnswer(const PeerFrameEvent& event);

  // To all that follow.
  void Send(Updates::Update& update);
  // To all that want one.
  void SendImages();
  // The state was replaced: all start over.
  void SendAnew();
  // After every event: who has caught up, who fell too far behind, what is to be tried again.
  void Tend();
  // Who has caught up and is not named in sync yet, again; and who is lost.
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
  uint64_t next_request_id_ = 1;  // over all links
  bool assigned_ = false;         // in this life
  bool settled_ = false;
  bool fenced_ = false;
  absl::Time ticked_ = absl::InfiniteFuture();  // when links were last looked at
  absl::Time report_lost_at_ = absl::InfinitePast();
};

}  // namespace cairn
