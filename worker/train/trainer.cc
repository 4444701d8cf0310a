#include "worker/train/trainer.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/overloaded.h"

namespace cairn {
namespace {

ReplicaCoreOptions CoreOptions(JobId job, const TrainerServices& services) {
  ReplicaCoreOptions options;
  options.joins = services.pool->backend().joins();
  options.jitter_seed = job.value;
  return options;
}

}  // namespace

Trainer::Trainer(JobId job, const TrainerServices& services)
    : job_(job),
      services_(services),
      checkpointer_(std::make_shared<Checkpointer>(
          job, CheckpointerServices{services.connections, services.files, services.clock, services.send})),
      core_(CoreOptions(job, services)),
      joins_(services.pool->backend(), [this](replica::GradientSummed event) { Post(std::move(event)); }) {}

// ---- the core ----

bool Trainer::Assign(const v1::AssignReplicas& message) {
  const auto assigned = std::make_shared<const v1::AssignReplicas>(message);
  std::shared_ptr<const Prepared> prepared;
  std::vector<int32_t> left;
  bool news = true;
  {
    absl::MutexLock lock(&mutex_);
    if (assignment_ != nullptr && message.assignment() < assignment_->assignment()) return false;
    if (assignment_ != nullptr) {
      left.assign(assignment_->replicas().begin(), assignment_->replicas().end());
      news = message.generation() != assignment_->generation() ||
             !std::equal(left.begin(), left.end(), message.replicas().begin(), message.replicas().end());
    }
    assignment_ = assigned;
    seats_.Keep(message.replicas());
    prepared = prepared_;
  }
  checkpointer_->Know(assigned);
  Post(replica::Assign{message});
  if (prepared == nullptr) return news;
  for (int32_t replica : left) {
    const auto& now = message.replicas();
    if (std::find(now.begin(), now.end(), replica) == now.end()) prepared->batches->Forget(ReplicaId(replica));
  }
  return news;
}

void Trainer::MarkBest(const v1::MarkBest& command) {
  std::shared_ptr<const v1::AssignReplicas> assignment;
  {
    absl::MutexLock lock(&mutex_);
    assignment = assignment_;
  }
  if (assignment != nullptr) checkpointer_->MarkBest(command, std::move(assignment));
}

void Trainer::ReportAgain() {
  if (std::optional<v1::JobError> failed = error()) {
    v1::NodeMessage message;
    *message.mutable_job_error() = *std::move(failed);
    services_.send(std::move(message));
  }
  checkpointer_->ReportAgain();
  Post(replica::ReportAgain{});
}

void Trainer::Drop() {
  dropped_ = true;
  Post(replica::Drop{});
  std::shared_ptr<const Prepared> prepared;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  for (const auto& [work, weights] : weights_) weights->Stop();
  joins_.Clear();
  prepared.swap(prepared_);
}

void Trainer::Post(replica::Event event) {
  std::vector<replica::Event> batch;
  {
    absl::MutexLock lock(&queue_mutex_);
    queue_.push_back(std::move(event));
    if (driving_) return;
    driving_ = true;
    batch.swap(queue_);
  }
  while (true) {
    for (replica::Event& each : batch) {
      CarryOut(core_.Step(std::move(each), services_.clock->Now()));
    }
    batch.clear();
    absl::MutexLock lock(&queue_mutex_);
    reached_ = core_.progress();
    if (queue_.empty()) {
      driving_ = false;
      return;
    }
    batch.swap(queue_);
  }
}

void Trainer::CarryOut(replica::Effects effects) {
  if (dropped_.load(std::memory_order_relaxed)) return;
  for (replica::Effect& effect : effects) {
    std::visit(Overloaded{
                   [&](replica::Send& send) { SendToPs(std::move(send)); },
                   [&](replica::Compute& compute) {
                     const int home = HomeOf(compute.replica);
                     services_.pool->Submit(
                         ComputePool::Priority::kTraining,
                         [self = shared_from_this(), compute = std::move(compute)](ProgramCache& programs) mutable {
                           self->RunCompute(std::move(compute), programs);
                         },
                         home);
                   },
                   [&](replica::Evaluate& evaluate) {
                     const int home = HomeOf(evaluate.replica);
                     services_.pool->Submit(
                         ComputePool::Priority::kTraining,
                         [self = shared_from_this(), evaluate = std::move(evaluate)](ProgramCache& programs) mutable {
                           self->RunEvaluate(std::move(evaluate), programs);
                         },
                         home);
                   },
                   [&](replica::WeightsHere& here) {
                     if (const auto weights = Weights(here.work)) weights->Here(here.partition);
                   },
                   [&](replica::StopWork& stop) {
                     if (const auto weights = Weights(stop.work)) weights->Stop();
                   },
                   [&](replica::TakeCheckpoint& take) { TakeCheckpoint(std::move(take)); },
                   [&](replica::Report& report) {
                     v1::NodeMessage message;
                     *message.mutable_replica_report() = std::move(report.report);
                     services_.send(std::move(message));
                   },
                   [&](replica::SetTimer& timer) { StartTimer(timer.at); },
                   [&](replica::Fail& fail) { Failed(fail.message); },
               },
               effect);
  }
}

void Trainer::SendToPs(replica::Send send) {
  services_.connections->Send(send.address, std::move(send.frame),
                              [self = shared_from_this(), request = send.request](absl::StatusOr<Frame> frame) {
                                if (!frame.ok())
                                  LogDebug("job %d: request %d: %s", self->job_.value, request,
                                           frame.status().ToString());
                                self->Post(replica::Reply{request, std::move(frame)});
                              });
}

void Trainer::TakeCheckpoint(replica::TakeCheckpoint take) {
  std::shared_ptr<const v1::AssignReplicas> assignment;
  {
    absl::MutexLock lock(&mutex_);
    assignment = assignment_;
  }
  CAIRN_CHECK(assignment != nullptr, "a core asks for nothing before it is assigned");
  const uint64_t number = take.number;
  checkpointer_->Take(std::move(take), std::move(assignment),
                      [self = shared_from_this(), number](replica::CheckpointDone::Outcome outcome) {
                        self->Post(replica::CheckpointDone{number, outcome});
                      });
}

void Trainer::StartTimer(absl::Time at) {
  const absl::Duration delay = std::max(absl::ZeroDuration(), at - services_.clock->Now());
  services_.timers->PostAfter(delay, [weak = weak_from_this(), at] {
    const std::shared_ptr<Trainer> self = weak.lock();
    if (self == nullptr || self->dropped_) return;
    if (self->services_.clock->Now() < at) {
      self->StartTimer(at);  // the two clocks differ a little
    } else {
      self->Post(replica::Timer{});
    }
  });
}

void Trainer::Failed(const std::string& message) {
  LogError("job %d: %s", job_.value, message);
  {
    absl::MutexLock lock(&mutex_);
    failure_ = message.empty() ? "failed without a reason" : message;
    for (const auto& [work, weights] : weights_) weights->Stop();
  }
  v1::NodeMessage out;
  *out.mutable_job_error() = *error();
  services_.send(std::move(out));
}

// ---- what others ask ----

std::optional<v1::JobError> Trainer::error() const {
  absl::MutexLock lock(&mutex_);
  if (failure_.empty()) return std::nullopt;
  v1::JobError error;
  error.set_job_id(job_.value);
  if (assignment_ != nullptr) error.set_generation(assignment_->generation());
  error.set_message(failure_);
  error.set_worker_only(data_trouble_ || device_trouble_);
  return error;
}

std::optional<v1::JobProgress> Trainer::progress() const {
  std::optional<v1::JobProgress> progress;
  {
    absl::MutexLock lock(&queue_mutex_);
    progress = reached_;
  }
  if (!progress) return progress;
  progress->set_replica_ms(replica_ms_.load(std::memory_order_relaxed));
  progress->set_loss_scale(loss_scale_.load(std::memory_order_relaxed));
  return progress;
}

v1::HeldReplicas Trainer::held() const {
  v1::HeldReplicas held;
  held.set_job_id(job_.value);
  absl::MutexLock lock(&mutex_);
  if (assignment_ == nullptr) return held;
  held.set_generation(assignment_->generation());
  *held.mutable_replicas() = assignment_->replicas();
  return held;
}

std::vector<std::string> Trainer::addresses() const {
  std::vector<std::string> addresses;
  absl::MutexLock lock(&mutex_);
  if (assignment_ == nullptr) return addresses;
  for (const v1::Route& route : assignment_->routes()) addresses.push_back(route.address());
  return addresses;
}

std::shared_ptr<const JobModel> Trainer::model() const {
  absl::MutexLock lock(&mutex_);
  return prepared_ == nullptr ? nullptr : prepared_->model;
}

}  // namespace cairn
