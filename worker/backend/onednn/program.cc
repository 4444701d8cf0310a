#include "worker/backend/onednn/program.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/activity.h"
#include "common/model/model_inputs.h"
#include "dnnl.hpp"
#include "worker/backend/limits.h"
#include "worker/backend/onednn/builder.h"
#include "worker/backend/onednn/plan.h"
#include "worker/backend/outputs_loss.h"

namespace cairn::onednn {
namespace {

// Training and evaluation on full batches and on one or two short ones each.
constexpr size_t kPlansKept = 6;

// Sets the number of OpenMP threads of the calling thread, and restores it at the end: oneDNN and our loops use it.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(omp_get_max_threads()) {
    if (threads != before_) omp_set_num_threads(threads);
    changed_ = threads != before_;
  }
  ~ThreadCount() {
    if (changed_) omp_set_num_threads(before_);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  const int before_;
  bool changed_ = false;
};

class OnednnProgram : public Program {
 public:
  OnednnProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options)
      : graph_(WithActivityLayers(std::move(graph))),
        options_(options),
        loss_plan_(options.outputs.empty() ? PlanLoss(*graph_, options.loss, options.class_weights) : LossPlan()),
        outputs_loss_(options.outputs),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {}

  absl::Status Prepare() {
    const ThreadCount threads(options_.threads);
    return FindPlan(Mode::kTrain, options_.batch_max).status();
  }

  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                      absl::Span<float> gradients, const GradientReady& ready) override {
    const ThreadCount threads(options_.threads);
    if (gradients.size() != static_cast<size_t>(graph_->space_size())) {
      return absl::InvalidArgumentError(absl::StrCat("gradients: ", gradients.size(), " numbers, but the model has ",
                                                     graph_->space_size(), "; pass the whole space"));
    }
    BatchSums sums;
    CAIRN_ASSIGN_OR_RETURN(Plan* const plan, ForwardToTrain(batch, info, values, &sums));
    const TraceTimer timer(info.trace, TraceKind::kBackward);
    return Guarded("", [&]() -> absl::StatusOr<BatchSums> {
      CAIRN_RETURN_IF_ERROR(plan->Backward({stream_, info}, gradients.data(), ready, source_));
      return sums;
    });
  }

  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) override {
    const ThreadCount threads(options_.threads);
    CAIRN_ASSIGN_OR_RETURN(Plan* const plan, Forward(Mode::kEvaluate, batch, {}, values));
    BatchSums sums;
    CAIRN_RETURN_IF_ERROR(Loss(batch, *plan, {}, &sums));
    sums.loss += plan->penalty();
    return sums;
  }

  absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) override {
    const ThreadCount threads(options_.threads);
    CAIRN_ASSIGN_OR_RETURN(Plan* const plan, Forward(Mode::kPredict, batch, {}, values));
    const absl::Span<const float> outputs = plan->outputs();
    Buffer predicted = Buffer::CopyOf(outputs.data(), outputs.size() * sizeof(float));
    outputs_loss_.Activate<float>(predicted.mutable_floats());
    return predicted;
  }

  absl::Status UseWeightSource(WeightSource* source) override {
    source_ = source;
    return absl::OkStatus();
  }

  uint64_t memory_bytes() const override { return arena_.size() + widened_.size(); }

 private:
  struct Kept {
    Mode mode;
    std::unique_ptr<Plan> plan;
  };

  // oneDNN reports errors by exceptions; none leaves this class.
  template <typename Fn>
  static auto Guarded(const std::string& layer, Fn fn) -> decltype(fn()) {
    try {
      return fn();
    } catch (const dnnl::error& e) {
      return absl::InternalError(
          absl::StrCat(layer, "oneDNN failed (status ", static_cast<int>(e.status), "): ", e.message));
    }
  }

  absl::Status Loss(const Batch& batch, const Plan& plan, absl::Span<float> gradients, BatchSums* sums) const {
    if (!outputs_loss_.empty()) {
      return outputs_loss_.Compute<float>(batch.examples, plan.outputs(), batch.labels.floats(), batch.label_size,
                                          gradients, sums);
    }
    return LossAndMetrics<float>(options_.loss, loss_plan_, options_.metrics,
                                 {.examples = batch.examples,
                                  .outputs = plan.outputs(),
                                  .labels = batch.labels.floats(),
                                  .label_size = batch.label_size,
                                  .step_mask = plan.output_mask()},
                                 gradients, sums);
  }

  // The forward pass, the loss, and the gradient of the outputs.
  absl::StatusOr<Plan*> ForwardToTrain(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                       BatchSums* sums) {
    const TraceTimer timer(info.trace, TraceKind::kForward);
    CAIRN_ASSIGN_OR_RETURN(Plan* const plan, Forward(Mode::kTrain, batch, info, values));
    CAIRN_RETURN_IF_ERROR(Loss(batch, *plan, plan->output_gradients(), sums));
    sums->loss += plan->penalty();
    return plan;
  }

  absl::StatusOr<Plan*> Forward(Mode mode, const Batch& batch, const StepInfo& info, absl::Span<const float> values) {
    CAIRN_RETURN_IF_ERROR(Check(batch, values));
    CAIRN_ASSIGN_OR_RETURN(Plan* const plan, FindPlan(mode, batch.examples));
    const float* inputs = batch.inputs.floats().data();
    const uint8_t* bytes = nullptr;
    if (batch.element == Element::kByte) {
      bytes = plan->copies_inputs() ? batch.inputs.data() : nullptr;
      inputs = bytes != nullptr ? nullptr : Widened(batch);
    }
    return Guarded("", [&]() -> absl::StatusOr<Plan*> {
      CAIRN_RETURN_IF_ERROR(plan->Forward({stream_, info, bytes}, inputs, values.data(), source_));
      return plan;
    });
  }

  // The inputs as float32, until the next call.
  const float* Widened(const Batch& batch) {
    const size_t bytes = batch.inputs.size() * sizeof(float);
    if (widened_.size() < bytes) widened_ = Buffer::Allocate(bytes);
    BytesToFloats(batch.inputs.data(), batch.input_numbers(), widened_.mutable_floats().data());
    return widened_.floats().data();
  }

  absl::Status Check(const Batch& batch, absl::Span<const float> values) const {
    if (batch.examples < 1 || batch.examples > options_.batch_max) {
      return absl::InvalidArgumentError(absl::StrCat(
          "batch of ", batch.examples, " examples, but the program was compiled for 1 to ", options_.batch_max));
    }
    const int64_t numbers = batch.examples * ModelInputSize(*graph_);
    const int64_t element = cairn::SizeOf(batch.element);
    if (static_cast<int64_t>(batch.inputs.size()) != numbers * element) {
      return absl::InvalidArgumentError(absl::StrCat("batch.inputs: ", batch.inputs.size(), " bytes, but ",
                                                     batch.examples, " examples of shape ",
                                                     ToString(ModelInputShape(*graph_)), " have ", numbers * element));
    }
    if (values.size() != static_cast<size_t>(graph_->space_size())) {
      return absl::InvalidArgumentError(absl::StrCat("values: ", values.size(), " numbers, but the model has ",
                                                     graph_->space_size(), "; pass the whole space"));
    }
    return absl::OkStatus();
  }

  // The plan, compiled if it is not among the last few used.
  absl::StatusOr<Plan*> FindPlan(Mode mode, int64_t examples) {
    const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const Kept& kept) {
      return kept.mode == mode && kept.plan->examples() == examples;
    });
    if (found != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, found);
      return found->plan.get();
    }
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, Compile(mode, examples));
    plans_.push_front({mode, std::move(plan)});
    if (plans_.size() > kPlansKept) plans_.pop_back();
    return FitArena();
  }

  absl::StatusOr<std::unique_ptr<Plan>> Compile(Mode mode, int64_t examples) {
    PlanBuilder builder(*graph_, loss_plan_, examples, mode, engine_, options_.compute == v1::BFLOAT16);
    try {
      return builder.Build();
    } catch (const dnnl::error& e) {
      const std::string message = absl::StrCat("layer \"", builder.current_layer(), "\": oneDNN cannot compile it (",
                                               e.message, ") for batches of ", examples);
      if (e.status == dnnl_unimplemented) return absl::UnimplementedError(message);
      return absl::InternalError(message);
    }
  }

  // Makes the arena large enough for the newest plan, and tells the plans where it is.
  Plan* FitArena() {
    Plan* newest = plans_.front().plan.get();
    if (newest->arena_bytes() <= static_cast<int64_t>(arena_.size())) {
      newest->Bind(arena_.mutable_data());
      return newest;
    }
    arena_ = Buffer();  // before the larger one, so that both never stand side by side
    arena_ = Buffer::Allocate(newest->arena_bytes());
    for (Kept& kept : plans_) kept.plan->Bind(arena_.mutable_data());
    return newest;
  }

  const std::shared_ptr<const Graph> graph_;
  const ProgramOptions options_;
  const LossPlan loss_plan_;
  const OutputsLoss outputs_loss_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  WeightSource* source_ = nullptr;
  Buffer arena_;
  Buffer widened_;         // inputs that came as bytes and are read where they stand
  std::list<Kept> plans_;  // the last used first
};

}  // namespace

absl::StatusOr<std::unique_ptr<Program>> MakeProgram(std::shared_ptr<const Graph> graph,
                                                     const ProgramOptions& options) {
  CAIRN_CHECK(graph != nullptr, "a program needs a graph");
  if (options.batch_max < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch_max: ", options.batch_max, " is not positive"));
  }
  if (options.threads < 1 || options.threads > kComputeThreadsMax) {
    return absl::InvalidArgumentError(absl::StrCat("threads: ", options.threads, " is outside 1 .. ",
                                                   kComputeThreadsMax, "; use 1 for each core at most"));
  }
  auto program = std::make_unique<OnednnProgram>(std::move(graph), options);
  CAIRN_RETURN_IF_ERROR(program->Prepare());
  return program;
}

}  // namespace cairn::onednn
