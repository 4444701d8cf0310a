// PartitionCore and the figures of the training: they come with pushes, are counted with updates, and the coordinator
// is told of the sums.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/partition_core.h"

namespace cairn {
namespace {

// Between two reports as updates come. Shorter: fresher figures, more messages to the coordinator.
constexpr absl::Duration kFiguresInterval = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<v1::EpochFigures> PartitionCore::FiguresOf(const Frame& frame) const {
  v1::EpochFigures figures;
  if (frame.figures.empty()) return figures;
  if (!config_.keeps_figures()) {
    return absl::InvalidArgumentError(
        absl::StrCat("figures: ", config_.Name(), " keeps none; push them to the job's first partition"));
  }
  if (!figures.ParseFromString(frame.figures)) return absl::InvalidArgumentError("figures: they are no EpochFigures");
  CAIRN_RETURN_IF_ERROR(CheckFigures(figures, config_.metrics));
  int32_t first = state_.figures.empty() ? figures.epoch() : state_.figures[0].epoch();
  for (const InFlight& update : in_flight_) {
    if (update.entry.has_figures()) first = std::min(first, update.entry.figures().epoch());
  }
  if (!EpochIsOpen(first, figures.epoch(), config_.metrics)) {
    return absl::UnavailableError(absl::StrCat(
        config_.Name(), ": figures of epoch ", figures.epoch(), ", but the coordinator has not stored those of epoch ",
        first, " yet, and ", OpenEpochsMax(config_.metrics), " epochs are kept at most; retry"));
  }
  const uint64_t version = state_.version + in_flight_.size();
  const bool alone = config_.mode != UpdateMode::kSynchronous;
  const uint64_t staleness = alone && version > frame.version ? version - frame.version : 0;
  figures.set_staleness_sum(staleness);
  figures.set_staleness_max(staleness);
  figures.set_staleness_count(alone ? 1 : 0);
  return figures;
}

// After every event. What the primary has not settled may be lost with it, and a job that trains no more has been
// counted.
void PartitionCore::TellFigures(absl::Time now, PartitionEffects& effects) {
  if (!config_.keeps_figures() || config_.backup || config_.keep || config_.ended || fenced_ || !Settled()) return;
  if (!figures_wanted_ && state_.version == figures_told_) return;
  if (!figures_wanted_ && now < figures_at_ + kFiguresInterval) {
    effects.wake_at = std::min(effects.wake_at.value_or(absl::InfiniteFuture()), figures_at_ + kFiguresInterval);
    return;
  }
  figures_wanted_ = false;
  figures_told_ = state_.version;
  figures_at_ = now;
  v1::FiguresReport& report = effects.figures.emplace();
  report.set_job_id(config_.job.value);
  report.set_generation(config_.generation.value);
  report.set_version(state_.version);
  *report.mutable_epochs() = state_.figures;
}

}  // namespace cairn
