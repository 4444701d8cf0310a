// TimeDistributed: the inner layer on the whole input, or, if the steps are folded into the batch, a plan of its own
// for examples * steps (common/model/inner_node.h).
#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/model/inner_node.h"
#include "worker/backend/dropout.h"
#include "worker/backend/onednn/features.h"
#include "worker/backend/onednn/loop_op.h"

namespace cairn::onednn {
namespace {

class DistributedOp : public LoopOp {
 public:
  DistributedOp(PlanBuilder& b, const Node& node, Value* in, Value* out)
      : LoopOp(b, {in}, {InputShape(b, node)}, node.output, out, BackwardReads::kInputs),
        node_(node.id),
        graph_(StepGraph(b.graph(), node)),
        steps_(InputShape(b, node)[0]),
        numbers_(b.examples() * NumElements(InputShape(b, node))) {
    PlanBuilder inner(graph_, {}, b.examples() * steps_, b.mode(), b.engine(), b.bfloat16());
    if (in->needs_gradient) inner.DifferentiateInput();
    plan_ = inner.Build();
    arena_ = b.NewBytes(plan_->arena_bytes());
    for (size_t i = 0; i < node.variables.size(); ++i) {
      const Variable& outer = b.graph().variables()[node.variables[i]];
      variables_.push_back({&outer, &graph_.variables()[i], b.ValueOf(outer, MakeDesc({outer.size}, Tag::x)), {}});
      // Its moving averages are computed in the backward pass.
      if (b.Trains(outer)) out->needs_gradient = true;
    }
    if (!variables_.empty()) values_ = b.New(MakeDesc({graph_.space_size()}, Tag::x));
  }

 private:
  struct Within {
    const Variable *outer, *inner;
    dnnl::memory value, gradient;
  };

  static const Shape& InputShape(const PlanBuilder& b, const Node& node) {
    return b.graph().nodes()[node.inputs[0]].output;
  }

  void UseBackward(PlanBuilder& b) override {
    b.Use(arena_);
    if (values_ == nullptr) return;
    b.Use(values_);
    gradients_ = b.New(MakeDesc({graph_.space_size()}, Tag::x));
    for (Within& v : variables_) {
      if (b.Trains(*v.outer)) v.gradient = b.GradientOf(*v.outer, MakeDesc({v.outer->size}, Tag::x));
    }
  }

  void Compute(const Run& run, float* y) override {
    plan_->Bind(reinterpret_cast<uint8_t*>(arena_->memory.get_data_handle()));
    for (const Within& v : variables_) {
      const float* const from = static_cast<const float*>(v.value.get_data_handle());
      std::copy(from, from + v.inner->size, values_->data() + v.inner->offset);
    }
    const StepInfo within = WithinLayer(run.info, node_);
    const absl::Status status = plan_->Forward({run.stream, within}, x(), Values(), nullptr);
    if (!status.ok() && run.error != nullptr && run.error->ok()) *run.error = status;
    std::copy(plan_->outputs().begin(), plan_->outputs().end(), y);
  }

  void Derive(const Run& run, const float* dy) override {
    std::copy(dy, dy + plan_->output_gradients().size(), plan_->output_gradients().begin());
    const StepInfo within = WithinLayer(run.info, node_);
    const absl::Status status = plan_->Backward(
        {run.stream, within}, gradients_ == nullptr ? nullptr : gradients_->data(), [](int64_t, int64_t) {}, nullptr);
    CAIRN_CHECK(status.ok(), "only a source of weights can fail");
    for (const Within& v : variables_) {
      if (!v.gradient) continue;
      // The gradient of a moving average is the batch's statistic times the number of examples; steps are not examples.
      const bool moves = v.outer->kind == VariableKind::kMovingAverage;
      Scale(gradients_->data() + v.inner->offset, moves ? 1.0f / static_cast<float>(steps_) : 1.0f,
            static_cast<float*>(v.gradient.get_data_handle()), v.inner->size);
    }
    if (dx() != nullptr) std::copy(plan_->input_gradient(), plan_->input_gradient() + numbers_, dx());
  }

  const float* Values() const { return values_ == nullptr ? nullptr : values_->data(); }

  const int node_;
  const Graph graph_;
  const int64_t steps_, numbers_;  // numbers of the inputs
  std::unique_ptr<Plan> plan_;
  Tensor* arena_ = nullptr;
  Tensor *values_ = nullptr, *gradients_ = nullptr;  // the spaces of graph_; null: it has no variables
  std::vector<Within> variables_;
};

std::unique_ptr<Op> MakeDistributed(PlanBuilder& b, const Node& node, Value* in, Value* out) {
  return std::make_unique<DistributedOp>(b, node, in, out);
}

void CompileDistributed(PlanBuilder& b, const Node& node, const std::vector<Value*>& in, Value* out) {
  if (FoldsSteps(node)) return CompileOne<MakeDistributed>(b, node, in, out);
  const Node& inner = b.Keep(InnerNode(node));
  FindLayer(inner.kind)->compile(b, inner, in, out);
}

constexpr Layer kLayers[] = {{LayerKind::kTimeDistributed, CompileDistributed},
                             {LayerKind::kSpectralNormalization, CompileDistributed}};

}  // namespace

absl::Span<const Layer> DistributedLayers() { return kLayers; }

}  // namespace cairn::onednn
