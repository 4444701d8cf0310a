#include "coordinator/core/reported_figures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/model/fault_check.h"
#include "common/model/metric_sums.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// The interval of requests for figures.
constexpr absl::Duration kFiguresAskedEvery = absl::Milliseconds(200);

}  // namespace

ReportedFigures::ReportedFigures(const v1::JobStatus& status)
    : synchronous_(IsSynchronous(status.spec())),
      metrics_(MetricSumCount(status.spec())),
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
  NoteAnswer(report, now);
  return true;
}

void ReportedFigures::NoteAnswer(const v1::FiguresReport& report, absl::Time now) {
  if (!report.has_answers()) {  // a ps of an earlier version: the age of its report is unknown
    answered_ = now;
    return;
  }
  const auto answered =
      std::find_if(asked_.begin(), asked_.end(), [&](const auto& q) { return q.first == report.answers(); });
  if (answered == asked_.end()) return;  // requested by another coordinator, or answered by a later report
  answered_ = answered->second;
  asked_.erase(asked_.begin(), answered);
}

void ReportedFigures::Forget() {
  newest_.reset();
  answered_ = absl::InfinitePast();
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
  return !Complete(epoch) && answered_ - passed_at < kFiguresWaitMax;
}

bool ReportedFigures::MayAsk(absl::Time now) const {
  return asked_.empty() || now - asked_.back().second >= kFiguresAskedEvery;
}

void ReportedFigures::Asked(uint64_t question, absl::Time now) {
  asked_.emplace_back(question, now);
  if (asked_.size() > kFiguresQuestionsMax) asked_.pop_front();
}

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
