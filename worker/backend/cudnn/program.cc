#include "worker/backend/cudnn/program.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/model/activity.h"
#include "common/model/model_inputs.h"
#include "worker/backend/cudnn/feed.h"
#include "worker/backend/cudnn/ids.h"
#include "worker/backend/cudnn/join.h"
#include "worker/backend/cudnn/plans.h"
#include "worker/backend/cudnn/step_check.h"
#include "worker/backend/cudnn/step_gradient.h"
#include "worker/backend/cudnn/step_loss.h"
#include "worker/backend/cudnn/step_timer.h"
#include "worker/backend/gradient_tracker.h"

namespace cairn::cudnn {
namespace {

class CudnnProgram : public Program {
 public:
  CudnnProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options, const Precision& precision,
               std::unique_ptr<Machine> machine, std::shared_ptr<Clock> clock)
      : graph_(WithActivityLayers(std::move(graph))),
        options_(options),
        precision_(precision),
        loss_(*graph_, options_),
        machine_(std::move(machine)),
        outputs_(NumElements(graph_->output().output)),
        ids_(IdReadersOf(*graph_)),
        feed_(*graph_, *machine_),
        gradient_(*graph_, *machine_),
        timer_(std::move(clock)),
        plans_(*graph_, LoweringOf(precision, loss_), *machine_) {}

  // Memory that the device may still use is released when it has finished, or, if the device is lost, never.
  ~CudnnProgram() override {
    DeviceHealth& device = machine_->health();
    if (!device.lost()) device.Note(machine_->WaitForAll(kPatience)).IgnoreError();
  }

  absl::Status Prepare() {
    const int64_t examples = options_.batch_max;
    const Element inputs = ids_.empty() ? options_.inputs : Element::kFloat;
    CAIRN_RETURN_IF_ERROR(feed_.Prepare(examples, loss_.label_numbers(), loss_.class_weights(), inputs));
    CAIRN_RETURN_IF_ERROR(gradient_.Prepare());
    CAIRN_RETURN_IF_ERROR(results_.Allocate(*machine_, loss_.results() * static_cast<int64_t>(sizeof(double))));
    if (loss_.host_metrics()) CAIRN_RETURN_IF_ERROR(MakePredictions());
    CAIRN_ASSIGN_OR_RETURN(const Plans::Kept* const kept,
                           plans_.Find(Mode::kTrain, examples, loss_.label_size(), loss_.weighs_rows(), inputs));
    if (!precision_.deterministic) LogInfo("deterministic: false: a step's bits may differ from run to run");
    LogDebug("a step is %d launches in an arena of %d MiB; with values and gradients %d MiB",
             kept->plan->steps().size(), plans_.arena().bytes() >> 20, memory_bytes() >> 20);
    return absl::OkStatus();
  }

  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                      absl::Span<float> gradients, const GradientReady& ready) override {
    if (gradients.size() != static_cast<size_t>(graph_->space_size())) {
      return absl::InvalidArgumentError(absl::StrCat("gradients: ", gradients.size(), " numbers, but the model has ",
                                                     graph_->space_size(), "; pass the whole space"));
    }
    CAIRN_ASSIGN_OR_RETURN(Plans::Kept* const kept, Start(Mode::kTrain, batch, info, values, /*joined=*/false));
    CAIRN_RETURN_IF_ERROR(CheckRefusals(*kept));
    const std::vector<Plan::Release>& releases = kept->plan->releases();
    for (size_t i = 0; i < releases.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(Wait(static_cast<int>(i)));
      const int64_t begin = releases[i].begin, end = releases[i].end;
      gradient_.Take(begin, end, info.loss_scale, gradients);
      if (ready) ready(begin, end);
    }
    return Sums(*kept->plan, batch);
  }

  absl::StatusOr<BatchSums> TrainJoined(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                        const std::shared_ptr<GradientJoin>& join, uint32_t leaf,
                                        const GradientReady& ready) override {
    const auto sum = std::dynamic_pointer_cast<DeviceJoin>(join);
    if (sum == nullptr || !sum->HasLeaf(leaf))
      return absl::InvalidArgumentError("the sum is not of this backend, or not of this replica");
    CAIRN_RETURN_IF_ERROR(gradient_.PrepareJoin(sum->type(), /*pieces=*/!info.first_piece || !info.last_piece));
    CAIRN_ASSIGN_OR_RETURN(Plans::Kept* const kept, Start(Mode::kTrain, batch, info, values, /*joined=*/true));
    CAIRN_RETURN_IF_ERROR(CheckRefusals(*kept));
    const absl::Status added = AddTo(*sum, leaf, info, kept->plan->releases(), ready);
    if (!added.ok()) return Ended(added);
    return Sums(*kept->plan, batch);
  }

  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) override {
    CAIRN_ASSIGN_OR_RETURN(Plans::Kept* const kept, Start(Mode::kEvaluate, batch, {}, values, /*joined=*/false));
    CAIRN_RETURN_IF_ERROR(CheckRefusals(*kept));
    return Sums(*kept->plan, batch);
  }

  absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) override {
    const int64_t bytes = batch.examples * outputs_ * 4;
    if (predictions_.bytes() < bytes) CAIRN_RETURN_IF_ERROR(MakePredictions());
    CAIRN_ASSIGN_OR_RETURN(Plans::Kept* const kept, Start(Mode::kPredict, batch, {}, values, /*joined=*/false));
    CAIRN_RETURN_IF_ERROR(CheckRefusals(*kept));
    CAIRN_RETURN_IF_ERROR(Wait(0));
    Buffer predicted = Buffer::CopyOf(predictions_.data(), bytes);
    loss_.Activate(predicted.mutable_floats());
    return predicted;
  }

  void Prefetch(const Batch& next) override { feed_.Prefetch(next); }

  absl::Status UseWeightSource(WeightSource* source) override {
    feed_.UseWeightSource(source);
    return absl::OkStatus();
  }

  uint64_t memory_bytes() const override {
    return static_cast<uint64_t>(plans_.arena().bytes() + feed_.bytes() + gradient_.bytes() + results_.device.bytes());
  }

 private:
  // Adds each range that becomes final to the sum of the pieces, if there are several, and with the last piece to the
  // sum of the replicas.
  absl::Status AddTo(DeviceJoin& sum, uint32_t leaf, const StepInfo& info, const std::vector<Plan::Release>& releases,
                     const GradientReady& ready) {
    const bool alone = info.first_piece && info.last_piece;
    const DeviceJoin::Source own = gradient_.Own(1 / info.loss_scale), all = gradient_.Pieces();
    GradientTracker tracker(sum.ranges());
    absl::Status status;
    for (size_t i = 0; i < releases.size() && status.ok(); ++i) {
      CAIRN_RETURN_IF_ERROR(Wait(static_cast<int>(i)));
      if (ready) ready(releases[i].begin, releases[i].end);
      if (!alone) CAIRN_RETURN_IF_ERROR(gradient_.AddPiece(own, releases[i].begin, releases[i].end, info.first_piece));
      if (!info.last_piece) continue;
      tracker.Final(releases[i].begin, releases[i].end, [&](uint32_t first, uint32_t last) {
        for (uint32_t range = last; range-- > first;) {
          if (status.ok()) status = sum.Add(leaf, range, alone ? own : all, timer_.patience());
        }
      });
    }
    return info.last_piece ? status : machine_->WaitAside(timer_.patience());  // before the next piece's gradient
  }

  absl::Status Check(Mode mode, const Batch& batch, const StepInfo& info, absl::Span<const float> values) const {
    CAIRN_RETURN_IF_ERROR(CheckSizes(*graph_, options_.batch_max, batch, info, values));
    CAIRN_RETURN_IF_ERROR(CheckIds(ids_, ModelInputSize(*graph_), batch));
    return mode == Mode::kPredict ? absl::OkStatus() : loss_.Check(batch);
  }

  // Sequences of labels may be longer than the outputs, filled up with 0. Recordings point to the labels.
  absl::Status MakeRoomForLabels(const Batch& batch) {
    const int64_t numbers = batch.examples * batch.label_size + static_cast<int64_t>(row_weights_.size());
    if (numbers <= feed_.label_numbers()) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(machine_->health().Note(machine_->WaitForAll(kPatience)));
    plans_.DropRecordings();
    return feed_.AllocateLabels(numbers);
  }

  absl::Status MakePredictions() {
    CAIRN_ASSIGN_OR_RETURN(predictions_,
                           machine_->AllocatePinned(options_.batch_max * (outputs_ + loss_.positions()) * 4));
    return absl::OkStatus();
  }

  absl::Status Wait(int signal) {
    const absl::Status arrived = machine_->WaitFor(signal, timer_.patience());
    if (!absl::IsDeadlineExceeded(arrived)) return machine_->health().Note(arrived);
    return machine_->health().Note(Annotate(
        arrived, absl::StrCat("waited for ", absl::FormatDuration(timer_.patience()), ", the slowest step before took ",
                              absl::FormatDuration(absl::Trunc(timer_.slowest(), absl::Milliseconds(1))))));
  }

  // The error of a step that failed, once nothing of it is running. On a lost device, where every launch fails with a
  // code of its own library, the reason of the loss.
  absl::Status Ended(const absl::Status& failed) {
    DeviceHealth& device = machine_->health();
    const absl::Status noted = device.Note(failed);
    if (device.lost()) return noted;
    device.Note(machine_->WaitForAll(kPatience)).IgnoreError();
    return device.Note(failed);
  }

  absl::StatusOr<Plans::Kept*> Start(Mode mode, const Batch& batch, const StepInfo& info,
                                     absl::Span<const float> values, bool joined) {
    CAIRN_RETURN_IF_ERROR(Check(mode, batch, info, values));
    row_weights_ = mode == Mode::kPredict ? std::vector<float>() : loss_.RowWeightsOf(batch);
    if (mode != Mode::kPredict) CAIRN_RETURN_IF_ERROR(MakeRoomForLabels(batch));
    CAIRN_ASSIGN_OR_RETURN(Plans::Kept* const kept,
                           plans_.Find(mode, batch.examples, mode == Mode::kPredict ? 1 : batch.label_size,
                                       !row_weights_.empty(), feed_.OnDevice(batch)));
    machine_->ResetSignals(RefusalSignal(*kept->plan) + 1);
    timer_.Begin(/*first=*/!kept->warm);
    const absl::Status started = Launch(mode, batch, info, values, joined, kept);
    if (!started.ok()) return Ended(started);
    kept->warm = true;
    timer_.Launched();
    return kept;
  }

  absl::Status Launch(Mode mode, const Batch& batch, const StepInfo& info, absl::Span<const float> values, bool joined,
                      Plans::Kept* kept) {
    CAIRN_RETURN_IF_ERROR(feed_.CopyBatch(mode, batch, row_weights_, info));
    const size_t segments = kept->plan->segments().size();
    std::vector<std::unique_ptr<Recording>>& recordings = kept->recordings[joined ? 1 : 0];
    recordings.resize(segments);
    int64_t copied = 0;
    for (size_t s = 0; s < segments; ++s) {
      const int64_t end = kept->plan->segments()[s].values_end;
      CAIRN_RETURN_IF_ERROR(
          feed_.CopyValues(values, info.values, copied, end, kept->plan->segments().back().values_end));
      copied = std::max(copied, end);
      std::unique_ptr<Recording>& recording = recordings[s];
      if (kept->warm && recording == nullptr) {
        CAIRN_ASSIGN_OR_RETURN(recording,
                               machine_->Record([this, kept, s, joined] { return Enqueue(*kept, s, joined); }));
      }
      CAIRN_RETURN_IF_ERROR(recording != nullptr ? machine_->Launch(*recording) : Enqueue(*kept, s, joined));
    }
    return absl::OkStatus();
  }

  absl::Status Enqueue(const Plans::Kept& kept, size_t segment, bool joined) {
    const Plan& plan = *kept.plan;
    const Run run{*machine_,
                  plan,
                  plans_.arena().data(),
                  feed_.values(),
                  gradient_.device(),
                  kept.constants.device.as<float>(),
                  feed_.inputs(kept.inputs),
                  feed_.labels(),
                  feed_.class_weights(),
                  feed_.key(),
                  results_.device.as<double>(),
                  kept.refusals.device.as<double>()};
    const std::vector<Plan::Segment>& segments = plan.segments();
    const std::vector<Plan::Release>& releases = plan.releases();
    const bool last = segment + 1 == segments.size();
    const int begin = segments[segment].begin,
              end = last ? static_cast<int>(plan.steps().size()) : segments[segment + 1].begin;
    size_t next = std::partition_point(releases.begin(), releases.end(),
                                       [&](const Plan::Release& r) { return r.after < begin; }) -
                  releases.begin();
    bool copies = last;
    for (int i = begin; i < end; ++i) {
      CAIRN_RETURN_IF_ERROR(plan.Enqueue(i, run));
      if (i == plan.checked_after()) {
        CAIRN_RETURN_IF_ERROR(machine_->CopyOut(kept.refusals.pinned.data(), kept.refusals.device.data(),
                                                kept.refusals.pinned.bytes(), RefusalSignal(plan)));
        copies = true;
      }
      for (; next < releases.size() && releases[next].after <= i; ++next) {
        const int64_t first = releases[next].begin,
                      bytes = (releases[next].end - first) * static_cast<int64_t>(sizeof(float));
        CAIRN_RETURN_IF_ERROR(joined ? machine_->Announce(static_cast<int>(next))
                                     : machine_->CopyOut(gradient_.pinned() + first, gradient_.device() + first, bytes,
                                                         static_cast<int>(next)));
        copies = true;
      }
    }
    if (last) {
      CAIRN_CHECK(next == releases.size(), "every range is released by a step of the plan");
      if (loss_.host_metrics() && kept.mode != Mode::kPredict) {
        CAIRN_RETURN_IF_ERROR(machine_->CopyOut(predictions_.data(), run.At<>(plan.outputs()),
                                                plan.examples() * outputs_ * 4, static_cast<int>(next) + 1));
      }
      if (loss_.masked() && kept.mode != Mode::kPredict) {
        CAIRN_RETURN_IF_ERROR(machine_->CopyOut(predictions_.data() + plan.examples() * outputs_ * 4,
                                                run.At<>(plan.mask()), plan.buffers()[plan.mask().buffer].bytes,
                                                static_cast<int>(next) + 2));
      }
      CAIRN_RETURN_IF_ERROR(kept.mode == Mode::kPredict
                                ? machine_->CopyOut(predictions_.data(), run.At<>(plan.outputs()),
                                                    plan.examples() * outputs_ * 4, static_cast<int>(next))
                                : machine_->CopyOut(results_.pinned.data(), results_.device.data(),
                                                    results_.pinned.bytes(), static_cast<int>(next)));
    }
    return copies ? machine_->JoinCopiesOut() : absl::OkStatus();
  }

  absl::StatusOr<BatchSums> Sums(const Plan& plan, const Batch& batch) {
    CAIRN_RETURN_IF_ERROR(Wait(static_cast<int>(plan.releases().size())));
    timer_.Done();
    if (loss_.host_metrics()) CAIRN_RETURN_IF_ERROR(Wait(static_cast<int>(plan.releases().size()) + 1));
    const auto outputs = static_cast<size_t>(plan.examples() * outputs_);
    size_t steps = 0;
    if (loss_.masked()) {
      CAIRN_RETURN_IF_ERROR(Wait(static_cast<int>(plan.releases().size()) + 2));
      steps = static_cast<size_t>(plan.buffers()[plan.mask().buffer].bytes) / sizeof(float);
    }
    const float* const copied = predictions_.as<float>();  // null without metrics to count
    return loss_.Sums(batch, results_.pinned.as<double>(), {copied, loss_.host_metrics() ? outputs : 0},
                      {copied + (steps > 0 ? outputs : 0), steps});
  }

  // The signal behind those of the gradients and of the results; given where the plan has checks.
  int RefusalSignal(const Plan& plan) const {
    return static_cast<int>(plan.releases().size()) + (loss_.masked() ? 3 : loss_.host_metrics() ? 2 : 1);
  }
  // Before anything of the step is told to anyone.
  absl::Status CheckRefusals(const Plans::Kept& kept) {
    if (kept.plan->checks().empty()) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(Wait(RefusalSignal(*kept.plan)));
    const absl::Status refusal = RefusalOf(*kept.plan, kept.refusals.pinned.as<double>());
    return refusal.ok() ? refusal : Ended(refusal);
  }

  static LoweringOptions LoweringOf(const Precision& precision, const StepLoss& loss) {
    LoweringOptions lowering;
    lowering.precision = precision;
    loss.SetIn(&lowering);
    return lowering;
  }

  const std::shared_ptr<const Graph> graph_;
  const ProgramOptions options_;
  const Precision precision_;
  const StepLoss loss_;
  const std::unique_ptr<Machine> machine_;  // outlives the members below
  const int64_t outputs_;                   // numbers of an example's output
  const std::vector<IdReader> ids_;         // of the batch's inputs
  Feed feed_;
  StepGradient gradient_;
  Pair results_;
  Block predictions_;               // pinned
  std::vector<float> row_weights_;  // of the current step
  StepTimer timer_;
  Plans plans_;  // their recordings are released before what they point to
};

}  // namespace

absl::StatusOr<Precision> PrecisionOf(const ProgramOptions& options) {
  Precision precision;
  switch (options.compute) {
    case v1::FLOAT32: break;
    case v1::BFLOAT16: precision.type = DType::kBFloat16; break;
    case v1::FLOAT16: precision.type = DType::kFloat16; break;
    default:
      return absl::UnimplementedError(absl::StrCat("compute_dtype: ", static_cast<int>(options.compute),
                                                   " is not computed on a GPU; use FLOAT16, BFLOAT16 or FLOAT32"));
  }
  precision.tf32 = options.allow_tf32;
  precision.deterministic = options.deterministic;
  return precision;
}

absl::StatusOr<std::unique_ptr<Program>> MakeProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options,
                                                     const Precision& precision, std::unique_ptr<Machine> machine,
                                                     std::shared_ptr<Clock> clock) {
  CAIRN_CHECK(graph != nullptr && machine != nullptr && clock != nullptr, "a program needs them");
  if (options.batch_max < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch_max: ", options.batch_max, " is not positive"));
  }
  Machine& on = *machine;
  auto program =
      std::make_unique<CudnnProgram>(std::move(graph), options, precision, std::move(machine), std::move(clock));
  if (const absl::Status prepared = program->Prepare(); !prepared.ok()) return on.health().Note(prepared);
  return program;
}

}  // namespace cairn::cudnn
