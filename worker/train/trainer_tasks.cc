// Trainer: what runs on slots: the job's data and model are opened, steps are computed and validations made.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/data/augment.h"
#include "common/data/batch_mixer.h"
#include "common/data/middle_crop.h"
#include "common/data/output_targets.h"
#include "common/data/text_dataset.h"
#include "common/model/data_check.h"
#include "common/model/inputs_check.h"
#include "common/model/job_outputs.h"
#include "common/model/mixed_labels.h"
#include "common/model/model_inputs.h"
#include "common/model/target_check.h"
#include "common/tensor/dtype.h"
#include "worker/backend/gradient_tracker.h"
#include "worker/train/accumulate.h"
#include "worker/train/evaluate_blocks.h"
#include "worker/train/trainer.h"

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
  const Graph& given = *prepared->model->given;
  CAIRN_ASSIGN_OR_RETURN(
      std::shared_ptr<const Dataset> examples,
      services_.datasets->Open(spec.data(), ExampleShape(spec.data(), ModelInputShape(given)), /*fresh=*/false));
  CAIRN_RETURN_IF_ERROR(CheckInputSizes(given, spec.data(), examples->input_sizes()));
  CAIRN_ASSIGN_OR_RETURN(examples, WithTexts(std::move(examples), given));
  prepared->dataset =
      WithJobTargets(AsModelInput(examples, spec.data(), ModelInputShape(graph)), spec.data(), spec, graph);
  const auto train = static_cast<uint64_t>(prepared->dataset->size(v1::TRAIN));
  const auto validation = static_cast<uint64_t>(prepared->dataset->size(v1::VALIDATION));
  if (train != info.train_examples() || validation != info.validation_examples()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data.path: ", spec.data().path(), " holds ", train, " training and ", validation,
                     " validation examples on this ", "worker, but ", info.train_examples(), " and ",
                     info.validation_examples(), " where the job was checked; all workers must see the same data"));
  }
  if (prepared->dataset->example_size() != NumElements(ModelInputShape(graph))) {
    return absl::InvalidArgumentError(absl::StrCat("data.path: an example has ", prepared->dataset->example_size(),
                                                   " numbers, the model's input is ",
                                                   ToString(ModelInputShape(graph))));
  }
  data_trouble_ = false;
  BatchSourceOptions options;
  options.seed = spec.seed();
  options.shuffle = !spec.data().has_shuffle() || spec.data().shuffle();
  options.decode_threads = services_.decode_threads;
  if (spec.data().has_prefetch()) options.prefetch = spec.data().prefetch();
  CAIRN_ASSIGN_OR_RETURN(options.augmenter, Augmenter::Make(spec.data(), ModelInputShape(graph), spec.seed()));
  options.mixer = BatchMixer::Make(spec.data(), ModelInputShape(graph), MixedClasses(spec, graph), spec.seed());
  prepared->plan = StepPlan::Of(spec, static_cast<int64_t>(train));
  if (const int input = InputTargetOf(spec.data()); input >= 0) {
    options.input_target = ScaleOfInput(graph);
    if (TrainsOutputs(spec)) options.input_target_place = TargetPlace(spec.data(), input);
  }
  const bool alone = options.input_target && options.input_target_place < 0;
  prepared->batches = std::make_shared<BatchSource>(
      alone ? examples : WithJobTargets(examples, spec.data(), spec, graph), prepared->plan, options);
  prepared->model = WithInputs(*prepared->model, prepared->batches->element());
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

absl::StatusOr<BatchSums> Trainer::Train(const replica::Compute& compute, ProgramCache& programs) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const Prepared> prepared, Prepare());
  CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(prepared->model));
  const absl::Time start = services_.clock->Now();
  const auto batch = [&](int32_t piece) { return prepared->batches->Get(compute.step, compute.replica, piece); };
  StepInfo info;
  info.seed = prepared->model->spec.seed();
  info.step = static_cast<uint64_t>(compute.step);
  info.replica = static_cast<uint32_t>(compute.replica.value);
  if (const v1::DataType wire = prepared->model->spec.wire_dtype(); wire != v1::DATA_TYPE_UNSPECIFIED)
    info.values = ValuesTypeOf(wire);
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
