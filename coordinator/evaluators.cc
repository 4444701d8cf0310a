// Evaluators: jobs with validation_by BY_EVALUATOR have their checkpoints evaluated beside the training, one after the
// other, by nodes of that role. The training waits for none of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

// An evaluator that does not answer: the checkpoint is tried again, or a newer one.
constexpr absl::Duration kEvaluatorTimeout = absl::Hours(1);
// A checkpoint that could not be evaluated so often is passed over.
constexpr int kFailuresMax = 3;

bool Evaluated(const v1::JobStatus& status, int64_t step) {
  return std::any_of(status.validations().begin(), status.validations().end(),
                     [&](const v1::StepValidation& v) { return v.step() == step; });
}

}  // namespace

void ClusterCore::TickEvaluators() {
  if (members_.Connected(v1::EVALUATOR).empty()) return;
  for (auto& [id, job] : jobs_) {
    if (job.status.spec().validation_by() == v1::BY_EVALUATOR) FollowCheckpoints(job);
  }
}

// One checkpoint of a job at a time: the oldest that is still there and was not evaluated.
void ClusterCore::FollowCheckpoints(Job& job) {
  for (const auto& [request_id, evaluation] : evaluations_) {
    if (evaluation.by_evaluator && evaluation.job == job.id()) return;
  }
  if (evaluations_.size() >= static_cast<size_t>(options_.evaluations_max)) return;
  const v1::CheckpointInfo* next = nullptr;
  for (const v1::CheckpointInfo& info : job.status.checkpoints()) {
    const auto failures = job.evaluator_failures.find(info.step());
    const bool given_up = failures != job.evaluator_failures.end() && failures->second >= kFailuresMax;
    if (info.best() || given_up || Evaluated(job.status, info.step())) continue;
    if (next == nullptr || info.step() < next->step()) next = &info;
  }
  if (next == nullptr || job.status.data().validation_examples() == 0) return;
  Evaluation evaluation;
  evaluation.job = job.id();
  evaluation.split = v1::VALIDATION;
  evaluation.weights = next->path();
  evaluation.by_evaluator = true;
  evaluation.step = next->step();
  evaluation.deadline = now_ + kEvaluatorTimeout;
  const uint64_t request_id = NextRequestId();
  evaluations_[request_id] = std::move(evaluation);
  CutIntoShards(request_id, job.status.data().validation_examples());
}

void ClusterCore::OnCheckpointEvaluated(const Evaluation& evaluation, const absl::Status& status) {
  Job* job = Find(evaluation.job);
  if (job == nullptr) return;
  if (!status.ok()) {
    // Where newer checkpoints took its place, that is no news.
    const auto& known = job->status.checkpoints();
    const bool there =
        std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.path() == evaluation.weights; });
    if (!there) return;
    ++job->evaluator_failures[evaluation.step];
    return Warn("job %d: %s was not evaluated: %s", job->id(), evaluation.weights, status.message());
  }
  if (Evaluated(job->status, evaluation.step)) return;
  v1::StepValidation validation;
  validation.set_step(evaluation.step);
  *validation.mutable_sums() = evaluation.result.sums();
  validation.set_checkpoint(evaluation.weights);
  AddStepValidation(std::move(validation), job->status);
  job->evaluator_failures.erase(evaluation.step);
  StoreJob(*job);
}

// What a user should know who waits for validations.
std::string ClusterCore::EvaluatorsText(const Job& job) const {
  if (job.status.spec().validation_by() != v1::BY_EVALUATOR || !job.active()) return "";
  const bool any = std::any_of(members_.nodes().begin(), members_.nodes().end(), [](const auto& n) {
    return n.second.role == v1::EVALUATOR && n.second.alive && n.second.connected();
  });
  if (any) return NobodyComputesText(job, v1::EVALUATOR);
  return "no evaluator is there: checkpoints are not evaluated; start one with cairn-worker --role evaluator";
}

}  // namespace cairn
