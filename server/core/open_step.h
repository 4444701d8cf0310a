// OpenStep: the barrier of a synchronous job at one partition: the gradients of the next update, from the first push to
// the complete sum, and its clipping by norm (common/model/clip_norm.h).
//
// The complete sum of a step is clipped before it is accepted, so that the log, the backups and images know the clipped
// gradient alone; where it is not finite, the update is accepted without one (loss_scale.h). Norms that lie in this
// partition are known at once. One that spans partitions takes two phases:
//
//   open ──the sum is complete──▶ measured: pushes are answered by NORMS ──the first CLIP──▶ an update, as any other
//
// Which gradients are in the sum is fixed when it is measured; pushes that come later are answered by the same NORMS. A
// measured sum is lost with its primary, like an open one: CLIP gets ABORTED there, and the workers push again. With
// backup_replicas the next sum may be of other gradients: a CLIP names this partition's norms that its sender knows,
// and gets ABORTED where they are not this sum's; its factors may be those that another partition applied (NormBook).
// The records and the factors go with the update into the log, the backups and images, and into VALUES: a worker may
// find this partition updated and another one still measured, whose factors need both.
//
// Not thread-safe; part of PartitionCore. Invariants:
//   1. At most one step is open, that of version + 1, and only while no update is under way.
//   2. While a sum is measured nothing is pending.
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

  // A checked push. nullopt: the step stays open or is measured now, or the push is a repetition.
  absl::StatusOr<std::optional<Complete>> Add(Frame& push);
  // Errors: INVALID_ARGUMENT, OUT_OF_RANGE; ABORTED: it is to be pushed again. nullopt: it is a repetition.
  absl::StatusOr<std::optional<Complete>> Clip(const Frame& clip);
  bool measured() const { return measured_.has_value(); }
  // A push of the step whose sum is measured: it is answered by these.
  bool Measures(uint64_t sequence) const { return measured_ && sequence == measured_->entry.sequence(); }
  Frame MakeNorms(uint64_t request_id) const;
  // An incomplete sum is forgotten; its gradients are pushed again.
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

  // root: of all the gradients that the step closes with; push: the last of them.
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
