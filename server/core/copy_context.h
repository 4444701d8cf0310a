// CopyContext: what the parts of PartitionCore share: the configuration and state of the copy, and the time and effects
// of the running Step.
//
// Not thread-safe; one core owns it. Invariant: effects belong to one Step; Begin drops those of the previous one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "server/core/partition_events.h"

namespace cairn {

struct CopyContext {
  CopyContext(PartitionConfig config, PartitionState state) : config(std::move(config)), state(std::move(state)) {}
  CopyContext(const CopyContext&) = delete;
  CopyContext& operator=(const CopyContext&) = delete;

  PartitionConfig config;  // changed only by PartitionCore
  PartitionState state;
  absl::Time now = absl::InfinitePast();
  PartitionEffects effects;

  void Begin(absl::Time at) {
    now = at;
    effects = {};
  }
  void WakeAt(absl::Time at) { effects.wake_at = std::min(effects.wake_at.value_or(absl::InfiniteFuture()), at); }

  // ---- answers ----
  Frame MakeFrame(v1::ExchangeFrame::Kind kind, uint64_t request_id) const;
  void Reply(uint64_t client, Frame frame) { effects.replies.push_back({client, std::move(frame)}); }
  PartitionReply MakeError(uint64_t client, uint64_t request_id, const absl::Status& status) const;
  void ReplyError(uint64_t client, uint64_t request_id, const absl::Status& status) {
    effects.replies.push_back(MakeError(client, request_id, status));
  }

  // ---- checks for every request ----
  absl::Status CheckGeneration(Generation generation) const;
  absl::Status CheckTrains() const;  // the job has not ended
};

}  // namespace cairn
