#include "coordinator/core/reported_figures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/model/fault_check.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// Between two questions for figures.
constexpr absl::Duration kFiguresAskedEvery = absl::Milliseconds(200);
// An epoch whose figures its ps goes on to report without all its steps: they were pushed by a worker, or kept by a ps,
// that knew of none.

}  // namespace

ReportedFigures::ReportedFigures(const v1::JobStatus& status)
    : synchronous_(IsSynchronous(status.spec())),
      metrics_(status.spec().metrics_size()),
      steps_per_epoch_(std::max<int64_t>(1, status.steps_per_epoch())),
      epoch_replica_steps_(status.spec().replicas() * steps_per_epoch_) {}

absl::StatusOr<bool> ReportedFigures::Take(const v1::FiguresReport& report, const v1::JobStatus& status,
                                           absl::Time now) {
  CAIRN_RETURN_IF_ERROR(CheckEpochList(report.epochs(), metrics_));
  if (!report.epochs().empty() && report.epochs(report.epochs_size() - 1).epoch() >= status.spec().epochs()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "figures of epoch %d of %d", report.epochs(report.epochs_size() - 1).epoch(), status.spec().epochs()));
  }
  const auto place = [](const v1::FiguresReport& r) { return std::pair(r.generation(), r.version()); };
  if (newest_ && place(report) < place(*newest_)) return false;
  newest_ = report;
  taken_ = now;
  return true;
}

void ReportedFigures::Forget() {
  newest_.reset();
  taken_ = absl::InfinitePast();
}

const v1::EpochFigures* ReportedFigures::Of(int epoch) const {
  if (!newest_) return nullptr;
  const auto found = std::find_if(newest_->epochs().begin(), newest_->epochs().end(),
                                  [&](const auto& e) { return e.epoch() == epoch; });
  return found == newest_->epochs().end() ? nullptr : &*found;
}

bool ReportedFigures::Complete(int epoch) const {
  if (!newest_) return false;
  if (synchronous_) return newest_->version() >= static_cast<uint64_t>((epoch + 1) * steps_per_epoch_);
  const v1::EpochFigures* figures = Of(epoch);
  return figures != nullptr && figures->replica_steps() >= static_cast<uint64_t>(epoch_replica_steps_);
}

bool ReportedFigures::WaitsFor(int epoch, absl::Time passed_at) const {
  // A ps that has counted for so long since has no more: the job began with one that did not count.
  return !Complete(epoch) && taken_ - passed_at < kFiguresWaitMax;
}

bool ReportedFigures::MayAsk(absl::Time now) const { return now - asked_ >= kFiguresAskedEvery; }

const v1::MetricSums* ReportedFigures::Newest(int* epoch) const {
  if (!newest_ || newest_->epochs().empty()) return nullptr;
  const v1::EpochFigures& newest = *newest_->epochs().rbegin();
  *epoch = newest.epoch();
  return &newest.train();
}

double StalenessMean(const v1::EpochFigures& figures) {
  return figures.staleness_count() == 0
             ? 0
             : static_cast<double>(figures.staleness_sum()) / static_cast<double>(figures.staleness_count());
}

}  // namespace cairn
