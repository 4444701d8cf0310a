#include "worker/node/worker_node.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/version.h"
#include "common/rpc/address.h"
#include "common/rpc/daemon.h"
#include "worker/checkpoint/job_checkpoints.h"
#include "worker/limits.h"
#include "worker/reports/model_saver.h"

namespace cairn {

absl::Status WorkerOptions::Validate() const {
  if (coordinator.empty()) return absl::InvalidArgumentError("--coordinator: missing; give host:port");
  CAIRN_RETURN_IF_ERROR(Annotate(ParseCoordinators(coordinator).status(), "--coordinator"));
  if (name.empty() || name.size() > 128) return absl::InvalidArgumentError("--name: give 1 to 128 characters");
  if (slots < 1 || slots > kWorkerSlotsMax) {
    return absl::InvalidArgumentError(absl::StrCat("--slots: ", slots, " is not in 1..", kWorkerSlotsMax));
  }
  if (decode_threads < 1 || decode_threads > 256) {
    return absl::InvalidArgumentError(absl::StrCat("--decode-threads: ", decode_threads, " is not in 1..256"));
  }
  return absl::OkStatus();
}

WorkerNode::WorkerNode(const WorkerOptions& options, std::unique_ptr<Backend> backend)
    : options_(options),
      backend_(std::move(backend)),
      incarnation_(RandomBits()),
      timers_("timers"),
      files_(&timers_, options.remote_files.get()),
      summaries_(options.host, &timing_.clock, [this](v1::NodeMessage message) { Send(std::move(message)); }),
      datasets_(timing_.clock, options.remote.get()),
      connections_(&timing_.trace, options.shared_memory, options.arena),
      pool_(options.slots, *backend_) {
  Commands::Services services;
  services.pool = &pool_;
  services.datasets = &datasets_;
  services.send = [this](v1::NodeMessage message) { Send(std::move(message)); };
  services.model_of = [this](uint64_t job_id) -> std::shared_ptr<const JobModel> {
    absl::MutexLock lock(&mutex_);
    const auto it = trainers_.find(job_id);
    return it == trainers_.end() ? nullptr : it->second->model();
  };
  services.is_idle = [this] {
    absl::MutexLock lock(&mutex_);
    return trainers_.empty();
  };
  services.decode_threads = options.decode_threads;
  services.remote = options.remote_files.get();
  commands_ = std::make_unique<Commands>(std::move(services));

  SessionCallbacks callbacks;
  callbacks.hello = [this] { return MakeHello(); };
  callbacks.heartbeat = [this] { return MakeHeartbeat(); };
  callbacks.on_message = [this](const v1::CoordinatorMessage& message) { OnMessage(message); };
  callbacks.on_connection = [this](bool up) { OnConnection(up); };
  callbacks.on_rejected = [](const absl::Status& status) {
    LogWarning("refused by the coordinator: %s", status.ToString());
  };
  callbacks.on_unreached = [this](const absl::Status& status) {
    LogWarning("no coordinator at %s, trying again: %s", options_.coordinator, status.message());
  };
  callbacks.trace = &timing_.trace;
  timers_.Post([this] { LookAtDevice(); });
  absl::MutexLock lock(&mutex_);
  session_ = std::make_shared<SessionClient>(options_.coordinator, std::move(callbacks));
}

WorkerNode::~WorkerNode() {
  std::shared_ptr<SessionClient> session;
  {
    absl::MutexLock lock(&mutex_);
    session = std::move(session_);
  }
  // A Send that still holds the session releases it immediately; the session must be destroyed here, not on that
  // thread.
  while (session.use_count() > 1) absl::SleepFor(absl::Milliseconds(1));
  session.reset();
  for (const std::shared_ptr<Trainer>& trainer : Trainers()) trainer->Drop();
  if (options_.remote != nullptr) options_.remote->Stop();  // nobody is told of it any more: no job fails by it
  if (options_.remote_files != nullptr) {                   // before the others, which may wait for a file from there
    files_.queues().AwaitIdle(kUploadsFinishMax);
    options_.remote_files->Stop();
  }
  commands_->Stop();
  pool_.Stop();
  connections_.Clear();
  files_.queues().Stop();  // finishes what is being written here
  summaries_.Stop();
  timers_.Stop();
}

void WorkerNode::Send(v1::NodeMessage message) {
  std::shared_ptr<SessionClient> session;
  {
    absl::MutexLock lock(&mutex_);
    session = session_;
  }
  if (session != nullptr) session->Send(std::move(message));
}

std::vector<std::shared_ptr<Trainer>> WorkerNode::Trainers() const {
  std::vector<std::shared_ptr<Trainer>> trainers;
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, trainer] : trainers_) trainers.push_back(trainer);
  return trainers;
}

// ---- the session ----

v1::Hello WorkerNode::MakeHello() {
  v1::Hello hello;
  hello.set_name(options_.name);
  hello.set_role(options_.role);
  hello.set_host(options_.host);
  hello.set_slots(options_.slots);
  hello.set_device(backend_->device());
  hello.set_fingerprint(backend_->fingerprint());
  hello.set_device_kind(backend_->kind());
  for (const v1::DataType compute : {v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16}) {
    if (backend_->Computes(compute)) hello.add_compute_dtypes(compute);
  }
  for (v1::ExternalProgram& program : backend_->programs()) *hello.add_programs() = std::move(program);
  hello.set_programs_only(!hello.programs().empty());
  hello.set_incarnation(incarnation_);
  hello.set_version(ProgramVersion());
  hello.set_interface(ClusterInterface());
  hello.set_fault(Fault());
  for (const std::shared_ptr<Trainer>& trainer : Trainers()) *hello.add_running() = trainer->held();
  return hello;
}

v1::Heartbeat WorkerNode::MakeHeartbeat() {
  datasets_.DropIdle();
  v1::Heartbeat heartbeat;
  heartbeat.set_memory_bytes(ResidentBytes());
  heartbeat.set_cpu_seconds(ProcessCpuSeconds());
  heartbeat.set_fault(Fault());
  for (const std::shared_ptr<Trainer>& trainer : Trainers()) {
    if (std::optional<v1::JobProgress> progress = trainer->progress()) *heartbeat.add_progress() = *progress;
  }
  return heartbeat;
}

// ---- a device that is lost ----

std::string WorkerNode::Fault() const {
  const absl::Status health = backend_->health();
  if (health.ok()) return "";
  return absl::StrCat(health.message(), "; the worker ends as soon as it has no replicas, and has to be started again");
}

void WorkerNode::SayDeviceTrouble() {
  if (backend_->health().ok()) return;  // another fault was reported
  v1::NodeMessage message;
  *message.mutable_heartbeat() = MakeHeartbeat();
  Send(std::move(message));
}

void WorkerNode::LookAtDevice() {
  const absl::Status health = backend_->health();
  const bool known = device_watch_.lost();
  const std::vector<std::shared_ptr<Trainer>> trainers = Trainers();
  const bool replicas =
      std::any_of(trainers.begin(), trainers.end(), [](const auto& t) { return t->held().replicas_size() > 0; });
  const bool end = device_watch_.Look(health, replicas, timing_.clock.Now());
  if (!known && device_watch_.lost())
    LogError("%s; the jobs continue elsewhere, and this process ends", health.message());
  if (end && options_.device_lost) return options_.device_lost();
  timers_.PostAfter(DeviceWatch::kLookEvery, [this] { LookAtDevice(); });
}

void WorkerNode::OnConnection(bool up) {
  if (!up) {
    LogInfo("lost the coordinator at %s; trying again", options_.coordinator);
    return;
  }
  LogInfo("joined the cluster at %s", options_.coordinator);
  for (const std::shared_ptr<Trainer>& trainer : Trainers()) {
    trainer->ReportAgain();
  }
}

void WorkerNode::OnMessage(const v1::CoordinatorMessage& message) {
  switch (message.kind_case()) {
    case v1::CoordinatorMessage::kAssignReplicas: return OnAssign(message.assign_replicas());
    case v1::CoordinatorMessage::kDropJob: return OnDrop(message.drop_job());
    case v1::CoordinatorMessage::kWriteSummaries: return summaries_.Write(message.write_summaries());
    case v1::CoordinatorMessage::kSaveModel: return OnSaveModel(message.save_model());
    case v1::CoordinatorMessage::kInspectData: return commands_->Inspect(message.inspect_data());
    case v1::CoordinatorMessage::kEvaluateShard: return commands_->Evaluate(message.evaluate_shard());
    case v1::CoordinatorMessage::kFinalize: return commands_->Finalize(message.finalize());
    case v1::CoordinatorMessage::kRestore: return commands_->Restore(message.restore());
    case v1::CoordinatorMessage::kMarkBest: return OnMarkBest(message.mark_best());
    case v1::CoordinatorMessage::kWelcome: return;  // handled by the session client
    default: LogWarning("a command that this worker does not know; is the coordinator newer?");
  }
}

void WorkerNode::OnAssign(const v1::AssignReplicas& message) {
  std::shared_ptr<Trainer> trainer;
  {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<Trainer>& place = trainers_[message.job_id()];
    if (place == nullptr) {
      files_.OnRequest(JobId(message.job_id()));
      TrainerServices services;
      services.pool = &pool_;
      services.connections = &connections_;
      services.datasets = &datasets_;
      services.timers = &timers_;
      services.files = &files_.queues();
      services.clock = &timing_.clock;
      services.trace = &timing_.trace;
      services.send = [this](v1::NodeMessage out) { Send(std::move(out)); };
      services.device_trouble = [this] { SayDeviceTrouble(); };
      services.decode_threads = options_.decode_threads;
      place = std::make_shared<Trainer>(JobId(message.job_id()), services);
    }
    trainer = place;
  }
  if (trainer->Assign(message)) {
    LogInfo("job %d: %d of %d replicas, generation %d", message.job_id(), message.replicas_size(),
            message.spec().replicas(), message.generation());
  }
  RetainConnections();
}

void WorkerNode::OnMarkBest(const v1::MarkBest& message) {
  std::shared_ptr<Trainer> trainer;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = trainers_.find(message.job_id());
    if (it != trainers_.end()) trainer = it->second;
  }
  if (trainer != nullptr) trainer->MarkBest(message);
}

// Runs after checkpoints that are being written, and before later ones: the checkpoint that it needs exists, and is not
// removed meanwhile. The job need not be here: where it was dropped, the file is not of what that drop ends.
void WorkerNode::OnSaveModel(const v1::SaveModel& message) {
  files_.OnRequest(JobId(message.job_id()));
  const std::vector<std::string> paths = {message.spec().checkpoints().dir(), message.path()};
  files_.queues().Post(JobId(message.job_id()), paths, [this, message](RemoteFiles* remote) {
    const absl::Status status = SaveModelFile(message, remote);
    v1::NodeMessage out;
    v1::ModelSaved& saved = *out.mutable_model_saved();
    saved.set_job_id(message.job_id());
    saved.set_step(message.step());
    saved.set_path(message.path());
    if (!status.ok()) saved.set_error(std::string(status.message()));
    Send(std::move(out));
  });
}

void WorkerNode::RemoveCheckpoints(const v1::DropJob& message) {
  if (!message.remove_checkpoints_of_job() || !message.spec().has_checkpoints()) return;
  const std::string& dir = message.spec().checkpoints().dir();
  files_.queues().Post(JobId(message.job_id()), {dir}, [message](RemoteFiles* remote) {
    const CheckpointOwner owner = CheckpointOwner::Of(message.job_id(), message.submitted_unix_ms(), message.spec());
    const auto own = CheckpointsIn(message.spec().checkpoints().dir(), owner, remote);
    absl::Status status = own->Open();
    if (absl::IsNotFound(status)) return;
    if (status.ok()) status = own->RemoveAll();
    if (!status.ok()) LogWarning("job %d: %s", message.job_id(), status.message());
  });
}

void WorkerNode::OnDrop(const v1::DropJob& message) {
  summaries_.Forget(message.job_id());
  DropTrainer(message.job_id());
  if (options_.remote_files != nullptr) files_.OnDrop(JobId(message.job_id()), message.cancelled());
  RemoveCheckpoints(message);
}

void WorkerNode::DropTrainer(uint64_t job_id) {
  std::shared_ptr<Trainer> trainer;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = trainers_.find(job_id);
    if (it == trainers_.end()) return;
    trainer = std::move(it->second);
    trainers_.erase(it);
  }
  LogInfo("job %d: dropped", job_id);
  trainer->Drop();
  trainer.reset();
  pool_.Purge();
  RetainConnections();
}

void WorkerNode::RetainConnections() {
  std::set<std::string> used;
  for (const std::shared_ptr<Trainer>& trainer : Trainers()) {
    for (std::string& address : trainer->addresses()) used.insert(std::move(address));
  }
  connections_.Retain(used);
}

}  // namespace cairn
