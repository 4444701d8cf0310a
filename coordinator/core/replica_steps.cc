#include "coordinator/core/replica_steps.h"

#include <limits>
#include <utility>

#include "common/model/fault_check.h"

namespace cairn {
namespace {

// If a worker's "finished" was lost with its session, it is inferred from the worker's heartbeats after this long.
constexpr absl::Duration kFinishedByHeartbeat = absl::Seconds(5);

// Examples in a step of one replica, averaged over an epoch: the last batch is short if the epoch passes through the
// data once.
double StepExamples(const v1::JobStatus& status) {
  const double steps = static_cast<double>(std::max<int64_t>(1, status.steps_per_epoch()));
  const double batch = static_cast<double>(status.spec().batch_size()) * std::max(1, status.spec().accumulate_steps());
  const double examples = static_cast<double>(status.data().train_examples());
  const bool once = examples > batch * (steps - 1) && examples < batch * steps;
  return (once ? examples / steps : batch) / std::max(1, status.spec().replicas());
}

}  // namespace

ReplicaSteps::ReplicaSteps(const v1::JobStatus& status, std::vector<int64_t> next, std::vector<bool> finished,
                           absl::Time now)
    : total_steps_(status.total_steps()),
      synchronous_(IsSynchronous(status.spec())),
      step_examples_(StepExamples(status)),
      next_(std::move(next)),
      finished_(std::move(finished)),
      last_advance_(now) {
  const size_t replicas = static_cast<size_t>(status.spec().replicas());
  next_.resize(replicas, 0);
  reached_.resize(replicas, 0);
  complete_since_.resize(replicas, absl::InfiniteFuture());
  finished_.resize(replicas, false);
  heard_.resize(replicas, true);
  Recount();
  rate_.Restart(now, ExamplesDone());
}

bool ReplicaSteps::Report(int32_t replica, int64_t last_step, absl::Time now) {
  const bool news = last_step >= next_[replica];
  if (news) {
    const int64_t before = ReachedBy(replica);
    next_[replica] = last_step + 1;
    NoteAdvance(replica, before);
    last_advance_ = now;
  }
  Measure(replica, now);
  return news;
}

bool ReplicaSteps::Finish(int32_t replica) {
  if (finished_[replica]) return false;
  finished_[replica] = true;
  const int64_t before = ReachedBy(replica);
  next_[replica] = total_steps_;
  NoteAdvance(replica, before);
  return true;
}

void ReplicaSteps::Reached(const std::vector<int32_t>& replicas, int64_t step, absl::Time now) {
  for (int32_t r : replicas) {
    if (r < 0 || r >= count()) continue;
    const int64_t before = ReachedBy(r);
    if (step > before) last_advance_ = now;
    reached_[r] = std::max(reached_[r], std::min(step, total_steps_));
    NoteAdvance(r, before);
    Measure(r, now);
    if (step < total_steps_ || finished_[r]) continue;
    complete_since_[r] = std::min(complete_since_[r], now);
    if (now - complete_since_[r] >= kFinishedByHeartbeat) finished_[r] = true;
  }
}

void ReplicaSteps::RollBack(int64_t step, absl::Time now) {
  for (int32_t r = 0; r < count(); ++r) {
    next_[r] = std::min(next_[r], step);
    reached_[r] = std::min(reached_[r], step);
    complete_since_[r] = absl::InfiniteFuture();
    finished_[r] = false;
  }
  Recount();
  last_advance_ = now;
  if (!synchronous_) heard_.assign(heard_.size(), false);  // they continue from what the partitions have
  rate_.Restart(now, ExamplesDone());
}

std::vector<int32_t> ReplicaSteps::Slowest() const {
  const int64_t slowest = step();
  std::vector<int32_t> result;
  for (int32_t r = 0; r < count(); ++r) {
    if (ReachedBy(r) == slowest) result.push_back(r);
  }
  return result;
}

bool ReplicaSteps::all_finished() const {
  return std::all_of(finished_.begin(), finished_.end(), [](bool f) { return f; });
}

// before: ReachedBy, before the change.
void ReplicaSteps::NoteAdvance(int32_t replica, int64_t before) {
  const int64_t after = ReachedBy(replica);
  done_ += after - before;
  if (after < before || (after > before && before == slowest_ && --at_slowest_ == 0)) Recount();
}

void ReplicaSteps::Recount() {
  done_ = 0;
  slowest_ = std::numeric_limits<int64_t>::max();
  for (int32_t r = 0; r < count(); ++r) {
    const int64_t reached = ReachedBy(r);
    done_ += reached;
    if (reached < slowest_) at_slowest_ = 0;
    slowest_ = std::min(slowest_, reached);
    at_slowest_ += reached == slowest_;
  }
}

// Call after the replica reported its step.
void ReplicaSteps::Measure(int32_t replica, absl::Time now) {
  if (heard_[replica]) return rate_.Note(now, ExamplesDone());
  heard_[replica] = true;
  rate_.Restart(now, ExamplesDone());
}

}  // namespace cairn
