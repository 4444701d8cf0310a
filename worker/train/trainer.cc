#include "worker/train/trainer.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/log.h"

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
      digests_(std::make_shared<DigestTaker>(job, services.files, services.send)),
      driver_(job, CoreOptions(job, services), *this),
      joins_(services.pool->backend(), [this](const replica::GradientSummed& event) { driver_.Post(event); }) {}

// ---- what the coordinator says ----

bool Trainer::Assign(const v1::AssignReplicas& message) {
  std::shared_ptr<const Prepared> prepared;
  {
    absl::MutexLock lock(&mutex_);
    prepared = prepared_;
  }
  const std::optional<ReplicaDriver::Change> change = driver_.Assign(message);
  if (!change) return false;
  if (prepared != nullptr) {
    for (const int32_t replica : change->left) prepared->batches->Forget(ReplicaId(replica));
  }
  return change->news;
}

void Trainer::MarkBest(const v1::MarkBest& command) {
  if (Assignment assignment = driver_.assignment(); assignment != nullptr)
    checkpointer_->MarkBest(command, std::move(assignment));
}

void Trainer::ReportAgain() {
  if (std::optional<v1::JobError> failed = error()) {
    v1::NodeMessage message;
    *message.mutable_job_error() = *std::move(failed);
    services_.send(std::move(message));
  }
  checkpointer_->ReportAgain();
  driver_.Post(replica::ReportAgain{});
}

void Trainer::Drop() {
  driver_.Drop();
  std::shared_ptr<const Prepared> prepared;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  for (const auto& [work, weights] : weights_) weights->Stop();
  joins_.Clear();
  prepared.swap(prepared_);
}

// ---- ReplicaEnvironment ----

void Trainer::BeginAssignment(const Assignment& assignment) {
  {
    absl::MutexLock lock(&mutex_);
    seats_.Keep(assignment->replicas());
  }
  checkpointer_->Know(assignment);
}

void Trainer::SendToPs(replica::Send send) {
  services_.connections->Send(send.address, std::move(send.frame),
                              [self = shared_from_this(), request = send.request](absl::StatusOr<Frame> frame) {
                                if (!frame.ok())
                                  LogDebug("job %d: request %d: %s", self->job_.value, request,
                                           frame.status().ToString());
                                self->driver_.Post(replica::Reply{request, std::move(frame)});
                              });
}

void Trainer::Compute(replica::Compute compute) {
  const int home = HomeOf(compute.replica);
  services_.pool->Submit(
      ComputePool::Priority::kTraining,
      [self = shared_from_this(), compute = std::move(compute)](ProgramCache& programs) mutable {
        self->RunCompute(std::move(compute), programs);
      },
      home);
}

void Trainer::Evaluate(replica::Evaluate evaluate) {
  const int home = HomeOf(evaluate.replica);
  services_.pool->Submit(
      ComputePool::Priority::kTraining,
      [self = shared_from_this(), evaluate = std::move(evaluate)](ProgramCache& programs) mutable {
        self->RunEvaluate(std::move(evaluate), programs);
      },
      home);
}

void Trainer::GiveWeights(const replica::WeightsHere& here) {
  if (const auto weights = Weights(here.work)) weights->Here(here.partition);
}

void Trainer::StopWork(uint64_t work) {
  if (const auto weights = Weights(work)) weights->Stop();
}

void Trainer::TakeCheckpoint(replica::TakeCheckpoint take, const Assignment& assignment) {
  CAIRN_CHECK(assignment != nullptr, "a core asks for nothing before it is assigned");
  const uint64_t number = take.number;
  checkpointer_->Take(std::move(take), assignment,
                      [self = shared_from_this(), number](replica::CheckpointDone::Outcome outcome) {
                        self->driver_.Post(replica::CheckpointDone{number, outcome});
                      });
}

void Trainer::Report(v1::ReplicaReport report) {
  v1::NodeMessage message;
  *message.mutable_replica_report() = std::move(report);
  services_.send(std::move(message));
}

void Trainer::WakeAt(absl::Time at) {
  const absl::Duration delay = std::max(absl::ZeroDuration(), at - Now());
  services_.timers->PostAfter(delay, [weak = weak_from_this(), at] {
    if (const std::shared_ptr<Trainer> self = weak.lock()) self->driver_.WakeUp(at);
  });
}

void Trainer::Fail(const std::string& message) {
  LogError("job %d: %s", job_.value, message);
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [work, weights] : weights_) weights->Stop();
  }
  v1::NodeMessage out;
  *out.mutable_job_error() = *error();
  services_.send(std::move(out));
}

// ---- what others ask ----

std::optional<v1::JobError> Trainer::error() const {
  const std::optional<std::string> failure = driver_.failure();
  if (!failure) return std::nullopt;
  v1::JobError error;
  error.set_job_id(job_.value);
  if (const Assignment assignment = driver_.assignment()) error.set_generation(assignment->generation());
  error.set_message(*failure);
  error.set_worker_only(data_trouble_ || device_trouble_);
  return error;
}

std::optional<v1::JobProgress> Trainer::progress() const {
  std::optional<v1::JobProgress> progress = driver_.progress();
  if (!progress) return progress;
  progress->set_replica_ms(replica_ms_.load(std::memory_order_relaxed));
  progress->set_loss_scale(loss_scale_.load(std::memory_order_relaxed));
  return progress;
}

std::vector<std::string> Trainer::addresses() const {
  std::vector<std::string> addresses;
  const Assignment assignment = driver_.assignment();
  if (assignment == nullptr) return addresses;
  for (const v1::Route& route : assignment->routes()) addresses.push_back(route.address());
  return addresses;
}

std::shared_ptr<const JobModel> Trainer::model() const {
  absl::MutexLock lock(&mutex_);
  return prepared_ == nullptr ? nullptr : prepared_->model;
}

}  // namespace cairn
