#include "worker/report_book.h"

#include <algorithm>
#include <utility>

#include "common/base/exact_sum.h"

namespace cairn {
namespace {

void AddSums(const BatchSums& sums, v1::MetricSums* into) {
  into->set_examples(into->examples() + sums.examples);
  into->set_loss(into->loss() + RoundForSum(sums.loss));
  while (into->metrics_size() < static_cast<int>(sums.metrics.size())) into->add_metrics(0);
  for (size_t i = 0; i < sums.metrics.size(); ++i) {
    into->set_metrics(static_cast<int>(i), into->metrics(static_cast<int>(i)) + RoundForSum(sums.metrics[i]));
  }
}

// The figures of the steps after those of `into`.
void Append(const v1::ReplicaReport& from, v1::ReplicaReport& into) {
  into.set_last_step(from.last_step());
  v1::MetricSums& sums = *into.mutable_train();
  sums.set_examples(sums.examples() + from.train().examples());
  sums.set_loss(sums.loss() + from.train().loss());
  for (int i = 0; i < std::min(sums.metrics_size(), from.train().metrics_size()); ++i) {
    sums.set_metrics(i, sums.metrics(i) + from.train().metrics(i));
  }
  into.set_staleness_sum(into.staleness_sum() + from.staleness_sum());
  into.set_staleness_count(into.staleness_count() + from.staleness_count());
  into.set_staleness_max(std::max(into.staleness_max(), from.staleness_max()));
}

}  // namespace

void ReportBook::AddStep(ReplicaId replica, int64_t step, const BatchSums& sums, int64_t steps_per_epoch,
                         absl::Time now, const Staleness& staleness) {
  steps_per_epoch_ = steps_per_epoch;
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
  entry.report.set_staleness_sum(entry.report.staleness_sum() + staleness.sum);
  entry.report.set_staleness_count(entry.report.staleness_count() + staleness.count);
  entry.report.set_staleness_max(std::max(entry.report.staleness_max(), staleness.max));
  if (std::exchange(entry.alone, false) || (step + 1) % steps_per_epoch == 0) Close(entry);
}

void ReportBook::AddOpenStep(ReplicaId replica, int64_t step, const BatchSums& sums, int64_t steps_per_epoch) {
  steps_per_epoch_ = steps_per_epoch;
  Entry& entry = entries_[replica];
  Close(entry);
  v1::ReplicaReport report;
  report.set_replica(replica.value);
  report.set_first_step(step);
  report.set_last_step(step);
  AddSums(sums, report.mutable_train());
  Keep(std::move(report));
  entry.alone = true;
}

void ReportBook::AddValidation(ReplicaId replica, int32_t epoch, const BatchSums& sums) {
  v1::ReplicaReport report;
  report.set_replica(replica.value);
  report.set_validation_epoch(epoch);
  AddSums(sums, report.mutable_validation());
  Keep(std::move(report));
}

void ReportBook::AddStepValidation(ReplicaId replica, int64_t step, const BatchSums& sums) {
  v1::ReplicaReport report;
  report.set_replica(replica.value);
  report.set_validation_step(step);
  AddSums(sums, report.mutable_validation());
  Keep(std::move(report));
}

bool ReportBook::Finished(ReplicaId replica) const {
  const auto it = entries_.find(replica);
  return it != entries_.end() && it->second.finished;
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
  Keep(std::move(entry.report));
  entry.report.Clear();
}

void ReportBook::Keep(v1::ReplicaReport report) {
  ready_.push_back(report);
  const auto epoch_of = [this](const v1::ReplicaReport& r) {
    if (r.has_train()) return r.first_step() / steps_per_epoch_;
    return r.validation_step() > 0 ? (r.validation_step() - 1) / steps_per_epoch_ : int64_t{r.validation_epoch()};
  };
  if (const int64_t epoch = epoch_of(report); epoch > newest_epoch_) {
    newest_epoch_ = epoch;
    for (auto& [replica, reports] : kept_) {
      std::erase_if(reports, [&](const v1::ReplicaReport& r) { return epoch_of(r) + 1 < newest_epoch_; });
    }
  }
  std::vector<v1::ReplicaReport>& reports = kept_[ReplicaId(report.replica())];
  reports.push_back(std::move(report));
  if (reports.size() <= kKeptOfReplica) return;
  std::vector<v1::ReplicaReport> merged;
  for (size_t i = 0; i < reports.size(); ++i) {
    v1::ReplicaReport* last = merged.empty() ? nullptr : &merged.back();
    const bool joins = last != nullptr && i % 2 == 1 && last->has_train() && reports[i].has_train() &&
                       last->last_step() + 1 == reports[i].first_step() && epoch_of(*last) == epoch_of(reports[i]);
    if (joins) {
      Append(reports[i], *last);
    } else {
      merged.push_back(std::move(reports[i]));
    }
  }
  if (merged.size() > kKeptOfReplica) merged.erase(merged.begin());  // none has a neighbour
  reports = std::move(merged);
}

void ReportBook::ReportAgain() {
  ready_.clear();  // part of what is kept
  for (const auto& [replica, reports] : kept_) ready_.insert(ready_.end(), reports.begin(), reports.end());
}

void ReportBook::Forget(ReplicaId replica, int64_t step, int64_t steps_per_epoch) {
  const auto it = kept_.find(replica);
  if (it == kept_.end()) return;
  const auto gone = [&](const v1::ReplicaReport& r) {
    if (r.has_train()) return r.last_step() >= step;
    return r.validation_step() > 0 ? r.validation_step() > step : (r.validation_epoch() + 1) * steps_per_epoch > step;
  };
  std::erase_if(it->second, gone);
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
