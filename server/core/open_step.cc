#include "server/core/open_step.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/core/push_gradient.h"

namespace cairn {
namespace {

OpenStep::Complete MakeComplete(v1::LogEntry entry, Buffer gradient, bool finite) {
  if (finite) return {std::move(entry), std::move(gradient)};
  entry.set_not_finite(true);
  entry.set_examples(0);
  return {std::move(entry), {}};
}

}  // namespace

absl::StatusOr<std::optional<OpenStep::Complete>> OpenStep::Add(Frame& push) {
  const PartitionConfig& config = copy_.config;
  const PartitionState& state = copy_.state;
  const uint64_t next = state.version + 1;
  if (push.sequence > next) {
    return absl::OutOfRangeError(absl::StrCat("sequence ", push.sequence, ": ", config.Name(), " is at version ",
                                              state.version, " and waits for update ", next,
                                              "; pull its values and continue from there"));
  }
  if (push.sequence < next || !updates_.empty() || measured_) return std::nullopt;  // applied already, or complete
  CAIRN_ASSIGN_OR_RETURN(v1::EpochFigures figures, figures_.Of(push));
  const Terms terms{push.learning_rate, figures.epoch()};
  if (terms_ && *terms_ != terms) {
    return absl::InvalidArgumentError(absl::StrCat("learning_rate: ", terms.learning_rate, ", epoch ", terms.epoch,
                                                   ", but update ", next, " began with ", terms_->learning_rate,
                                                   " in epoch ", terms_->epoch, "; all replicas use the same"));
  }
  if (config.loss_scale && push.loss_scale != state.loss_scale.scale) {  // computed before a rollback
    return absl::OutOfRangeError(absl::StrCat("loss_scale: ", push.loss_scale, ", but ", config.Name(), " is at ",
                                              state.loss_scale.scale, "; pull its values and continue from there"));
  }
  const TreeNode node{static_cast<uint32_t>(push.replica_first.value), push.replica_count};
  if (pending_.Holds(node)) return std::nullopt;

  copy_.state.contents->ForgetPrevious();
  terms_ = terms;
  const uint64_t examples = push.examples;
  const auto merge = [&](const TreeNode& parent, Buffer left, Buffer right) {
    return config.kind->Merge(config, next, parent, std::move(left), std::move(right));
  };
  pending_.Add(node, {TakeGradient(config, push), examples, std::move(figures)}, merge);
  // Later pushes find the step closed, and get the present values.
  const bool closed = config.backup_replicas > 0 ? pending_.replicas_held() + config.backup_replicas >= config.replicas
                                                 : pending_.complete();
  if (!closed) return std::nullopt;
  return Close(push, pending_.complete() ? pending_.TakeRoot() : pending_.TakeAll(merge));
}

std::optional<OpenStep::Complete> OpenStep::Close(const Frame& push, PendingSums::Sum root) {
  terms_.reset();
  v1::LogEntry entry;
  if (root.figures.replica_steps() > 0) *entry.mutable_figures() = std::move(root.figures);
  entry.set_replica_first(0);
  entry.set_replica_count(copy_.config.replicas);
  entry.set_sequence(push.sequence);
  entry.set_examples(root.examples);
  entry.set_learning_rate(push.learning_rate);
  entry.set_ema_overwrite(push.ema_overwrite);
  entry.set_loss_scale(push.loss_scale);
  root.gradient = copy_.state.contents->AddPenalties(copy_.config, root.examples, std::move(root.gradient));
  return ClipOwn(std::move(entry), std::move(root));
}

// Clips by the norms that lie in this partition. nullopt: other norms span partitions; the sum is measured.
std::optional<OpenStep::Complete> OpenStep::ClipOwn(v1::LogEntry entry, PendingSums::Sum sum) {
  const PartitionConfig& config = copy_.config;
  if (config.clip_scopes.empty()) return Complete{std::move(entry), std::move(sum.gradient)};
  if (!sum.gradient.empty() && !sum.gradient.unique())
    sum.gradient = Buffer::CopyOf(sum.gradient.data(), sum.gradient.size());
  std::vector<NormRecord> spanning;
  bool finite = true;
  for (const ClipScope& scope : config.clip_scopes) {
    NormRecord record = config.kind->Measure(scope, sum.gradient, sum.examples);
    if (scope.whole()) {
      if (scope.id == kFiniteScope) finite = record.squares.finite();
      if (!sum.gradient.empty()) {
        config.kind->Scale(scope, ScopeFactor(scope.id, config.clip_norm, record.squares), sum.gradient);
      }
    } else {
      spanning.push_back(record);
    }
  }
  if (spanning.empty()) return MakeComplete(std::move(entry), std::move(sum.gradient), finite);
  entry.set_norms(EncodeNorms(spanning));
  measured_ = MeasuredSum{std::move(entry), std::move(sum.gradient), spanning.size()};
  return std::nullopt;
}

absl::Status OpenStep::CheckClip(const Frame& clip) const {
  const PartitionConfig& config = copy_.config;
  const uint64_t version = copy_.state.version;
  const bool two_phases =
      std::any_of(config.clip_scopes.begin(), config.clip_scopes.end(), [](const ClipScope& s) { return !s.whole(); });
  if (!two_phases) {
    return absl::InvalidArgumentError(absl::StrCat("kind: CLIP, but no norm of ", config.Name(),
                                                   " spans partitions, so a push completes its update"));
  }
  if (clip.sequence == 0) return absl::InvalidArgumentError("sequence: 0; the first update is 1");
  if (clip.sequence > version + 1) {
    return absl::OutOfRangeError(absl::StrCat("sequence ", clip.sequence, ": ", config.Name(), " is at version ",
                                              version, "; pull its values and continue from there"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<OpenStep::Complete>> OpenStep::Clip(const Frame& clip) {
  const PartitionConfig& config = copy_.config;
  CAIRN_RETURN_IF_ERROR(CheckClip(clip));
  if (clip.sequence <= copy_.state.version || !updates_.empty()) return std::nullopt;
  if (!measured_) {
    return absl::AbortedError(absl::StrCat(config.Name(), ": the sum of update ", clip.sequence,
                                           " is not here, or not complete; push again"));
  }
  if (clip.norms_xxh3 != HashOfNorms(measured_->entry.norms())) {
    return absl::AbortedError(absl::StrCat(config.Name(),
                                           ": the factors are of other norms than those of the sum of update ",
                                           clip.sequence, " that is here (norms_xxh3); push again"));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<double> factors, DecodeFactors(clip.scalars, measured_->spanning));
  CAIRN_ASSIGN_OR_RETURN(const bool finite, FiniteBy(factors));
  MeasuredSum sum = *std::exchange(measured_, std::nullopt);
  sum.entry.set_norms(sum.entry.norms() + clip.scalars);
  size_t i = 0;
  for (const ClipScope& scope : config.clip_scopes) {
    if (scope.whole()) continue;
    if (!sum.gradient.empty()) config.kind->Scale(scope, factors[i], sum.gradient);
    ++i;
  }
  return MakeComplete(std::move(sum.entry), std::move(sum.gradient), finite);
}

// Whether the measured sum may be applied, according to the factors of a CLIP.
absl::StatusOr<bool> OpenStep::FiniteBy(absl::Span<const double> factors) const {
  const PartitionConfig& config = copy_.config;
  if (!config.loss_scale || config.clip_scopes.back().whole()) return true;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<NormRecord> records, DecodeNorms(measured_->entry.norms()));
  const double factor = factors.back();
  const bool own = records.back().squares.finite();
  if (factor == 0 || (factor == 1 && own)) return factor == 1;
  return absl::InvalidArgumentError(absl::StrCat("scalars: factor ", factor,
                                                 " of whether the gradient is finite; that of ", config.Name(),
                                                 own ? " is: send 0 or 1" : " is not: send 0"));
}

Frame OpenStep::MakeNorms(uint64_t request_id) const {
  Frame f = copy_.MakeFrame(v1::ExchangeFrame::NORMS, request_id);
  f.version = copy_.state.version;
  f.sequence = measured_->entry.sequence();
  f.scalars = measured_->entry.norms();
  return f;
}

void OpenStep::Forget() {
  pending_ = PendingSums(copy_.config.replicas);
  terms_.reset();
  measured_.reset();
}

}  // namespace cairn
