#include "worker/report_book.h"

#include <algorithm>
#include <utility>

namespace cairn {
namespace {

void AddSums(const BatchSums& sums, v1::MetricSums* into) {
  into->set_examples(into->examples() + sums.examples);
  into->set_loss(into->loss() + sums.loss);
  while (into->metrics_size() < static_cast<int>(sums.metrics.size())) into->add_metrics(0);
  for (size_t i = 0; i < sums.metrics.size(); ++i) {
    into->set_metrics(static_cast<int>(i), into->metrics(static_cast<int>(i)) + sums.metrics[i]);
  }
}

}  // namespace

void ReportBook::AddStep(ReplicaId replica, int64_t step, const BatchSums& sums, int64_t steps_per_epoch,
                         absl::Time now) {
  Entry& entry = entries_[replica];
  if (entry.open &&
      (entry.report.last_step() + 1 != step || entry.report.first_step() / steps_per_epoch != step / steps_per_epoch)) {
    Close(entry);
  }
  if (!entry.open) {
    entry.open = true;
    entry.due = now + interval_;
    entry.report.Clear();
    entry.report.set_replica(replica.value);
    entry.report.set_first_step(step);
    deadline_ = std::min(deadline_, entry.due);
  }
  entry.report.set_last_step(step);
  AddSums(sums, entry.report.mutable_train());
  if (std::exchange(entry.alone, false) || (step + 1) % steps_per_epoch == 0) Close(entry);
}

void ReportBook::AddOpenStep(ReplicaId replica, int64_t step, const BatchSums& sums) {
  Entry& entry = entries_[replica];
  Close(entry);
  v1::ReplicaReport report;
  report.set_replica(replica.value);
  report.set_first_step(step);
  report.set_last_step(step);
  AddSums(sums, report.mutable_train());
  ready_.push_back(std::move(report));
  entry.alone = true;
}

void ReportBook::AddValidation(ReplicaId replica, int32_t epoch, const BatchSums& sums) {
  v1::ReplicaReport report;
  report.set_replica(replica.value);
  report.set_validation_epoch(epoch);
  AddSums(sums, report.mutable_validation());
  ready_.push_back(std::move(report));
}

void ReportBook::Finish(ReplicaId replica, absl::Time now) {
  Entry& entry = entries_[replica];
  if (entry.finished) return;
  Close(entry);
  entry.finished = true;
  entry.finished_due = now;
  deadline_ = std::min(deadline_, now);
}

void ReportBook::Remove(ReplicaId replica) {
  const auto it = entries_.find(replica);
  if (it == entries_.end()) return;
  Close(it->second);
  entries_.erase(it);
}

void ReportBook::Close(Entry& entry) {
  if (!entry.open) return;
  entry.open = false;
  ready_.push_back(std::move(entry.report));
  entry.report.Clear();
}

std::vector<v1::ReplicaReport> ReportBook::Take(absl::Time now) {
  if (now >= deadline_) {
    for (auto& [replica, entry] : entries_) {
      if (entry.open && now >= entry.due) Close(entry);
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
    if (entry.open) deadline_ = std::min(deadline_, entry.due);
    if (entry.finished) deadline_ = std::min(deadline_, entry.finished_due);
  }
}

}  // namespace cairn
