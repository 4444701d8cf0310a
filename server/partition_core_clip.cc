// PartitionCore, clipping by norm (synchronous jobs; common/model/clip_norm.h) and gradients that are not finite
// (loss_scale.h), whose scope is the whole parameter space.
//
// The complete sum of a step is clipped before it is accepted, so that the log, the backups and images know the clipped
// gradient alone; where it is not finite, the update is accepted without one. Norms that lie in this partition are
// known at once. One that spans partitions takes two phases:
//
//   open ──the sum is complete──▶ measured: pushes are answered by NORMS ──the first CLIP──▶ accepted, as any other
//   update
//
// Which gradients are in the sum is fixed when it is measured; pushes that come later are answered by the same NORMS. A
// measured sum is lost with its primary, like an open one: CLIP gets ABORTED there, and the workers push again. With
// backup_replicas the next sum may be of other gradients: a CLIP names this partition's norms that its sender knows,
// and gets ABORTED where they are not this sum's; its factors may be those that another partition applied (NormBook).
// The records and the factors go with the update into the log, the backups and images, and into VALUES: a worker may
// find this partition updated and another one still measured, whose factors need both.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/partition_core.h"

namespace cairn {

void PartitionCore::AcceptSum(v1::LogEntry entry, PendingSums::Sum sum, PartitionEffects& effects) {
  if (config_.clip_scopes.empty()) return Accept(std::move(entry), std::move(sum.gradient), effects);
  if (!sum.gradient.empty() && !sum.gradient.unique())
    sum.gradient = Buffer::CopyOf(sum.gradient.data(), sum.gradient.size());
  std::vector<NormRecord> spanning;
  bool finite = true;
  for (const ClipScope& scope : config_.clip_scopes) {
    NormRecord record =
        MeasureNorm(scope, sum.gradient.empty() ? absl::Span<const float>() : sum.gradient.floats(), sum.examples);
    if (scope.whole()) {
      if (scope.id == kFiniteScope) finite = record.squares.finite();
      if (!sum.gradient.empty()) {
        ScaleGradient(scope, ScopeFactor(scope.id, config_.clip_norm, record.squares), sum.gradient.mutable_floats());
      }
    } else {
      spanning.push_back(std::move(record));
    }
  }
  if (spanning.empty()) return AcceptMeasured(std::move(entry), std::move(sum.gradient), finite, effects);
  entry.set_norms(EncodeNorms(spanning));
  measured_ = MeasuredSum{std::move(entry), std::move(sum.gradient), spanning.size()};
  ReleaseWaiters(effects);
}

absl::Status PartitionCore::Clip(uint64_t client, const Frame& frame, absl::Time now, PartitionEffects& effects) {
  CAIRN_RETURN_IF_ERROR(CheckGeneration(frame.generation));
  CAIRN_RETURN_IF_ERROR(CheckServes());
  CAIRN_RETURN_IF_ERROR(CheckTrains());
  if (!ClipsInTwoPhases()) {
    return absl::InvalidArgumentError(absl::StrCat("kind: CLIP, but no norm of ", config_.Name(),
                                                   " spans partitions; a push alone makes its update"));
  }
  if (frame.sequence == 0) return absl::InvalidArgumentError("sequence: 0; the first update is 1");
  Waiter w;
  CAIRN_ASSIGN_OR_RETURN(w.reply_dtype, ReplyType(frame));
  w.client = client;
  w.request_id = frame.request_id;
  w.since = now;
  w.is_push = w.is_clip = true;
  w.wants_values = frame.reply_dtype != v1::DATA_TYPE_UNSPECIFIED;
  w.shows_sequence = true;
  w.sequence = frame.sequence;
  const uint64_t next = state_.version + 1;
  if (frame.sequence > next) {
    return absl::OutOfRangeError(absl::StrCat("sequence ", frame.sequence, ": ", config_.Name(), " is at version ",
                                              state_.version, "; pull its values and go on from there"));
  }
  if (frame.sequence == next && in_flight_.empty()) {
    if (!measured_) {
      return absl::AbortedError(
          absl::StrCat(config_.Name(), ": the sum of update ", next, " is not here, or not complete; push again"));
    }
    if (frame.norms_xxh3 != HashOfNorms(measured_->entry.norms())) {
      return absl::AbortedError(absl::StrCat(config_.Name(),
                                             ": the factors are of other norms than those of the sum of update ", next,
                                             " that is here (norms_xxh3); push again"));
    }
    CAIRN_ASSIGN_OR_RETURN(const std::vector<double> factors, DecodeFactors(frame.scalars, measured_->spanning));
    CAIRN_ASSIGN_OR_RETURN(const bool finite, FiniteBy(factors));
    MeasuredSum sum = *std::exchange(measured_, std::nullopt);
    sum.entry.set_norms(sum.entry.norms() + frame.scalars);
    size_t i = 0;
    for (const ClipScope& scope : config_.clip_scopes) {
      if (scope.whole()) continue;
      if (!sum.gradient.empty()) ScaleGradient(scope, factors[i], sum.gradient.mutable_floats());
      ++i;
    }
    AcceptMeasured(std::move(sum.entry), std::move(sum.gradient), finite, effects);
  }
  return AnswerOrWait(std::move(w), effects);
}

void PartitionCore::AcceptMeasured(v1::LogEntry entry, Buffer gradient, bool finite, PartitionEffects& effects) {
  if (!finite) {
    entry.set_not_finite(true);
    entry.set_examples(0);
    gradient = {};
  }
  Accept(std::move(entry), std::move(gradient), effects);
}

// Whether the measured sum is to be applied, as the factors of a CLIP say.
absl::StatusOr<bool> PartitionCore::FiniteBy(absl::Span<const double> factors) const {
  if (!config_.loss_scale || config_.clip_scopes.back().whole()) return true;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<NormRecord> records, DecodeNorms(measured_->entry.norms()));
  const double factor = factors.back();
  const bool own = records.back().squares.finite();
  if (factor == 0 || (factor == 1 && own)) return factor == 1;
  return absl::InvalidArgumentError(absl::StrCat("scalars: factor ", factor,
                                                 " of whether the gradient is finite; that of ", config_.Name(),
                                                 own ? " is: send 0 or 1" : " is not: send 0"));
}

bool PartitionCore::ClipsInTwoPhases() const {
  return std::any_of(config_.clip_scopes.begin(), config_.clip_scopes.end(),
                     [](const ClipScope& s) { return !s.whole(); });
}

PartitionReply PartitionCore::MakeNorms(const Waiter& w) const {
  PartitionReply reply{w.client, {}};
  Frame& f = reply.frame;
  f.kind = v1::ExchangeFrame::NORMS;
  f.request_id = w.request_id;
  f.job = config_.job;
  f.partition = config_.partition;
  f.generation = config_.generation;
  f.version = state_.version;
  f.sequence = measured_->entry.sequence();
  f.scalars = measured_->entry.norms();
  return reply;
}

}  // namespace cairn
