// Primary: handles the requests of clients at the copy that serves them: PUSH, CLIP, PULL, SNAPSHOT.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. Each (replica, sequence) counts in one update; a duplicate is answered with the present values.
//   2. A request of another generation changes nothing.
//   3. Errors are returned, and the caller answers with them. A push may count although its answer is
//      RESOURCE_EXHAUSTED (too many requests wait): the retry is recognized as a duplicate.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/status.h"
#include "server/core/open_step.h"
#include "server/core/replication.h"
#include "server/core/training_figures.h"
#include "server/core/updates.h"
#include "server/core/waiting_requests.h"

namespace cairn {

class Primary {
 public:
  Primary(CopyContext& copy, Updates& updates, Replication& replication, const TrainingFigures& figures, OpenStep& step,
          WaitingRequests& waiting)
      : copy_(copy), updates_(updates), replication_(replication), figures_(figures), step_(step), waiting_(waiting) {}

  absl::Status Push(uint64_t client, Frame& frame);
  absl::Status Clip(uint64_t client, const Frame& frame);
  absl::Status Pull(uint64_t client, Frame& frame);
  absl::Status Snapshot(uint64_t client, const Frame& frame);

 private:
  absl::Status CheckRequest(const Frame& frame, bool any_generation) const;
  absl::StatusOr<std::optional<OpenStep::Complete>> AcceptAlone(Frame& frame);
  void Accept(OpenStep::Complete update);

  CopyContext& copy_;
  Updates& updates_;
  Replication& replication_;
  const TrainingFigures& figures_;
  OpenStep& step_;
  WaitingRequests& waiting_;
};

}  // namespace cairn
