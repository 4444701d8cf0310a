#include "server/core/training_figures.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// The interval of reports while updates arrive. A shorter one gives fresher figures and more messages to the
// coordinator.
constexpr absl::Duration kFiguresInterval = absl::Milliseconds(200);

}  // namespace

absl::StatusOr<v1::EpochFigures> TrainingFigures::Of(const Frame& push) const {
  const PartitionConfig& config = copy_.config;
  v1::EpochFigures figures;
  if (push.figures.empty()) return figures;
  if (!config.keeps_figures()) {
    return absl::InvalidArgumentError(
        absl::StrCat("figures: ", config.Name(), " keeps none; push them to the job's first partition"));
  }
  if (!figures.ParseFromString(push.figures))
    return absl::InvalidArgumentError("figures: not a valid EpochFigures message");
  CAIRN_RETURN_IF_ERROR(CheckFigures(figures, config.metrics));
  int32_t first = copy_.state.figures.empty() ? figures.epoch() : copy_.state.figures[0].epoch();
  for (const Updates::Update& update : updates_.under_way()) {
    if (update.entry.has_figures()) first = std::min(first, update.entry.figures().epoch());
  }
  if (!EpochIsOpen(first, figures.epoch(), config.metrics)) {
    return absl::UnavailableError(absl::StrCat(
        config.Name(), ": figures of epoch ", figures.epoch(), ", but the coordinator has not stored those of epoch ",
        first, " yet, and ", OpenEpochsMax(config.metrics), " epochs are kept at most; retry"));
  }
  const uint64_t version = updates_.accepted_version();
  const bool alone = config.mode != UpdateMode::kSynchronous;
  const uint64_t staleness = alone && version > push.version ? version - push.version : 0;
  figures.set_staleness_sum(staleness);
  figures.set_staleness_max(staleness);
  figures.set_staleness_count(alone ? 1 : 0);
  return figures;
}

void TrainingFigures::OnStored(const FiguresStoredEvent& event) {
  DropStored(event.epochs, copy_.state.figures);
  if (event.question != 0) question_ = event.question;
  wanted_ = true;
}

// If the job has ended training, its figures are complete.
void TrainingFigures::Tell() {
  const PartitionConfig& config = copy_.config;
  if (!config.keeps_figures() || config.backup || config.keep || config.ended) return;
  if (replication_.fenced() || !replication_.Settled()) return;
  if (!wanted_ && copy_.state.version == told_) return;
  if (!wanted_ && copy_.now < told_at_ + kFiguresInterval) return copy_.WakeAt(told_at_ + kFiguresInterval);
  wanted_ = false;
  told_ = copy_.state.version;
  told_at_ = copy_.now;
  v1::FiguresReport& report = copy_.effects.figures.emplace();
  report.set_job_id(config.job.value);
  report.set_generation(config.generation.value);
  report.set_version(copy_.state.version);
  *report.mutable_epochs() = copy_.state.figures;
  report.set_answers(question_);
}

}  // namespace cairn
