#include "worker/backend/cudnn/builder.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/model/activity.h"
#include "common/model/inner_node.h"
#include "common/model/layer_type.h"
#include "common/model/recurrent.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/fusion.h"
#include "worker/backend/layer_check.h"
#include "worker/backend/limits.h"

namespace cairn::cudnn {
namespace {

static_assert(kernels::kMetricsMax == kMetricsMax, "LossArguments has room for all of them");
static_assert(static_cast<int>(kernels::Act::kRelu6) == v1::RELU6 &&
                  static_cast<int>(kernels::Act::kSoftplus) == v1::SOFTPLUS &&
                  static_cast<int>(kernels::Act::kRelu) == v1::RELU,
              "kernels::Act has the numbers of v1::Activation");

// Gradients are released in ranges of at least this many numbers: 1 MiB.
constexpr int64_t kReleaseNumbersMin = 1 << 18;
// Each segment adds at least this many numbers of the values: 4 MiB. Each is launched by itself.
constexpr int64_t kSegmentNumbersMin = 1 << 20;
constexpr int64_t kArenaAlignment = 256;

// Refuses graphs that only the backends on CPUs compute.
absl::Status CheckGraph(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const char* what = node.shares >= 0                                ? "it shares another layer's variables"
                       : node.id > 0 && node.kind == LayerKind::kInput ? "it is a second input"
                       : node.layer.concatenate().has_axis() ? "axis: it joins along another axis than the last"
                       : node.id == graph.output().id && node.mask >= 0 ? "its loss leaves masked steps out"
                                                                        : nullptr;
    if (what == nullptr) continue;
    return absl::UnimplementedError(
        absl::StrCat("layer \"", node.name, "\": ", what, ", which is not computed on a GPU; use --device=cpu"));
  }
  return absl::OkStatus();
}

// The activation within a recurrent layer that this backend does not compute; LINEAR: there is none.
v1::Activation FurtherRecurrentActivation(const Node& node) {
  if (!IsRecurrent(node.kind)) return v1::LINEAR;
  for (const Recurrence& r : RecurrencesOf(node.layer)) {
    for (const v1::Activation f : {r.activation, r.recurrent_activation}) {
      if (f > v1::RELU6) return f;
    }
  }
  return v1::LINEAR;
}

bool GivesCellStates(const Node& node) {
  if (!IsRecurrent(node.kind)) return false;
  const std::vector<Recurrence> recurrences = RecurrencesOf(node.layer);
  return std::any_of(recurrences.begin(), recurrences.end(), [](const Recurrence& r) { return r.return_cell; });
}

// Refuses options that this backend does not support.
absl::Status CheckOptions(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const v1::Layer& l = node.kind == LayerKind::kTimeDistributed ? node.layer.time_distributed().layer() : node.layer;
    const char* lacks = nullptr;
    if (IsFurtherActivation(node)) lacks = v1::Activation_Name(node.activation).c_str();
    if (const v1::Activation f = FurtherRecurrentActivation(node); f != v1::LINEAR) {
      lacks = v1::Activation_Name(f).c_str();
    }
    if (GivesCellStates(node)) lacks = "return_cell";
    if (FoldsSteps(node)) lacks = LayerTypeName(FindLayerType(l.kind_case())->kind);
    if (!l.rescaling().scales().empty()) lacks = "scales";
    if (!l.dropout().noise_shape().empty()) lacks = "noise_shape";
    if (l.dropout().seed() != 0 || l.spatial_dropout2d().seed() != 0 || l.multi_head_attention().seed() != 0)
      lacks = "seed";
    if (l.layer_normalization().axis_size() > 1) lacks = "axis";
    if (!ActivityRegularizerOf(node).none()) lacks = "activity_regularizer";
    if (lacks == nullptr) continue;
    return absl::UnimplementedError(absl::StrCat("layer \"", node.name, "\": ", lacks, " of ", LayerTypeName(node.kind),
                                                 " is not computed by the backend cudnn; leave it out, or use "
                                                 "--device=cpu"));
  }
  return absl::OkStatus();
}

}  // namespace

const Layer* FindLayer(LayerKind kind) {
  for (const absl::Span<const Layer> family :
       {ConvolutionLayers(), DenseLayers(), MergingLayers(), NormalizationLayers(), OtherLayers(), RecurrentLayers(),
        ResampleLayers(), WindowLayers()}) {
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

absl::StatusOr<std::unique_ptr<Plan>> Builder::Build() {
  CAIRN_RETURN_IF_ERROR(CheckLayers(graph_, "cudnn", [](LayerKind kind) { return FindLayer(kind) != nullptr; }));
  CAIRN_RETURN_IF_ERROR(CheckGraph(graph_));
  CAIRN_RETURN_IF_ERROR(CheckOptions(graph_));
  MakeValues();
  for (const Node& node : graph_.nodes()) {
    current_ = &node;
    if (!groups_.Joined(node)) FindLayer(node.kind)->lower(*this, node);
    if (!error_.ok()) return error_;
  }
  CAIRN_RETURN_IF_ERROR(LowerLoss());
  if (training()) LowerBackward();
  if (!error_.ok()) return error_;
  if (options_.keep_outputs && options_.mode != Mode::kPredict && plan_->outputs_.place == Ref::kArena) {
    plan_->buffers_[plan_->outputs_.buffer].Use(static_cast<int>(plan_->steps_.size()));
  }
  MakeSegments();
  std::vector<ArenaBuffer*> buffers;
  for (ArenaBuffer& buffer : plan_->buffers_) buffers.push_back(&buffer);
  plan_->arena_bytes_ = PlaceBuffers(buffers, kArenaAlignment);
  return std::move(plan_);
}

// ---- values ----

void Builder::MakeValues() {
  const std::vector<Node>& nodes = graph_.nodes();
  node_values_.resize(nodes.size());
  exact_.resize(nodes.size());
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
    if (nodes[id].kind != LayerKind::kEmbedding && !exact_[id]) continue;
    for (int input : nodes[id].inputs) exact_[input] = !has_variables[input];
  }
  for (const Node& node : nodes) {
    if (!groups_.Joined(node)) {
      const DType type = exact_[node.id] ? DType::kFloat32 : this->type();
      node_values_[node.id] = NewValue(examples() * NumElements(node.output), trains[node.id], type);
      continue;
    }
    node_values_[node.id] = node_values_[groups_.ComputedBy(node)];
    if (training() && trains[node.id]) node_values_[node.id]->needs_gradient = true;
  }
}

// ---- the loss ----

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
  kernels::LossArguments a;
  a.kind = options_.loss.kind();
  a.softmax = options_.loss_plan.softmax;
  a.fused = options_.loss_plan.fused;
  a.from_logits = options_.loss.from_logits();
  a.label_smoothing = options_.loss.label_smoothing();
  const int64_t positions = options_.loss_plan.positions;
  a.examples = examples() * positions;
  a.outputs = last->numbers / a.examples;
  a.label_size = options_.label_size / positions;
  a.share = 1 / static_cast<float>(positions);
  a.other = SettingsOf(options_.loss);
  a.metrics = static_cast<int>(options_.metrics.size());
  for (int i = 0; i < a.metrics; ++i) {
    a.metric_kind[i] = options_.metrics[i].kind();
    a.metric_k[i] = options_.metrics[i].k() == 0 ? 5 : options_.metrics[i].k();
  }
  a.weights = training() ? static_cast<int64_t>(options_.loss_plan.class_weights.size()) : 0;
  const Ref weights = a.weights > 0 ? Ref{Ref::kClassWeights} : Ref{};
  const Ref by_example = New(a.examples * (1 + a.metrics) * 8);
  Ref gradients;
  if (training() && last->needs_gradient) {
    last->gradient = NewLike(*last);
    last->gradient_written = true;
    gradients = last->type == DType::kFloat32 ? last->gradient : NewNumbers(last->numbers, DType::kFloat32);
  }
  const Ref labels{Ref::kLabels}, results{Ref::kResults};
  const Ref row_weights = options_.row_weights ? Ref{Ref::kLabels, 0, examples() * options_.label_size * 4} : Ref{};
  const Ref key = gradients && type() == DType::kFloat16 ? Ref{Ref::kKey} : Ref{};  // of the loss scale
  Emit("loss", {outputs, labels, weights, key}, {by_example, gradients}, [=](const Run& r) {
    kernels::LossArguments with = a;
    with.row_weights = r.At<float>(row_weights);
    return kernels::Loss(r.stream(), with, r.At<float>(outputs), r.At<float>(labels), r.At<float>(weights),
                         r.At<kernels::StepKey>(key), r.At<float>(gradients), r.At<double>(by_example));
  });
  Emit("sums", {by_example}, {results}, [=](const Run& r) {
    return kernels::SumDoubles(r.stream(), a.examples, 1 + a.metrics, r.At<double>(by_example), r.At<double>(results));
  });
  if (gradients && last->type != DType::kFloat32) {
    EmitConvert(*this, gradients, DType::kFloat32, last->gradient, last->type, last->numbers);
  }
  return absl::OkStatus();
}

// ---- backward ----

void Builder::LowerBackward() {
  // The variables of a node, with the padding after them, are one range.
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
  std::vector<std::vector<std::function<void()>>> by_node(graph_.nodes().size());
  for (Back& back : backward_) by_node[back.node->id].push_back(std::move(back.fn));
  for (int id = static_cast<int>(graph_.nodes().size()) - 1; id >= 0; --id) {
    current_ = &graph_.nodes()[id];
    const Value* out = node_values_[id];
    // Without a gradient no output that is used depends on it.
    if (out->gradient) {
      for (size_t i = by_node[id].size(); i-- > 0;) by_node[id][i]();
    }
    if (begins[id] >= 0 && end - begins[id] >= kReleaseNumbersMin) release(begins[id]);
  }
  release(0);
}

// A segment begins at each step that reads values beyond those of the segments so far.
void Builder::MakeSegments() {
  const std::vector<Variable>& variables = graph_.variables();
  std::vector<Plan::Segment>& segments = plan_->segments_;
  segments.push_back({});
  for (int i = 0; i < static_cast<int>(plan_->steps_.size()); ++i) {
    int64_t end = 0;
    for (const Ref& ref : plan_->steps_[i].reads) {
      if (ref.place != Ref::kValues) continue;
      const auto next = std::upper_bound(variables.begin(), variables.end(), ref.offset / 4,
                                         [](int64_t offset, const Variable& v) { return offset < v.offset; });
      CAIRN_CHECK(next != variables.begin(), "a place in the space is a variable's");
      end = std::max(end, std::prev(next)->offset + std::prev(next)->size);
    }
    if (end <= segments.back().values_end) continue;
    end = std::min((end + kSegmentNumbersMin - 1) / kSegmentNumbersMin * kSegmentNumbersMin, graph_.space_size());
    if (segments.back().values_end == 0) {
      segments.back().values_end = end;
    } else {
      segments.push_back({i, end});
    }
  }
}

}  // namespace cairn::cudnn
