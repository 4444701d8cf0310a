#include "worker/trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "worker/accumulate.h"
#include "worker/backend/gradient_tracker.h"
#include "worker/data/augment.h"

namespace cairn {
namespace {

// Of the newest step in the mean time of a replica's step.
constexpr double kReplicaTimeWeight = 0.1;

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

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

void Trainer::Assign(const v1::AssignReplicas& message) {
  std::shared_ptr<const Prepared> prepared;
  std::vector<int32_t> left;
  {
    absl::MutexLock lock(&mutex_);
    if (assignment_ != nullptr && message.assignment() < assignment_->assignment()) return;
    if (assignment_ != nullptr) left.assign(assignment_->replicas().begin(), assignment_->replicas().end());
    assignment_ = std::make_shared<const v1::AssignReplicas>(message);
    seats_.Keep(message.replicas());
    prepared = prepared_;
  }
  checkpointer_->Know(message);
  Post(replica::Assign{message});
  if (prepared == nullptr) return;
  for (int32_t replica : left) {
    const auto& now = message.replicas();
    if (std::find(now.begin(), now.end(), replica) == now.end()) prepared->batches->Forget(ReplicaId(replica));
  }
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
      step_.store(core_.step(), std::memory_order_relaxed);
    }
    batch.clear();
    absl::MutexLock lock(&queue_mutex_);
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
  const int64_t step = step_.load(std::memory_order_relaxed);
  if (step < 0) return std::nullopt;
  v1::JobProgress progress;
  progress.set_job_id(job_.value);
  progress.set_step(step);
  progress.set_replica_ms(replica_ms_.load(std::memory_order_relaxed));
  progress.set_loss_scale(loss_scale_.load(std::memory_order_relaxed));
  absl::MutexLock lock(&mutex_);
  if (assignment_ != nullptr) progress.set_generation(assignment_->generation());
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

// ---- on a slot ----

absl::StatusOr<std::shared_ptr<const Trainer::Prepared>> Trainer::Prepare() {
  {
    absl::MutexLock lock(&mutex_);
    if (prepared_ != nullptr) return prepared_;
  }
  absl::MutexLock preparing(&preparing_);
  std::shared_ptr<const v1::AssignReplicas> assignment;
  {
    absl::MutexLock lock(&mutex_);
    if (prepared_ != nullptr) return prepared_;
    assignment = assignment_;
  }
  CAIRN_CHECK(assignment != nullptr, "a slot computes only what was assigned");
  if (dropped_) return absl::CancelledError("the job was dropped");
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const Prepared> prepared, OpenAll(*assignment));
  absl::MutexLock lock(&mutex_);
  if (!dropped_) prepared_ = prepared;
  return prepared;
}

absl::StatusOr<std::shared_ptr<const Trainer::Prepared>> Trainer::OpenAll(const v1::AssignReplicas& assignment) {
  const v1::JobSpec& spec = assignment.spec();
  const v1::DataInfo& info = assignment.data();
  auto prepared = std::make_shared<Prepared>();
  CAIRN_ASSIGN_OR_RETURN(prepared->model, MakeJobModel(spec));
  const Graph& graph = *prepared->model->graph;
  for (const v1::Route& route : assignment.routes()) prepared->ranges.push_back(route.range());
  std::sort(prepared->ranges.begin(), prepared->ranges.end(),
            [](const auto& a, const auto& b) { return a.begin() < b.begin(); });
  if (graph.space_size() != static_cast<int64_t>(prepared->ranges.back().end())) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", graph.space_size(), " numbers here, the routes ",
                                                   prepared->ranges.back().end(),
                                                   "; coordinator and worker are of different versions"));
  }
  data_trouble_ = true;  // until the data set is known to be the job's
  CAIRN_ASSIGN_OR_RETURN(prepared->dataset, services_.datasets->Open(spec.data(), graph.input_shape(), false));
  const auto train = static_cast<uint64_t>(prepared->dataset->size(v1::TRAIN));
  const auto validation = static_cast<uint64_t>(prepared->dataset->size(v1::VALIDATION));
  if (train != info.train_examples() || validation != info.validation_examples()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.path: ", spec.data().path(), " holds ", train, " training and ", validation,
                     " validation examples on this ", "worker, but ", info.train_examples(), " and ",
                     info.validation_examples(), " where the job was checked; all workers must see the same data"));
  }
  if (prepared->dataset->example_size() != NumElements(graph.input_shape())) {
    return absl::InvalidArgumentError(absl::StrCat("data.path: an example has ", prepared->dataset->example_size(),
                                                   " numbers, the model's input is ", ToString(graph.input_shape())));
  }
  data_trouble_ = false;
  BatchSourceOptions options;
  options.seed = spec.seed();
  options.shuffle = !spec.data().has_shuffle() || spec.data().shuffle();
  options.decode_threads = services_.decode_threads;
  if (spec.data().has_prefetch()) options.prefetch = spec.data().prefetch();
  CAIRN_ASSIGN_OR_RETURN(options.augmenter, Augmenter::Make(spec.data(), graph.input_shape(), spec.seed()));
  prepared->plan = StepPlan::Of(spec, static_cast<int64_t>(train));
  prepared->batches = std::make_shared<BatchSource>(prepared->dataset, prepared->plan, options);
  return prepared;
}

void Trainer::RunCompute(replica::Compute compute, ProgramCache& programs) {
  if (dropped_) return;
  const uint64_t work = compute.work;
  absl::StatusOr<BatchSums> sums = Train(compute, programs);
  if (!sums.ok() && !absl::IsCancelled(sums.status())) {
    if (absl::IsUnimplemented(sums.status()) || absl::IsResourceExhausted(sums.status())) device_trouble_ = true;
    sums = Annotate(sums.status(), absl::StrCat("step ", compute.step, ", replica ", compute.replica.value));
  }
  compute = {};  // the core may write to the buffers from now on
  services_.pool->Ending(programs.slot());
  Post(replica::Computed{work, std::move(sums)});
}

int Trainer::HomeOf(ReplicaId replica) const {
  absl::MutexLock lock(&mutex_);
  return seats_.HomeOf(replica);
}

// While this batch's gradients come.
void Trainer::BringNext(const replica::Compute& compute, int slot, const Prepared& prepared, Program& program) {
  std::optional<ReplicaSeats::Turn> turn;
  {
    absl::MutexLock lock(&mutex_);
    turn = seats_.NextOn(slot, compute.replica);
  }
  if (!turn) return;  // it was taken away meanwhile
  if (const auto next = prepared.batches->Peek(turn->step, turn->replica)) program.Prefetch(*next);
}

void Trainer::NoteReplicaTime(absl::Duration time) {
  const double ms = absl::ToDoubleMilliseconds(time);
  const double mean = replica_ms_.load(std::memory_order_relaxed);
  replica_ms_.store(mean == 0 ? ms : mean + kReplicaTimeWeight * (ms - mean), std::memory_order_relaxed);
}

void Trainer::NoteLossScale(const replica::Compute& compute) {
  const float before = loss_scale_.exchange(compute.loss_scale, std::memory_order_relaxed);
  if (before == compute.loss_scale) return;
  if (before == 0) {
    LogInfo("job %d: step %d: loss scale %.0f", job_.value, compute.step, compute.loss_scale);
  } else {
    LogInfo("job %d: step %d: loss scale %.0f, was %.0f%s", job_.value, compute.step, compute.loss_scale, before,
            compute.loss_scale < before ? ": a gradient was not finite" : "");
  }
}

absl::StatusOr<BatchSums> Trainer::Train(const replica::Compute& compute, ProgramCache& programs) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const Prepared> prepared, Prepare());
  CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(prepared->model));
  const absl::Time start = services_.clock->Now();
  const auto batch = [&](int32_t piece) { return prepared->batches->Get(compute.step, compute.replica, piece); };
  StepInfo info;
  info.seed = prepared->model->spec.seed();
  info.step = static_cast<uint64_t>(compute.step);
  info.replica = static_cast<uint32_t>(compute.replica.value);
  if (const v1::DataType wire = prepared->model->spec.wire_dtype(); wire != v1::DATA_TYPE_UNSPECIFIED) info.values = wire;  // what ps answer in
  if (compute.loss_scale > 0) info.loss_scale = compute.loss_scale;
  NoteLossScale(compute);
  GradientTracker tracker(prepared->ranges);
  Buffer gradient = compute.gradient;
  {
    absl::MutexLock lock(&mutex_);
    seats_.Take(compute.replica, programs.slot(), compute.step);
  }
  bool ahead = true;
  const auto bring_next = [&] {
    if (std::exchange(ahead, false)) BringNext(compute, programs.slot(), *prepared, *program);
  };
  const auto train = [&] {
    return TrainPieces(*program, prepared->plan, batch, info, compute.values.floats(), gradient.mutable_floats(),
                       [&](int64_t begin, int64_t end) {
                         tracker.Final(begin, end, [&](uint32_t first, uint32_t last) {
                           Post(replica::GradientReady{compute.work, first, last});
                         });
                         bring_next();
                       });
  };
  const auto train_joined = [&]() -> absl::StatusOr<BatchSums> {
    CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<GradientJoin> join, joins_.Enter(compute.joint, prepared->model->graph, prepared->ranges));
    CAIRN_ASSIGN_OR_RETURN(const Batch examples, batch(0));
    auto sums = program->TrainJoined(examples, info, compute.values.floats(), join, info.replica - compute.joint->node.first,
                                     [&](int64_t, int64_t) { bring_next(); });
    joins_.Leave(compute.joint->number);
    return sums;
  };
  absl::StatusOr<BatchSums> sums = compute.joint != nullptr ? train_joined()
                                   : compute.by_layer       ? ByLayer(compute.work, *prepared, *program, train)
                                                            : train();
  NoteReplicaTime(services_.clock->Now() - start);
  return sums;
}

void Trainer::RunEvaluate(replica::Evaluate evaluate, ProgramCache& programs) {
  if (dropped_) return;
  const uint64_t work = evaluate.work;
  absl::StatusOr<BatchSums> sums = EvaluateShare(evaluate, programs);
  if (!sums.ok() && !absl::IsCancelled(sums.status())) {
    if (absl::IsUnimplemented(sums.status()) || absl::IsResourceExhausted(sums.status())) device_trouble_ = true;
    sums = Annotate(sums.status(), absl::StrCat("validation after step ", evaluate.step));
  }
  evaluate = {};
  services_.pool->Ending(programs.slot());
  Post(replica::Evaluated{work, std::move(sums)});
}

absl::StatusOr<BatchSums> Trainer::EvaluateShare(const replica::Evaluate& evaluate, ProgramCache& programs) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const Prepared> prepared, Prepare());
  CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(prepared->model));
  const auto score = [&] {
    return EvaluateBlocks(
        *program, *prepared->model, *prepared->dataset, v1::VALIDATION, evaluate.places, [](int64_t i) { return i; },
        evaluate.values.floats(), dropped_);
  };
  return evaluate.by_layer ? ByLayer(evaluate.work, *prepared, *program, score) : score();
}

std::shared_ptr<LayerWeights> Trainer::Weights(uint64_t work) const {
  absl::MutexLock lock(&mutex_);
  const auto it = weights_.find(work);
  return it == weights_.end() ? nullptr : it->second;
}

// Runs `compute` with the program asking for its values layer by layer.
absl::StatusOr<BatchSums> Trainer::ByLayer(uint64_t work, const Prepared& prepared, Program& program,
                                           const std::function<absl::StatusOr<BatchSums>()>& compute) {
  const auto weights =
      std::make_shared<LayerWeights>(work, prepared.ranges, [this](replica::Event event) { Post(std::move(event)); });
  {
    absl::MutexLock lock(&mutex_);
    if (dropped_) return absl::CancelledError("the job was dropped");
    weights_[work] = weights;
  }
  const absl::Status usable = program.UseWeightSource(weights.get());
  absl::StatusOr<BatchSums> sums = usable.ok() ? compute() : absl::StatusOr<BatchSums>(usable);
  program.UseWeightSource(nullptr).IgnoreError();
  absl::MutexLock lock(&mutex_);
  weights_.erase(work);
  return sums;
}

absl::StatusOr<BatchSums> EvaluateBlocks(Program& program, const JobModel& model, const Dataset& dataset,
                                         v1::Split split, PlaceRange places,
                                         const std::function<int64_t(int64_t)>& index, absl::Span<const float> values,
                                         const std::atomic<bool>& stop) {
  const auto example_size = static_cast<size_t>(dataset.example_size());
  const auto label_size = static_cast<size_t>(dataset.label_size());
  const int64_t block = std::min(model.options.batch_max, places.size());
  Buffer inputs = Buffer::Allocate(static_cast<size_t>(block) * example_size * sizeof(float));
  Buffer labels = Buffer::Allocate(static_cast<size_t>(block) * label_size * sizeof(float));
  BatchSums total;
  total.metrics.resize(model.options.metrics.size());
  for (int64_t begin = places.begin; begin < places.end; begin += block) {
    if (stop) return absl::CancelledError("stopped");
    const auto examples = static_cast<size_t>(std::min(block, places.end - begin));
    for (size_t i = 0; i < examples; ++i) {
      CAIRN_RETURN_IF_ERROR(dataset.Read(split, index(begin + static_cast<int64_t>(i)),
                                         inputs.mutable_floats().data() + i * example_size,
                                         labels.mutable_floats().data() + i * label_size));
    }
    Batch batch;
    batch.examples = static_cast<int64_t>(examples);
    batch.label_size = dataset.label_size();
    batch.inputs = inputs.Slice(0, examples * example_size * sizeof(float));
    batch.labels = labels.Slice(0, examples * label_size * sizeof(float));
    CAIRN_ASSIGN_OR_RETURN(const BatchSums sums, program.Evaluate(batch, values));
    total.examples += sums.examples;
    total.loss += sums.loss;
    for (size_t m = 0; m < std::min(total.metrics.size(), sums.metrics.size()); ++m)
      total.metrics[m] += sums.metrics[m];
  }
  return total;
}

}  // namespace cairn
