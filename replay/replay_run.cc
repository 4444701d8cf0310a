#include "replay/replay_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "common/model/epoch_figures.h"
#include "common/model/epoch_rates.h"
#include "common/model/metric_sums.h"
#include "worker/core/report_book.h"
#include "worker/train/accumulate.h"

namespace cairn {

ReplayRun::ReplayRun(const v1::AssignReplicas& assignment, TrainingBatches batches, ReplayPartitions partitions,
                     ComputePool& pool)
    : assignment_(assignment),
      batches_(std::move(batches)),
      pool_(pool),
      partitions_(std::move(partitions)),
      driver_(JobId(assignment.job_id()), ReplicaCoreOptions(), *this) {}

absl::Status ReplayRun::Begin() {
  driver_.Assign(assignment_);
  return trouble_;
}

// The answers reach the core once it has sent all requests of this event.
void ReplayRun::SendToPs(replica::Send send) {
  send.frame.request_id = send.request;
  for (Frame& answer : partitions_.Handle(std::move(send.frame))) {
    const uint64_t request = answer.request_id;
    if (answer.kind == v1::ExchangeFrame::ERROR) {
      Note(answer.status);
      driver_.Post(replica::Reply{request, answer.status});
    } else {
      driver_.Post(replica::Reply{request, std::move(answer)});
    }
  }
}

void ReplayRun::Evaluate(replica::Evaluate) { Note(absl::InternalError("a replay has no validation")); }

absl::StatusOr<BatchSums> ReplayRun::ComputeOne(replica::Compute& compute, ProgramCache& programs) {
  CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(batches_.model));
  const PieceBatch batch = [&](int32_t piece) { return batches_.source->Get(compute.step, compute.replica, piece); };
  const StepInfo info = StepInfoOf(batches_.model->spec, compute.step, compute.replica, compute.loss_scale);
  return TrainPieces(*program, {batches_.plan, batch, info}, compute.values.floats(), compute.gradient.mutable_floats(),
                     [](int64_t, int64_t) {});
}

std::vector<absl::StatusOr<BatchSums>> ReplayRun::ComputeAll(std::vector<replica::Compute>& computes) {
  std::vector<absl::StatusOr<BatchSums>> results(computes.size(), absl::CancelledError("not computed"));
  absl::BlockingCounter left(static_cast<int>(computes.size()));
  for (size_t i = 0; i < computes.size(); ++i) {
    pool_.Submit(ComputePool::Priority::kTraining, [&, i](ProgramCache& programs) {
      results[i] = ComputeOne(computes[i], programs);
      left.DecrementCount();
    });
  }
  left.Wait();
  return results;
}

absl::StatusOr<ReplayedStep> ReplayRun::Next(const std::function<void(const ReplayedReplica&)>& on_replica) {
  CAIRN_RETURN_IF_ERROR(trouble_);
  std::vector<replica::Compute> computes = std::exchange(computes_, {});
  if (computes.empty()) return absl::InternalError("there is no step to compute");
  std::sort(computes.begin(), computes.end(), [](const auto& a, const auto& b) { return a.replica < b.replica; });
  ReplayedStep done;
  done.step = computes.front().step;
  done.before = computes.front().values;
  done.loss_scale = computes.front().loss_scale;
  EpochRates rates(assignment_.spec(), assignment_.steps_per_epoch());
  rates.Decide({assignment_.learning_rates().begin(), assignment_.learning_rates().end()});
  done.learning_rate = rates.At(done.step);
  partitions_.ForgetEpochs(static_cast<int32_t>(batches_.plan.EpochOf(done.step)));

  std::vector<absl::StatusOr<BatchSums>> results = ComputeAll(computes);
  const int metrics = MetricSumCount(assignment_.spec());
  done.sums.mutable_metrics()->Resize(metrics, 0);
  for (size_t i = 0; i < computes.size(); ++i) {
    replica::Compute& c = computes[i];
    if (!results[i].ok()) {
      return Annotate(results[i].status(), absl::StrCat("step ", done.step, ", replica ", c.replica.value));
    }
    AddSums(ToMetricSums(*results[i]), metrics, done.sums);
    if (on_replica != nullptr) on_replica({c.replica, c.step, c.loss_scale, c.values, c.gradient, *results[i]});
  }
  const auto partitions = static_cast<uint32_t>(assignment_.routes_size());
  for (size_t i = 0; i < computes.size(); ++i) {
    const uint64_t work = computes[i].work;
    computes[i] = {};  // the core may write to the buffers from now on
    driver_.Post(replica::GradientReady{work, 0, partitions});
    driver_.Post(replica::Computed{work, *std::move(results[i])});
  }
  CAIRN_RETURN_IF_ERROR(trouble_);
  if (!reached_ || reached_->step != done.step + 1) {
    return absl::InternalError(absl::StrCat("step ", done.step, " did not come to its end"));
  }
  done.after = std::exchange(reached_, std::nullopt)->values;
  return done;
}

}  // namespace cairn
