#include "worker/backend/cudnn/program.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/embedding.h"

namespace cairn::cudnn {
namespace {

// Training and evaluation on full batches and on one or two short ones each.
constexpr size_t kPlansKept = 6;
// Of one copy of values: small enough that the next is copied to pinned memory while this one travels.
constexpr int64_t kChunkNumbers = 1 << 20;
// No step takes this long; a device that hangs does.
constexpr absl::Duration kPatience = absl::Minutes(10);

struct Embedding {
  const Node* node = nullptr;
  int64_t per_example = 0;
};

// Host and device memory of one size.
struct Pair {
  Block device, pinned;
};

class CudnnProgram : public Program {
 public:
  CudnnProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options, const Precision& precision,
               std::unique_ptr<Machine> machine)
      : graph_(std::move(graph)),
        options_(options),
        precision_(precision),
        loss_plan_(PlanLoss(*graph_, options.loss, options.class_weights)),
        machine_(std::move(machine)),
        outputs_(NumElements(graph_->output().output)) {
    for (const Node& node : graph_->nodes()) {
      if (node.kind == LayerKind::kEmbedding) embeddings_.push_back({&node, NumElements(graph_->nodes()[node.inputs[0]].output)});
    }
  }

  ~CudnnProgram() override { machine_->WaitForAll(kPatience).IgnoreError(); }

  absl::Status Prepare() {
    const int64_t space = graph_->space_size() * 4, examples = options_.batch_max;
    CAIRN_RETURN_IF_ERROR(Allocate(space, &values_));
    CAIRN_RETURN_IF_ERROR(Allocate(space, &gradients_));
    CAIRN_RETURN_IF_ERROR(Allocate(examples * NumElements(graph_->input_shape()) * 4, &inputs_));
    CAIRN_RETURN_IF_ERROR(Allocate(examples * std::max<int64_t>(outputs_, 1) * 4, &labels_));
    CAIRN_RETURN_IF_ERROR(Allocate(sizeof(kernels::StepKey), &key_));
    CAIRN_RETURN_IF_ERROR(Allocate(static_cast<int64_t>(1 + options_.metrics.size()) * 8, &results_));
    CAIRN_RETURN_IF_ERROR(Allocate(std::max<int64_t>(static_cast<int64_t>(loss_plan_.class_weights.size()), 1) * 4, &class_weights_));
    std::copy(loss_plan_.class_weights.begin(), loss_plan_.class_weights.end(), class_weights_.pinned.as<float>());
    CAIRN_RETURN_IF_ERROR(machine_->CopyIn(class_weights_.device.data(), class_weights_.pinned.data(), class_weights_.pinned.bytes()));
    // Padding and frozen variables are never written: their gradients stay 0.
    CAIRN_RETURN_IF_ERROR(machine_->Zero(gradients_.device.data(), space));
    CAIRN_ASSIGN_OR_RETURN(const Kept* const kept, FindPlan(Mode::kTrain, examples, LabelSize()));
    if (!precision_.deterministic) LogInfo("deterministic: false: a step's bits may differ from run to run");
    LogDebug("a step is %d launches in an arena of %d MiB; with values and gradients %d MiB", kept->plan->steps().size(),
             arena_.bytes() >> 20, memory_bytes() >> 20);
    return absl::OkStatus();
  }

  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                      absl::Span<float> gradients, const GradientReady& ready) override {
    if (gradients.size() != static_cast<size_t>(graph_->space_size())) {
      return absl::InvalidArgumentError(absl::StrCat("gradients: ", gradients.size(), " numbers, but the model has ",
                                                     graph_->space_size(), "; pass the whole space"));
    }
    CAIRN_ASSIGN_OR_RETURN(Kept* const kept, Start(Mode::kTrain, batch, info, values));
    const std::vector<Plan::Release>& releases = kept->plan->releases();
    for (size_t i = 0; i < releases.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(machine_->WaitFor(static_cast<int>(i), kPatience));
      const int64_t begin = releases[i].begin, end = releases[i].end;
      std::memcpy(gradients.data() + begin, gradients_.pinned.as<float>() + begin, (end - begin) * sizeof(float));
      if (ready) ready(begin, end);
    }
    return Sums(*kept->plan);
  }

  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) override {
    CAIRN_ASSIGN_OR_RETURN(Kept* const kept, Start(Mode::kEvaluate, batch, {}, values));
    return Sums(*kept->plan);
  }

  absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) override {
    const int64_t bytes = batch.examples * outputs_ * 4;
    if (predictions_.bytes() < bytes) {
      CAIRN_ASSIGN_OR_RETURN(predictions_, machine_->AllocatePinned(options_.batch_max * outputs_ * 4));
    }
    CAIRN_RETURN_IF_ERROR(Start(Mode::kPredict, batch, {}, values).status());
    CAIRN_RETURN_IF_ERROR(machine_->WaitFor(0, kPatience));
    return Buffer::CopyOf(predictions_.data(), bytes);
  }

  absl::Status UseWeightSource(WeightSource* source) override {
    source_ = source;
    return absl::OkStatus();
  }

  uint64_t memory_bytes() const override {
    int64_t bytes = arena_.bytes();
    for (const Pair* pair : {&values_, &gradients_, &inputs_, &labels_, &key_, &results_, &class_weights_}) bytes += pair->device.bytes();
    return static_cast<uint64_t>(bytes);
  }

 private:
  struct Kept {
    Mode mode = Mode::kTrain;
    int64_t label_size = 1;
    std::unique_ptr<Plan> plan;
    bool warm = false;  // has run: libraries have loaded their kernels
    std::unique_ptr<Recording> recording;
  };

  absl::Status Allocate(int64_t bytes, Pair* pair) {
    CAIRN_ASSIGN_OR_RETURN(pair->device, machine_->Allocate(bytes));
    CAIRN_ASSIGN_OR_RETURN(pair->pinned, machine_->AllocatePinned(bytes));
    return absl::OkStatus();
  }

  // Of a label where the batch does not say: the program is prepared before it sees one.
  int64_t LabelSize() const { return options_.loss.kind() == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY ? 1 : outputs_; }

  absl::Status Check(Mode mode, const Batch& batch, absl::Span<const float> values) const {
    if (batch.examples < 1 || batch.examples > options_.batch_max) {
      return absl::InvalidArgumentError(absl::StrCat("batch of ", batch.examples,
                                                     " examples, but the program was compiled for 1 to ", options_.batch_max));
    }
    const int64_t numbers = batch.examples * NumElements(graph_->input_shape());
    if (batch.inputs.size() != numbers * sizeof(float)) {
      return absl::InvalidArgumentError(absl::StrCat("batch.inputs: ", batch.inputs.size(), " bytes, but ", batch.examples,
                                                     " examples of shape ", cairn::ToString(graph_->input_shape()), " have ",
                                                     numbers * sizeof(float)));
    }
    if (values.size() != static_cast<size_t>(graph_->space_size())) {
      return absl::InvalidArgumentError(absl::StrCat("values: ", values.size(), " numbers, but the model has ", graph_->space_size(),
                                                     "; pass the whole space"));
    }
    for (const Embedding& embedding : embeddings_) {
      const absl::Span<const float> ids = batch.inputs.floats();
      for (int64_t i = 0; i < batch.examples * embedding.per_example; ++i) {
        if (EmbeddingRow(ids[i], embedding.node->layer.embedding().input_dim()) < 0) {
          return BadEmbeddingId(*embedding.node, i / embedding.per_example, ids[i]);
        }
      }
    }
    if (mode == Mode::kPredict) return absl::OkStatus();
    return CheckLabels(options_.loss, loss_plan_, batch.examples, outputs_, batch.labels.floats(), batch.label_size);
  }

  absl::StatusOr<Kept*> Start(Mode mode, const Batch& batch, const StepInfo& info, absl::Span<const float> values) {
    CAIRN_RETURN_IF_ERROR(Check(mode, batch, values));
    CAIRN_ASSIGN_OR_RETURN(Kept* const kept, FindPlan(mode, batch.examples, mode == Mode::kPredict ? 1 : batch.label_size));
    machine_->ResetSignals(static_cast<int>(kept->plan->releases().size()) + 1);
    CAIRN_RETURN_IF_ERROR(CopyBatch(mode, batch, info));
    CAIRN_RETURN_IF_ERROR(CopyValues(values));
    if (kept->warm && kept->recording == nullptr) {
      CAIRN_ASSIGN_OR_RETURN(kept->recording, machine_->Record([this, kept] { return Enqueue(*kept); }));
    }
    if (kept->recording != nullptr) {
      CAIRN_RETURN_IF_ERROR(machine_->Launch(*kept->recording));
    } else {
      CAIRN_RETURN_IF_ERROR(Enqueue(*kept));
      kept->warm = true;
    }
    return kept;
  }

  absl::Status CopyBatch(Mode mode, const Batch& batch, const StepInfo& info) {
    std::memcpy(inputs_.pinned.data(), batch.inputs.data(), batch.inputs.size());
    CAIRN_RETURN_IF_ERROR(machine_->CopyIn(inputs_.device.data(), inputs_.pinned.data(), static_cast<int64_t>(batch.inputs.size())));
    if (mode == Mode::kPredict) return absl::OkStatus();
    const int64_t labels = batch.examples * batch.label_size * 4;
    std::memcpy(labels_.pinned.data(), batch.labels.data(), labels);
    CAIRN_RETURN_IF_ERROR(machine_->CopyIn(labels_.device.data(), labels_.pinned.data(), labels));
    if (mode != Mode::kTrain) return absl::OkStatus();
    const auto key = StreamKey(info.seed, RandomStream::kDropout);
    *key_.pinned.as<kernels::StepKey>() = {
        {key[0], key[1]}, {static_cast<uint32_t>(info.step), static_cast<uint32_t>(info.step >> 32)}, info.replica};
    return machine_->CopyIn(key_.device.data(), key_.pinned.data(), sizeof(kernels::StepKey));
  }

  // Chunk by chunk: one travels while the next is copied to pinned memory (and, with a source, waited for).
  absl::Status CopyValues(absl::Span<const float> values) {
    const int64_t space = graph_->space_size();
    for (int64_t begin = 0; begin < space; begin += kChunkNumbers) {
      const int64_t end = std::min(begin + kChunkNumbers, space);
      if (source_ != nullptr) {
        CAIRN_RETURN_IF_ERROR(source_->Acquire(begin, end));
        if (end < space) source_->Prefetch(end, std::min(end + kChunkNumbers, space));
      }
      std::memcpy(values_.pinned.as<float>() + begin, values.data() + begin, (end - begin) * sizeof(float));
      if (source_ != nullptr) source_->Release(begin, end);
      CAIRN_RETURN_IF_ERROR(machine_->CopyIn(values_.device.as<float>() + begin, values_.pinned.as<float>() + begin,
                                             (end - begin) * static_cast<int64_t>(sizeof(float))));
    }
    return absl::OkStatus();
  }

  absl::Status Enqueue(const Kept& kept) {
    const Plan& plan = *kept.plan;
    const Run run{*machine_,
                  plan,
                  arena_.data(),
                  values_.device.as<float>(),
                  gradients_.device.as<float>(),
                  inputs_.device.as<float>(),
                  labels_.device.as<float>(),
                  class_weights_.device.as<float>(),
                  key_.device.as<kernels::StepKey>(),
                  results_.device.as<double>()};
    const std::vector<Plan::Release>& releases = plan.releases();
    size_t next = 0;
    for (int i = 0; i < static_cast<int>(plan.steps().size()); ++i) {
      CAIRN_RETURN_IF_ERROR(plan.Enqueue(i, run));
      for (; next < releases.size() && releases[next].after <= i; ++next) {
        const int64_t begin = releases[next].begin, bytes = (releases[next].end - begin) * static_cast<int64_t>(sizeof(float));
        CAIRN_RETURN_IF_ERROR(machine_->CopyOut(gradients_.pinned.as<float>() + begin, gradients_.device.as<float>() + begin, bytes,
                                                static_cast<int>(next)));
      }
    }
    CAIRN_CHECK(next == releases.size(), "every range is released by a step of the plan");
    const int last = static_cast<int>(next);
    if (kept.mode == Mode::kPredict) {
      CAIRN_RETURN_IF_ERROR(machine_->CopyOut(predictions_.data(), run.At<>(plan.outputs()), plan.examples() * outputs_ * 4, last));
    } else {
      CAIRN_RETURN_IF_ERROR(machine_->CopyOut(results_.pinned.data(), results_.device.data(), results_.pinned.bytes(), last));
    }
    return machine_->JoinCopies();
  }

  absl::StatusOr<BatchSums> Sums(const Plan& plan) {
    CAIRN_RETURN_IF_ERROR(machine_->WaitFor(static_cast<int>(plan.releases().size()), kPatience));
    const double* results = results_.pinned.as<double>();
    BatchSums sums;
    sums.examples = static_cast<uint64_t>(plan.examples());
    sums.loss = results[0];
    sums.metrics.assign(results + 1, results + 1 + options_.metrics.size());
    return sums;
  }

  // The plan, lowered if it is not among the last few used.
  absl::StatusOr<Kept*> FindPlan(Mode mode, int64_t examples, int64_t label_size) {
    const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const Kept& kept) {
      return kept.mode == mode && kept.plan->examples() == examples && kept.label_size == label_size;
    });
    if (found != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, found);
      return &plans_.front();
    }
    LoweringOptions options;
    options.examples = examples;
    options.label_size = label_size;
    options.mode = mode;
    options.precision = precision_;
    options.loss = options_.loss;
    options.metrics = options_.metrics;
    options.loss_plan = loss_plan_;
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, LowerGraph(*graph_, options, *machine_));
    CAIRN_RETURN_IF_ERROR(machine_->WaitForAll(kPatience));  // before a recording or the arena goes
    const int64_t arena = plan->arena_bytes();
    if (arena > arena_.bytes()) {
      for (Kept& kept : plans_) kept.recording.reset();  // they point into the old arena
      arena_ = Block();  // before the larger one, so that both never stand side by side
      CAIRN_ASSIGN_OR_RETURN(arena_, machine_->Allocate(arena));
    }
    Kept kept;
    kept.mode = mode;
    kept.label_size = label_size;
    kept.plan = std::move(plan);
    plans_.push_front(std::move(kept));
    if (plans_.size() > kPlansKept) plans_.pop_back();
    return &plans_.front();
  }

  const std::shared_ptr<const Graph> graph_;
  const ProgramOptions options_;
  const Precision precision_;
  const LossPlan loss_plan_;
  const std::unique_ptr<Machine> machine_;  // outlives what follows
  const int64_t outputs_;                   // numbers of an example's output
  std::vector<Embedding> embeddings_;       // they read the batch's inputs
  Pair values_, gradients_, inputs_, labels_, key_, results_, class_weights_;
  Block predictions_;  // pinned
  Block arena_;
  WeightSource* source_ = nullptr;
  std::list<Kept> plans_;  // the last used first
};

}  // namespace

absl::StatusOr<Precision> PrecisionOf(const ProgramOptions& options) {
  Precision precision;
  switch (options.compute) {
    case v1::FLOAT32:
      break;
    case v1::BFLOAT16:
      precision.type = DType::kBFloat16;
      break;
    default:
      return absl::UnimplementedError(absl::StrCat("compute_dtype: ", v1::DataType_Name(options.compute),
                                                   " is not computed on a GPU: its gradients need a loss scale; use BFLOAT16 or FLOAT32"));
  }
  precision.tf32 = options.allow_tf32;
  precision.deterministic = options.deterministic;
  return precision;
}

absl::StatusOr<std::unique_ptr<Program>> MakeProgram(std::shared_ptr<const Graph> graph, const ProgramOptions& options,
                                                     const Precision& precision, std::unique_ptr<Machine> machine) {
  CAIRN_CHECK(graph != nullptr && machine != nullptr, "a program needs both");
  if (options.batch_max < 1) {
    return absl::InvalidArgumentError(absl::StrCat("batch_max: ", options.batch_max, " is not positive"));
  }
  auto program = std::make_unique<CudnnProgram>(std::move(graph), options, precision, std::move(machine));
  CAIRN_RETURN_IF_ERROR(program->Prepare());
  return program;
}

}  // namespace cairn::cudnn
