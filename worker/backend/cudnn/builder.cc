#include "worker/backend/cudnn/builder.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/activity.h"
#include "common/model/inner_node.h"
#include "common/model/layer_type.h"
#include "common/model/limits.h"
#include "common/model/recurrent.h"
#include "worker/backend/cudnn/ids.h"
#include "worker/backend/cudnn/kernels/recurrent.h"
#include "worker/backend/cudnn/kernels/tensors.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/cudnn/output_loss.h"
#include "worker/backend/layer_check.h"
#include "worker/backend/limits.h"

namespace cairn::cudnn {
namespace {

static_assert(static_cast<int>(kernels::Act::kRelu6) == v1::RELU6 &&
                  static_cast<int>(kernels::Act::kSoftplus) == v1::SOFTPLUS &&
                  static_cast<int>(kernels::Act::kMish) == v1::MISH &&
                  static_cast<int>(kernels::Act::kSparseSigmoid) == v1::SPARSE_SIGMOID,
              "kernels::Act has the numbers of v1::Activation");
static_assert(v1::Activation_MAX == static_cast<int>(kernels::Act::kHardSigmoidKeras2),
              "every activation is computed: as kernels::Act, or by rows");

// Gradients are released in ranges of at least this many numbers: 1 MiB.
constexpr int64_t kReleaseNumbersMin = 1 << 18;
// Each segment adds at least this many numbers of the values: 4 MiB. Each is launched by itself.
constexpr int64_t kSegmentNumbersMin = 1 << 20;
constexpr int64_t kArenaAlignment = 256;

// A segment begins at each step that reads values beyond those of the segments so far.
std::vector<Plan::Segment> SegmentsOf(const Graph& graph, const std::vector<Plan::Step>& steps) {
  const std::vector<Variable>& variables = graph.variables();
  std::vector<Plan::Segment> segments(1);
  for (int i = 0; i < static_cast<int>(steps.size()); ++i) {
    int64_t end = 0;
    for (const Ref& ref : steps[i].reads) {
      if (ref.place != Ref::kValues) continue;
      const auto next = std::upper_bound(variables.begin(), variables.end(), ref.offset / 4,
                                         [](int64_t offset, const Variable& v) { return offset < v.offset; });
      CAIRN_CHECK(next != variables.begin(), "a place in the space is a variable's");
      end = std::max(end, std::prev(next)->offset + std::prev(next)->size);
    }
    if (end <= segments.back().values_end) continue;
    end = std::min((end + kSegmentNumbersMin - 1) / kSegmentNumbersMin * kSegmentNumbersMin, graph.space_size());
    if (segments.back().values_end == 0) {
      segments.back().values_end = end;
    } else {
      segments.push_back({i, end});
    }
  }
  return segments;
}

// Adds up the parts of the gradients of variables that other nodes share with `first`.
void SumShared(Builder& b, const Node& first) {
  for (const int v : first.variables) {
    const Variable& variable = b.graph().variables()[v];
    std::vector<Ref> parts = b.handover().GradientParts(variable);
    if (parts.empty()) continue;
    const Ref sum{Ref::kGradients, 0, variable.offset * 4};
    if (b.handover().HasOwnGradient(variable)) parts.insert(parts.begin(), sum);
    for (size_t begin = 0; begin < parts.size();) {
      std::vector<Ref> some;
      if (begin > 0) some.push_back(sum);
      while (some.size() < static_cast<size_t>(kernels::kJoinMax) && begin < parts.size())
        some.push_back(parts[begin++]);
      b.Emit("sum of parts", some, {sum}, [=, n = variable.size](const Run& r) {
        kernels::Inputs in;
        for (const Ref& ref : some) in.x[in.count++] = r.At<>(ref);
        return kernels::Sum(r.stream(), n, in, 1, r.At<>(sum), DType::kFloat32);
      });
    }
  }
}

}  // namespace

const Layer* FindLayer(LayerKind kind) {
  for (const absl::Span<const Layer> family :
       {AttentionLayers(), CategoryLayers(), ConvolutionLayers(), DenseLayers(), EinsumLayers(), FeatureLayers(),
        GroupedAttentionLayers(), MergingLayers(), MoveLayers(), NormalizationLayers(), OtherLayers(),
        RecurrentLayers(), ResampleLayers(), TensorLayers(), WindowLayers()}) {
    for (const Layer& layer : family) {
      if (layer.kind == kind) return &layer;
    }
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Plan>> LowerGraph(const Graph& graph, const LoweringOptions& options, Machine& machine) {
  return Builder(graph, options, machine).Build();
}

Builder::Builder(const Graph& graph, const LoweringOptions& options, Machine& machine)
    : graph_(graph),
      options_(options),
      groups_(graph_, options_),
      machine_(machine),
      plan_(std::make_unique<Plan>()),
      handover_(graph_) {
  plan_->examples_ = options.examples;
}

namespace {

LoweringOptions OptionsWithin(Builder& outer, const Node& node) {
  LoweringOptions options = outer.options();
  options.examples *= outer.ShapeOf(node)[0];
  options.loss_plan = {};  // the layer within applies its own activation
  return options;
}

}  // namespace

Builder::Builder(const Graph& step, Builder& outer, const Node& node)
    : graph_(step),
      options_(OptionsWithin(outer, node)),
      groups_(graph_, options_),
      machine_(outer.machine_),
      handover_(graph_),
      outside_(std::make_unique<Outside>(Outside{&outer, &node, {}})) {
  node_values_ = {outer.In(node), outer.Out(node)};
}

absl::StatusOr<std::unique_ptr<Plan>> Builder::Build() {
  CAIRN_RETURN_IF_ERROR(CheckLayers(graph_, "cudnn", [](LayerKind kind) { return FindLayer(kind) != nullptr; }));
  for (const Node& node : graph_.nodes())
    CAIRN_CHECK(ActivityRegularizerOf(node).none(), "a program's graph has them as layers (WithActivityLayers)");
  MakeValues();
  for (const Node& node : graph_.nodes()) {
    current_ = &node;
    if (!groups_.Joined(node)) FindLayer(node.kind)->lower(*this, node);
    if (!error_.ok()) return error_;
  }
  CAIRN_RETURN_IF_ERROR(LowerLoss());
  if (training()) LowerBackward();
  if (!error_.ok()) return error_;
  if (options_.keep_outputs && options_.mode != Mode::kPredict) {
    for (const Ref& ref : {plan_->outputs_, plan_->mask_}) {
      if (ref.place == Ref::kArena) plan_->buffers_[ref.buffer].Use(static_cast<int>(plan_->steps_.size()));
    }
  }
  plan_->segments_ = SegmentsOf(graph_, plan_->steps_);
  std::vector<ArenaBuffer*> buffers;
  for (ArenaBuffer& buffer : plan_->buffers_) buffers.push_back(&buffer);
  plan_->arena_bytes_ = PlaceBuffers(buffers, kArenaAlignment);
  return std::move(plan_);
}

// Lives until the outer plan is built, since its backward pass is lowered then.
void Builder::LowerWithin(const Node& node) {
  struct Step {
    Graph graph;
    std::unique_ptr<Builder> builder;
  };
  const auto step = std::make_shared<Step>(Step{StepGraph(graph_, node), nullptr});
  step->builder = std::make_unique<Builder>(step->graph, *this, node);
  Builder& within = *step->builder;
  const Node& inner = step->graph.nodes()[1];
  within.current_ = &inner;
  const Layer* const layer = FindLayer(inner.kind);
  if (layer == nullptr) {
    return Fail(absl::UnimplementedError(
        absl::StrCat(LayerTypeName(inner.kind), " of time_distributed is not computed by the backend cudnn")));
  }
  layer->lower(within, inner);
  if (training()) Backward([step, &inner] { step->builder->LowerBackwardOf(inner); });
}

// ---- values ----

namespace {

// Layers whose numbers mean something else if they are rounded.
bool TakesCategories(LayerKind kind) {
  switch (kind) {
    case LayerKind::kDiscretization:
    case LayerKind::kCategoryEncoding:
    case LayerKind::kHashing:
    case LayerKind::kHashedCrossing:
    case LayerKind::kIntegerLookup: return true;
    default: return false;
  }
}

// Layers whose outputs are places or categories, which have no gradient: float32 costs nothing there.
bool GivesPlaces(const Graph& graph, const Node& node) {
  switch (node.kind) {
    case LayerKind::kFlatten:
    case LayerKind::kReshape: return GivesPlaces(graph, graph.nodes()[node.inputs[0]]);
    case LayerKind::kReduce:
      return node.layer.reduce().kind() == v1::Reduce::ARGMAX || node.layer.reduce().kind() == v1::Reduce::ARGMIN;
    case LayerKind::kTopK: return node.layer.top_k().indices();
    default: return TakesCategories(node.kind);
  }
}

}  // namespace

void Builder::MakeValues() {
  const std::vector<Node>& nodes = graph_.nodes();
  node_values_.resize(nodes.size());
  std::vector<bool> exact(nodes.size());  // float32 whatever the precision, since the output is ids or categories
  std::vector<bool> trains(nodes.size()), has_variables(nodes.size());
  for (const Node& node : nodes) {
    for (int v : node.variables) {
      has_variables[node.id] = true;
      if (graph_.variables()[v].kind == VariableKind::kTrainable) trains[node.id] = true;
    }
    for (int input : node.inputs) {
      if (trains[input]) trains[node.id] = true;
      if (has_variables[input]) has_variables[node.id] = true;
    }
  }
  for (size_t id = nodes.size(); id-- > 0;) {
    if (!ReadsIds(nodes[id]) && !TakesCategories(nodes[id].kind) && !exact[id]) continue;
    for (int input : nodes[id].inputs) exact[input] = !has_variables[input] || GivesPlaces(graph_, nodes[input]);
  }
  for (const Node& node : nodes) {
    if (!groups_.Joined(node)) {
      const DType type = exact[node.id] ? DType::kFloat32 : this->type();
      node_values_[node.id] = NewValue(examples() * NumElements(node.output), trains[node.id], type);
      continue;
    }
    node_values_[node.id] = node_values_[groups_.ComputedBy(node)];
    if (training() && trains[node.id]) node_values_[node.id]->needs_gradient = true;
  }
}

// ---- the loss ----

namespace {

// Adds the penalties of layers to the loss.
void EmitPenalties(Builder& b, const Ref& results) {
  for (const Ref& penalties : b.handover().penalties()) {
    b.Emit("penalty", {penalties, results}, {results}, [=, n = b.examples()](const Run& r) {
      return kernels::AddDoubles(r.stream(), n, r.At<double>(penalties), r.At<double>(results));
    });
  }
}

}  // namespace

absl::Status Builder::LowerLoss() {
  current_ = &graph_.output();
  Value* const last = node_values_.back();
  const Ref outputs = Read(*last, DType::kFloat32);
  plan_->outputs_ = outputs;
  if (options_.mode == Mode::kPredict) {
    // In use until they are copied out.
    if (outputs.place == Ref::kArena) plan_->buffers_[outputs.buffer].Use(static_cast<int>(plan_->steps_.size()));
    return absl::OkStatus();
  }
  const bool several = !options_.parts.empty();
  const LossPart whole{options_.loss,      options_.loss_plan, options_.metrics, 0, last->numbers / examples(), 0,
                       options_.label_size};
  LossPlaces at{.outputs = outputs, .labels = Ref{Ref::kLabels}, .results = Ref{Ref::kResults}};
  if (!several) at.by_row = New(LossRows(*this, whole) * LossColumns(whole) * static_cast<int64_t>(sizeof(double)));
  if (training() && last->needs_gradient) {
    last->gradient = NewLike(*last);
    last->gradient_written = true;
    at.gradients = last->type == DType::kFloat32 ? last->gradient : NewNumbers(last->numbers, DType::kFloat32);
  }
  if (several) {
    EmitLossParts(*this, outputs, at.gradients);
  } else {
    if (options_.row_weights) at.row_weights = {Ref::kLabels, 0, examples() * options_.label_size * 4};
    plan_->mask_ = at.mask = handover_.StepMaskOf(graph_.output().id);
    if (at.mask) at.mask_steps = plan_->buffers_[at.mask.buffer].bytes / static_cast<int64_t>(sizeof(float));
    EmitLoss(*this, whole, at);
  }
  EmitPenalties(*this, at.results);
  if (at.gradients && last->type != DType::kFloat32) {
    EmitConvert(*this, {at.gradients, DType::kFloat32}, {last->gradient, last->type}, last->numbers);
  }
  return absl::OkStatus();
}

// ---- backward ----

void Builder::LowerBackward() {
  // The variables of a node, with the padding after them, are one range. Shared ones are final behind their first node.
  const std::vector<Variable>& variables = graph_.variables();
  std::vector<int64_t> begins(graph_.nodes().size(), -1);
  for (const Variable& v : variables) {
    if (begins[v.node] < 0) begins[v.node] = v.offset;
  }
  int64_t end = graph_.space_size();
  const auto release = [&](int64_t begin) {
    if (begin == end) return;
    plan_->releases_.push_back({static_cast<int>(plan_->steps_.size()) - 1, begin, end});
    end = begin;
  };
  for (int id = static_cast<int>(graph_.nodes().size()) - 1; id >= 0; --id) {
    const Node& node = graph_.nodes()[id];
    LowerBackwardOf(node);
    if (node.shares < 0) SumShared(*this, node);
    if (begins[id] >= 0 && end - begins[id] >= kReleaseNumbersMin) release(begins[id]);
  }
  release(0);
}

void Builder::LowerBackwardOf(const Node& node) {
  current_ = &node;
  // Without a gradient no output that is used depends on it.
  if (!node_values_[node.id]->gradient) return;
  for (size_t i = backward_.size(); i-- > 0;) {
    if (backward_[i].node == &node) backward_[i].fn();
  }
}

}  // namespace cairn::cudnn
