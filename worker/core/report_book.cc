#include "worker/core/report_book.h"

#include <algorithm>
#include <utility>

#include "common/base/exact_sum.h"

namespace cairn {

v1::MetricSums ToMetricSums(const BatchSums& sums) {
  v1::MetricSums out;
  out.set_examples(sums.examples);
  out.set_loss(RoundForSum(sums.loss));
  out.set_loss_rest(sums.loss_rest);
  for (const double metric : sums.metrics) out.add_metrics(RoundForSum(metric));
  const std::vector<double>& rest = sums.metrics_rest;
  if (std::any_of(rest.begin(), rest.end(), [](double r) { return r != 0; })) {
    out.mutable_metrics_rest()->Assign(rest.begin(), rest.end());
  }
  return out;
}

void ReportBook::AddStep(ReplicaId replica, int64_t step, int64_t steps_per_epoch, absl::Time now) {
  steps_per_epoch_ = steps_per_epoch;
  Entry& entry = entries_[replica];
  if (!entry.step) {
    entry.due = now + interval_;
    deadline_ = std::min(deadline_, entry.due);
  }
  entry.step = step;
  if ((step + 1) % steps_per_epoch == 0) Tell(replica, entry);
}

void ReportBook::AddValidation(ReplicaId replica, int32_t epoch, const BatchSums& sums) {
  v1::ReplicaReport report;
  report.set_replica(replica.value);
  report.set_validation_epoch(epoch);
  *report.mutable_validation() = ToMetricSums(sums);
  Keep(std::move(report));
}

void ReportBook::AddStepValidation(ReplicaId replica, int64_t step, const BatchSums& sums) {
  v1::ReplicaReport report;
  report.set_replica(replica.value);
  report.set_validation_step(step);
  *report.mutable_validation() = ToMetricSums(sums);
  Keep(std::move(report));
}

bool ReportBook::Finished(ReplicaId replica) const {
  const auto it = entries_.find(replica);
  return it != entries_.end() && it->second.finished;
}

void ReportBook::Finish(ReplicaId replica, absl::Time now) {
  Entry& entry = entries_[replica];
  if (entry.finished) return;
  Tell(replica, entry);
  entry.finished = true;
  entry.finished_due = now;
  deadline_ = std::min(deadline_, now);
}

void ReportBook::Remove(ReplicaId replica) {
  const auto it = entries_.find(replica);
  if (it == entries_.end()) return;
  Tell(replica, it->second);
  entries_.erase(it);
}

void ReportBook::Tell(ReplicaId replica, Entry& entry) {
  if (!entry.step) return;
  v1::ReplicaReport& report = ready_.emplace_back();
  report.set_replica(replica.value);
  report.set_last_step(*std::exchange(entry.step, std::nullopt));
}

int64_t ReportBook::EpochOf(const v1::ReplicaReport& validation) const {
  if (validation.validation_step() > 0) return (validation.validation_step() - 1) / steps_per_epoch_;
  return validation.validation_epoch();
}

void ReportBook::Keep(v1::ReplicaReport report) {
  ready_.push_back(report);
  if (const int64_t epoch = EpochOf(report); epoch > newest_epoch_) {
    newest_epoch_ = epoch;
    for (auto& [replica, reports] : kept_) {
      std::erase_if(reports, [&](const v1::ReplicaReport& r) { return EpochOf(r) + 1 < newest_epoch_; });
    }
  }
  std::vector<v1::ReplicaReport>& reports = kept_[ReplicaId(report.replica())];
  reports.push_back(std::move(report));
  if (reports.size() > kKeptOfReplica) reports.erase(reports.begin());
}

void ReportBook::ReportAgain() {
  // They are contained in what is kept.
  std::erase_if(ready_, [](const v1::ReplicaReport& r) { return r.has_validation(); });
  for (const auto& [replica, reports] : kept_) ready_.insert(ready_.end(), reports.begin(), reports.end());
}

void ReportBook::Forget(ReplicaId replica, int64_t step, int64_t steps_per_epoch) {
  const auto it = kept_.find(replica);
  if (it == kept_.end()) return;
  std::erase_if(it->second, [&](const v1::ReplicaReport& r) {
    return r.validation_step() > 0 ? r.validation_step() > step : (r.validation_epoch() + 1) * steps_per_epoch > step;
  });
}

std::vector<v1::ReplicaReport> ReportBook::Take(absl::Time now) {
  if (now >= deadline_) {
    for (auto& [replica, entry] : entries_) {
      if (entry.step && now >= entry.due) Tell(replica, entry);
      if (entry.finished && now >= entry.finished_due) {
        v1::ReplicaReport report;
        report.set_replica(replica.value);
        report.set_finished(true);
        ready_.push_back(std::move(report));
        entry.finished_due = now + finished_interval_;
      }
    }
    FindDeadline();
  }
  return std::exchange(ready_, {});
}

void ReportBook::FindDeadline() {
  deadline_ = absl::InfiniteFuture();
  for (const auto& [replica, entry] : entries_) {
    if (entry.step) deadline_ = std::min(deadline_, entry.due);
    if (entry.finished) deadline_ = std::min(deadline_, entry.finished_due);
  }
}

}  // namespace cairn
