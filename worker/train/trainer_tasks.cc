// Trainer: what runs on slots: the job's data and model are opened, steps are computed and validations made.
#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "worker/backend/gradient_tracker.h"
#include "worker/limits.h"
#include "worker/train/accumulate.h"
#include "worker/train/evaluate_blocks.h"
#include "worker/train/trainer.h"
#include "worker/train/training_data.h"

namespace cairn {
namespace {

// Of the newest step in the mean time of a replica's step.
constexpr double kReplicaTimeWeight = 0.1;

// What another worker may well compute: here there is no way to, too little memory, or the device is lost.
bool OfThisDevice(const absl::Status& status) {
  return absl::IsUnimplemented(status) || absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Trainer::Prepared>> Trainer::Prepare() {
  {
    absl::MutexLock lock(&mutex_);
    if (prepared_ != nullptr) return prepared_;
  }
  absl::MutexLock preparing(&preparing_);
  {
    absl::MutexLock lock(&mutex_);
    if (prepared_ != nullptr) return prepared_;
  }
  const Assignment assignment = driver_.assignment();
  CAIRN_CHECK(assignment != nullptr, "a slot computes only what was assigned");
  if (driver_.dropped()) return absl::CancelledError("the job was dropped");
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const Prepared> prepared, OpenAll(*assignment));
  absl::MutexLock lock(&mutex_);
  if (!driver_.dropped()) prepared_ = prepared;
  return prepared;
}

absl::StatusOr<std::shared_ptr<const Trainer::Prepared>> Trainer::OpenAll(const v1::AssignReplicas& assignment) {
  const v1::JobSpec& spec = assignment.spec();
  const v1::DataInfo& info = assignment.data();
  auto prepared = std::make_shared<Prepared>();
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const JobModel> model, MakeJobModel(spec));
  for (const v1::Route& route : assignment.routes()) prepared->ranges.push_back(route.range());
  std::sort(prepared->ranges.begin(), prepared->ranges.end(),
            [](const auto& a, const auto& b) { return a.begin() < b.begin(); });
  if (model->graph->space_size() != static_cast<int64_t>(prepared->ranges.back().end())) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", model->graph->space_size(),
                                                   " numbers here, the routes ", prepared->ranges.back().end(),
                                                   "; coordinator and worker are of different versions"));
  }
  data_trouble_ = true;  // until the data set is known to be the job's
  CAIRN_ASSIGN_OR_RETURN(const TrainingData data,
                         OpenTrainingData(model, info, *services_.datasets, driver_.dropped_flag()));
  prepared->dataset = data.dataset;
  const auto train = static_cast<uint64_t>(data.dataset->size(v1::TRAIN));
  const auto validation = static_cast<uint64_t>(data.dataset->size(v1::VALIDATION));
  if (train != info.train_examples() || validation != info.validation_examples()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.path: ", spec.data().path(), " holds ", train, " training and ", validation,
                     " validation examples on this ", "worker, but ", info.train_examples(), " and ",
                     info.validation_examples(), " where the job was checked; all workers must see the same data"));
  }
  data_trouble_ = false;
  BatchSourceOptions options;
  options.decode_threads = services_.decode_threads;
  options.trace = services_.trace;
  options.job = job_;
  CAIRN_ASSIGN_OR_RETURN(TrainingBatches batches, MakeTrainingBatches(data, std::move(options)));
  prepared->plan = batches.plan;
  prepared->batches = std::move(batches.source);
  prepared->model = std::move(batches.model);
  return prepared;
}

void Trainer::NoteTrouble(const absl::Status& status) {
  if (!OfThisDevice(status)) return;
  device_trouble_ = true;
  if (services_.device_trouble) services_.device_trouble();
}

void Trainer::RunCompute(replica::Compute compute, ProgramCache& programs) {
  if (driver_.dropped()) return;
  const uint64_t work = compute.work;
  absl::StatusOr<BatchSums> sums = Train(compute, programs);
  if (!sums.ok() && !absl::IsCancelled(sums.status())) {
    NoteTrouble(sums.status());
    sums = Annotate(sums.status(), absl::StrCat("step ", compute.step, ", replica ", compute.replica.value));
  }
  compute = {};  // the core may write to the buffers from now on
  services_.pool->Ending(programs.slot());
  driver_.Post(replica::Computed{work, std::move(sums)});
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

// What the spans of a step have in common; nullopt: the timer is off, for the job is not traced.
std::optional<StepTrace> Trainer::TraceOf(const replica::Compute& compute, int slot, TraceTimer& timer) const {
  if (!timer.on()) return std::nullopt;
  TraceSpan& span = timer.span();
  span.kind = TraceKind::kCompute;
  span.track = TraceTrack::kSlot;
  span.track_number = slot;
  span.step = compute.step;
  span.replica = compute.replica.value;
  return StepTrace{services_.trace, job_, span};
}

absl::StatusOr<BatchSums> Trainer::Train(const replica::Compute& compute, ProgramCache& programs) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const Prepared> prepared, Prepare());
  CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(prepared->model));
  const absl::Time start = services_.clock->Now();
  TraceTimer timer(services_.trace, job_);
  const std::optional<StepTrace> trace = TraceOf(compute, programs.slot(), timer);
  StepInfo info = StepInfoOf(prepared->model->spec, compute.step, compute.replica, compute.loss_scale);
  if (trace) info.trace = &*trace;
  const auto batch = [&](int32_t piece) {
    const TraceTimer wait(info.trace, TraceKind::kData);
    return prepared->batches->Get(compute.step, compute.replica, piece);
  };
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
    return TrainPieces(*program, {prepared->plan, batch, info}, compute.values.floats(), gradient.mutable_floats(),
                       [&](int64_t begin, int64_t end) {
                         tracker.Final(begin, end, [&](uint32_t first, uint32_t last) {
                           driver_.Post(replica::GradientReady{compute.work, first, last});
                         });
                         bring_next();
                       });
  };
  const auto train_joined = [&]() -> absl::StatusOr<BatchSums> {
    CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<GradientJoin> join,
                           joins_.Enter(compute.joint, prepared->model->graph, prepared->ranges));
    auto sums = TrainPiecesJoined(*program, {prepared->plan, batch, info}, compute.values.floats(), join,
                                  info.replica - compute.joint->node.first, [&](int64_t, int64_t) { bring_next(); });
    joins_.Leave(compute.joint->number);
    return sums;
  };
  const auto way = [&] { return compute.joint != nullptr ? train_joined() : train(); };
  absl::StatusOr<BatchSums> sums = compute.by_layer ? ByLayer(compute.work, *prepared, *program, way) : way();
  NoteReplicaTime(services_.clock->Now() - start);
  return sums;
}

void Trainer::RunEvaluate(replica::Evaluate evaluate, ProgramCache& programs) {
  if (driver_.dropped()) return;
  const uint64_t work = evaluate.work;
  absl::StatusOr<BatchSums> sums = EvaluateShare(evaluate, programs);
  if (!sums.ok() && !absl::IsCancelled(sums.status())) {
    NoteTrouble(sums.status());
    sums = Annotate(sums.status(), absl::StrCat("validation after step ", evaluate.step));
  }
  evaluate = {};
  services_.pool->Ending(programs.slot());
  driver_.Post(replica::Evaluated{work, std::move(sums)});
}

absl::StatusOr<BatchSums> Trainer::EvaluateShare(const replica::Evaluate& evaluate, ProgramCache& programs) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const Prepared> prepared, Prepare());
  CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(prepared->model));
  const auto score = [&] {
    return EvaluateBlocks(*program, *prepared->model, {*prepared->dataset, v1::VALIDATION, evaluate.places},
                          evaluate.values.floats(), driver_.dropped_flag());
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
  const auto weights = std::make_shared<LayerWeights>(work, prepared.ranges,
                                                      [this](replica::Event event) { driver_.Post(std::move(event)); });
  {
    absl::MutexLock lock(&mutex_);
    if (driver_.dropped()) return absl::CancelledError("the job was dropped");
    weights_[work] = weights;
  }
  const absl::Status usable = program.UseWeightSource(weights.get());
  absl::StatusOr<BatchSums> sums = usable.ok() ? compute() : absl::StatusOr<BatchSums>(usable);
  program.UseWeightSource(nullptr).IgnoreError();
  absl::MutexLock lock(&mutex_);
  weights_.erase(work);
  return sums;
}

}  // namespace cairn
