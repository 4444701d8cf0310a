#include <algorithm>
#include <string>
#include <utility>

#include "common/base/limits.h"
#include "coordinator/core/devices.h"
#include "coordinator/core/evaluations.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// If an evaluator does not answer, the checkpoint is retried, or a newer one is used.
constexpr absl::Duration kEvaluatorTimeout = absl::Hours(1);
// A checkpoint that could not be evaluated this often is skipped.

bool Evaluated(const v1::JobStatus& status, int64_t step) {
  return std::any_of(status.validations().begin(), status.validations().end(),
                     [&](const v1::StepValidation& v) { return v.step() == step; });
}

}  // namespace

void Evaluations::TickEvaluators() {
  if (nodes_.Connected(v1::EVALUATOR).empty()) return;
  for (auto& [id, job] : jobs_.all()) {
    if (job.status.spec().validation_by() == v1::BY_EVALUATOR) FollowCheckpoints(job);
  }
}

// One checkpoint of a job at a time: the oldest that still exists and has not been evaluated.
void Evaluations::FollowCheckpoints(Job& job) {
  for (const auto& [request_id, evaluation] : evaluations_) {
    if (evaluation.asked.by_evaluator && evaluation.asked.job == job.id()) return;
  }
  if (evaluations_.size() >= static_cast<size_t>(options_.evaluations_max)) return;
  const v1::CheckpointInfo* next = nullptr;
  for (const v1::CheckpointInfo& info : job.status.checkpoints()) {
    const auto failures = job.outputs.evaluations.failures.find(info.step());
    const bool given_up =
        failures != job.outputs.evaluations.failures.end() && failures->second >= kEvaluatorFailuresMax;
    if (info.best() || given_up || Evaluated(job.status, info.step())) continue;
    if (next == nullptr || info.step() < next->step()) next = &info;
  }
  if (next == nullptr || job.status.data().validation_examples() == 0) return;
  Evaluation evaluation;
  evaluation.asked.job = job.id();
  evaluation.asked.split = v1::VALIDATION;
  evaluation.asked.weights = next->path();
  evaluation.asked.by_evaluator = true;
  evaluation.asked.step = next->step();
  evaluation.asked.deadline = step_.now() + kEvaluatorTimeout;
  const uint64_t request_id = step_.NextRequestId();
  evaluations_[request_id] = std::move(evaluation);
  CutIntoShards(request_id, job.status.data().validation_examples());
}

void Evaluations::OnCheckpointEvaluated(const Evaluation& evaluation, const absl::Status& status) {
  Job* job = jobs_.Find(evaluation.asked.job);
  if (job == nullptr) return;
  if (!status.ok()) {
    // That newer checkpoints replaced it is already known.
    const auto& known = job->status.checkpoints();
    const bool there =
        std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.path() == evaluation.asked.weights; });
    if (!there) return;
    ++job->outputs.evaluations.failures[evaluation.asked.step];
    return step_.Warn(OfJob(job->id()), "%s was not evaluated: %s", evaluation.asked.weights, status.message());
  }
  if (Evaluated(job->status, evaluation.asked.step)) return;
  v1::StepValidation validation;
  validation.set_step(evaluation.asked.step);
  *validation.mutable_sums() = evaluation.result.sums();
  validation.set_checkpoint(evaluation.asked.weights);
  AddStepValidation(std::move(validation), job->status);
  job->outputs.evaluations.failures.erase(evaluation.asked.step);
  jobs_.Save(*job);
}

// A note for users who wait for validations.
std::string Evaluations::EvaluatorsText(const Job& job) const {
  if (job.status.spec().validation_by() != v1::BY_EVALUATOR || !job.active()) return "";
  const bool any = std::any_of(nodes_.all().begin(), nodes_.all().end(), [](const auto& n) {
    return n.second.role == v1::EVALUATOR && n.second.alive() && n.second.connected();
  });
  if (any) return candidates_.NobodyComputesText(job, v1::EVALUATOR);
  return "no evaluator is there: checkpoints are not evaluated; start one with cairn-worker --role evaluator";
}

}  // namespace cairn
