// OpenStep: the barrier of a synchronous job at one partition: the gradients of the next update, from the first push to
// the complete sum, and its clipping by norm (common/model/clip_norm.h).
//
// The complete sum of a step is clipped before it is accepted, so that the log, the backups and images only see the
// clipped gradient; if it is not finite, the update is accepted without a gradient (loss_scale.h). Norms within this
// partition are known at once. A norm that spans partitions takes two phases:
//
//   open ──the sum is complete──▶ measured: pushes are answered by NORMS ──the first CLIP──▶ an update, as any other
//
// The set of gradients in the sum is fixed when it is measured; later pushes are answered by the same NORMS. A measured
// sum is lost with its primary, like an open one: the new primary answers CLIP with ABORTED, and the workers push
// again. With backup_replicas the next sum may consist of other gradients, so a CLIP names the norms of this partition
// that its sender knows, and gets ABORTED if they are not this sum's; its factors may be those that another partition
// applied (NormBook). The norms and factors go with the update into the log, the backups, images and VALUES: a worker
// may find this partition updated and another still measured, whose factors need both.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. At most one step is open, that of version + 1, and only while no update is in flight.
//   2. While a sum is measured, no gradients are pending.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "server/core/pending_sums.h"
#include "server/core/training_figures.h"
#include "server/core/updates.h"

namespace cairn {

class OpenStep {
 public:
  struct Complete {  // an update to accept
    v1::LogEntry entry;
    Buffer gradient;
  };

  OpenStep(CopyContext& copy, const Updates& updates, const TrainingFigures& figures)
      : copy_(copy), updates_(updates), figures_(figures), pending_(copy.config.replicas) {}

  // push: checked. nullopt: the step stays open or is measured now, or the push is a duplicate.
  absl::StatusOr<std::optional<Complete>> Add(Frame& push);
  // Errors: INVALID_ARGUMENT, OUT_OF_RANGE; ABORTED: the worker must push again. nullopt: it is a duplicate.
  absl::StatusOr<std::optional<Complete>> Clip(const Frame& clip);
  bool measured() const { return measured_.has_value(); }
  // Whether a push of this sequence belongs to the measured step, and is answered by MakeNorms.
  bool Measures(uint64_t sequence) const { return measured_ && sequence == measured_->entry.sequence(); }
  Frame MakeNorms(uint64_t request_id) const;
  // Drops an incomplete sum; its gradients will be pushed again.
  void Forget();

 private:
  struct Terms {  // what all pushes of a step have in common
    float learning_rate = 0;
    int32_t epoch = 0;  // of its figures
    bool operator==(const Terms&) const = default;
  };
  struct MeasuredSum {
    v1::LogEntry entry;
    Buffer gradient;
    size_t spanning = 0;  // records in entry.norms()
  };

  // root: the sum of all gradients with which the step closes; push: the last of them.
  std::optional<Complete> Close(const Frame& push, PendingSums::Sum root);
  std::optional<Complete> ClipOwn(v1::LogEntry entry, PendingSums::Sum sum);
  absl::Status CheckClip(const Frame& clip) const;
  absl::StatusOr<bool> FiniteBy(absl::Span<const double> factors) const;

  CopyContext& copy_;
  const Updates& updates_;
  const TrainingFigures& figures_;
  PendingSums pending_;
  std::optional<Terms> terms_;
  std::optional<MeasuredSum> measured_;
};

}  // namespace cairn
