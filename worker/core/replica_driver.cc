#include "worker/core/replica_driver.h"

#include <algorithm>
#include <utility>

#include "common/base/overloaded.h"

namespace cairn {

ReplicaDriver::ReplicaDriver(JobId job, const ReplicaCoreOptions& options, ReplicaEnvironment& environment)
    : job_(job), environment_(environment), core_(options) {}

std::optional<ReplicaDriver::Change> ReplicaDriver::Assign(const v1::AssignReplicas& message) {
  const auto assigned = std::make_shared<v1::AssignReplicas>(message);
  Change change;
  {
    absl::MutexLock lock(&mutex_);
    if (assignment_ != nullptr) {
      if (message.assignment() < assignment_->assignment()) return std::nullopt;
      const auto &before = assignment_->replicas(), &now = message.replicas();
      change.news = message.generation() != assignment_->generation() ||
                    !std::equal(before.begin(), before.end(), now.begin(), now.end());
      for (const int32_t replica : before) {
        if (std::find(now.begin(), now.end(), replica) == now.end()) change.left.push_back(replica);
      }
      // What the job began with stays, as in the core.
      *assigned->mutable_spec() = assignment_->spec();
      *assigned->mutable_data() = assignment_->data();
    }
    assignment_ = assigned;
  }
  environment_.BeginAssignment(assigned);
  Post(replica::Assign{message});
  return change;
}

void ReplicaDriver::Post(replica::Event event) {
  std::vector<replica::Event> batch;
  {
    absl::MutexLock lock(&mutex_);
    queue_.push_back(std::move(event));
    if (driving_) return;
    driving_ = true;
    batch.swap(queue_);
  }
  while (true) {
    for (replica::Event& each : batch) CarryOut(core_.Step(std::move(each), environment_.Now()));
    batch.clear();
    absl::MutexLock lock(&mutex_);
    progress_ = core_.progress();
    if (queue_.empty()) {
      driving_ = false;
      return;
    }
    batch.swap(queue_);
  }
}

void ReplicaDriver::CarryOut(replica::Effects effects) {
  if (dropped()) return;
  for (replica::Effect& effect : effects) {
    std::visit(Overloaded{
                   [&](replica::Send& send) { environment_.SendToPs(std::move(send)); },
                   [&](replica::Compute& compute) { environment_.Compute(std::move(compute)); },
                   [&](replica::Evaluate& evaluate) { environment_.Evaluate(std::move(evaluate)); },
                   [&](replica::WeightsHere& here) { environment_.GiveWeights(here); },
                   [&](replica::StopWork& stop) { environment_.StopWork(stop.work); },
                   [&](replica::TakeCheckpoint& take) { environment_.TakeCheckpoint(std::move(take), assignment()); },
                   [&](replica::TakeDigest& take) { environment_.TakeDigest(std::move(take)); },
                   [&](replica::Report& report) { environment_.Report(std::move(report.report)); },
                   [&](replica::SetTimer& timer) { environment_.WakeAt(timer.at); },
                   [&](replica::Fail& fail) {
                     const std::string why = fail.message.empty() ? "failed without a reason" : fail.message;
                     {
                       absl::MutexLock lock(&mutex_);
                       failure_ = why;
                     }
                     environment_.Fail(why);
                   },
               },
               effect);
  }
}

void ReplicaDriver::WakeUp(absl::Time at) {
  if (dropped()) return;
  if (environment_.Now() < at) return environment_.WakeAt(at);  // the two clocks may differ slightly
  Post(replica::Timer{});
}

void ReplicaDriver::Drop() {
  dropped_ = true;
  Post(replica::Drop{});
}

ReplicaDriver::Assignment ReplicaDriver::assignment() const {
  absl::MutexLock lock(&mutex_);
  return assignment_;
}

std::optional<v1::JobProgress> ReplicaDriver::progress() const {
  absl::MutexLock lock(&mutex_);
  return progress_;
}

v1::HeldReplicas ReplicaDriver::held() const {
  const Assignment assigned = assignment();
  v1::HeldReplicas held;
  held.set_job_id(job_.value);
  if (assigned == nullptr) return held;
  held.set_generation(assigned->generation());
  *held.mutable_replicas() = assigned->replicas();
  return held;
}

std::optional<std::string> ReplicaDriver::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

}  // namespace cairn
