#include "coordinator/core/validation_shares.h"

#include <algorithm>
#include <utility>

#include "common/model/epoch_figures.h"
#include "common/model/metric_sums.h"
#include "common/model/step_plan.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// If asynchronous replicas are far apart, or a share was lost, the oldest epoch is given up.

}  // namespace

ValidationShares::ValidationShares(const v1::JobStatus& status)
    : replicas_(status.spec().replicas()),
      metrics_(MetricSumCount(status.spec())),
      freq_(std::max(1, status.spec().validation_freq())),
      examples_(status.spec().validation_by() == v1::BY_EVALUATOR
                    ? 0
                    : static_cast<int64_t>(status.data().validation_examples())) {}

bool ValidationShares::AddTo(Sums& sums, const v1::ReplicaReport& report) const {
  sums.validated.resize(static_cast<size_t>(replicas_), false);
  if (sums.validated[report.replica()]) return false;
  sums.validated[report.replica()] = true;
  AddSums(report.validation(), metrics_, sums.sums);
  return true;
}

const v1::MetricSums* ValidationShares::Add(const v1::ReplicaReport& report, absl::Time now) {
  const int epoch = report.validation_epoch();
  Sums& e = epochs_[epoch];
  if (!AddTo(e, report)) return nullptr;
  if (Complete(epoch)) e.complete_since = std::min(e.complete_since, now);
  return &e.sums;
}

bool ValidationShares::AddOfStep(const v1::ReplicaReport& report, v1::JobStatus& status) {
  const int64_t step = report.validation_step();
  for (const v1::StepValidation& known : status.validations()) {
    if (known.step() == step) return false;
  }
  Sums& open = steps_[step];
  if (!AddTo(open, report)) return false;
  if (AllValidated(open.validated)) {
    v1::StepValidation whole;
    whole.set_step(step);
    *whole.mutable_sums() = open.sums;
    steps_.erase(step);
    AddStepValidation(std::move(whole), status);
  } else if (steps_.size() > kOpenValidationsMax) {
    steps_.erase(steps_.begin());
  }
  return true;
}

bool ValidationShares::Complete(int epoch) const {
  if (!Expected(epoch)) return true;
  const auto found = epochs_.find(epoch);
  return AllValidated(found == epochs_.end() ? std::vector<bool>() : found->second.validated);
}

absl::Time ValidationShares::complete_since(int epoch) const {
  const auto found = epochs_.find(epoch);
  return found == epochs_.end() ? absl::InfiniteFuture() : found->second.complete_since;
}

v1::MetricSums ValidationShares::sums(int epoch) const {
  const auto found = epochs_.find(epoch);
  return found == epochs_.end() ? v1::MetricSums() : found->second.sums;
}

bool ValidationShares::AllValidated(const std::vector<bool>& validated) const {
  for (int32_t r = 0; r < replicas_; ++r) {
    const bool done = static_cast<size_t>(r) < validated.size() && validated[r];
    if (!done && Share(examples_, r, replicas_).size() > 0) return false;
  }
  return true;
}

}  // namespace cairn
