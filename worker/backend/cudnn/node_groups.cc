#include "worker/backend/cudnn/node_groups.h"

#include <algorithm>

#include "common/model/inner_node.h"
#include "worker/backend/affine.h"
#include "worker/backend/cudnn/convolve.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/fusion.h"
#include "worker/backend/limits.h"
#include "worker/backend/noise.h"

namespace cairn::cudnn {
NodeGroups::NodeGroups(const Graph& graph, const LoweringOptions& options)
    : graph_(graph),
      options_(options),
      readers_(graph.nodes().size()),
      joined_(graph.nodes().size()),
      computed_by_(graph.nodes().size()) {
  for (const Node& node : graph.nodes()) {
    for (int input : node.inputs) readers_[input].push_back(node.id);
  }
  for (const Node& node : graph.nodes()) {
    joined_[node.id] = JoinsProducer(node);
    if (!joined_[node.id]) {
      computed_by_[node.id] = node.id;
      continue;
    }
    const int producer = TakenByNormalization(node) ? std::max(node.inputs[0], node.inputs[1]) : node.inputs[0];
    computed_by_[node.id] = computed_by_[producer];
  }
}

// The later of an Add's two inputs, if it is a batch normalization that nothing else reads, computes the Add: its other
// input stands by then.
bool NodeGroups::TakenByNormalization(const Node& node) const {
  if (node.kind != LayerKind::kAdd || node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return false;
  const Node& later = graph_.nodes()[std::max(node.inputs[0], node.inputs[1])];
  const int other = std::min(node.inputs[0], node.inputs[1]);
  return later.kind == LayerKind::kBatchNormalization && readers_[later.id].size() == 1 &&
         computed_by_[other] != computed_by_[later.inputs[0]];  // two gradients in one place
}

const Node* NodeGroups::OnlyReader(const Node& node) const {
  return readers_[node.id].size() == 1 && node.id != graph_.output().id ? &graph_.nodes()[readers_[node.id][0]]
                                                                        : nullptr;
}

bool NodeGroups::NormalizedByOther(const Node& node) const {
  const Node* const add = node.kind == LayerKind::kBatchNormalization ? OnlyReader(node) : nullptr;
  if (add == nullptr || !TakenByNormalization(*add) || node.id != std::min(add->inputs[0], add->inputs[1]))
    return false;
  const Node& later = graph_.nodes()[std::max(add->inputs[0], add->inputs[1])];
  return later.trainable == node.trainable && TakesStatistics(later) == TakesStatistics(node) &&
         computed_by_[later.inputs[0]] != computed_by_[node.inputs[0]];  // two gradients in one place
}

bool NodeGroups::BiasGoesToNormalization(const Node& node) const {
  const LayerKind outer = graph_.nodes()[node.id].kind;  // of a layer within another one
  const Node* const next = AppliesActivation(outer) ? OnlyReader(node) : nullptr;
  return next != nullptr && next->kind == LayerKind::kBatchNormalization && TakesStatistics(*next) &&
         ActivationOf(node).linear();
}

// Whether a max pooling may read beyond its picture what a ZeroPadding2D would have put there: all of its windows lie
// within that.
bool NodeGroups::TakesZeros(const Node& node) const {
  if (node.kind != LayerKind::kMaxPooling2D || node.window.kernel[0] * node.window.kernel[1] > kPoolingPlacesMax)
    return false;
  const Shape& in = graph_.nodes()[node.inputs[0]].output;
  for (int i = 0; i < 2; ++i) {
    const Window& w = node.window;
    if (w.pad_begin[i] != 0 || (node.output[i] - 1) * w.strides[i] + w.dilation[i] * (w.kernel[i] - 1) + 1 > in[i])
      return false;
  }
  return true;
}

// Whether the node's output is the value of an input's node, either because it changes nothing or because that node's
// launches do its work.
bool NodeGroups::JoinsProducer(const Node& node) const {
  if (node.inputs.empty()) return false;
  const Node& producer = graph_.nodes()[node.inputs[0]];
  const bool alone = readers_[producer.id].size() == 1 && producer.id != graph_.output().id;
  switch (node.kind) {
    case LayerKind::kFlatten:
    case LayerKind::kReshape: return true;
    case LayerKind::kTimeDistributed: {
      const Node inner = InnerNode(node);
      const bool renames = inner.kind == LayerKind::kDropout || inner.kind == LayerKind::kFlatten ||
                           inner.kind == LayerKind::kReshape || inner.kind == LayerKind::kTimeDistributed;
      return renames && JoinsProducer(inner);
    }
    case LayerKind::kRescaling: return alone && producer.kind == LayerKind::kInput && !IsAffine(node);
    case LayerKind::kZeroPadding2D:
      return node.id != graph_.output().id &&
             std::all_of(readers_[node.id].begin(), readers_[node.id].end(),
                         [&](int id) { return TakesPads(graph_.nodes()[id].kind) || TakesZeros(graph_.nodes()[id]); });
    case LayerKind::kAdd: return TakenByNormalization(node);
    case LayerKind::kActivation: {
      const Activation f = ActivationOf(node);
      if (f.linear()) return true;
      if (!alone || f.kind == v1::GLU) return false;
      if (producer.kind == LayerKind::kBatchNormalization || TakenByNormalization(producer)) return f.kind == v1::RELU;
      return AppliesActivation(producer.kind) && ActivationOf(producer).linear();
    }
    default: return DrawsNoise(node.kind) && (!Trains(node) || !NoiseOf(node).has_value());
  }
}

Activation NodeGroups::ActivationOf(const Node& node) const {
  if (node.id == graph_.output().id && options_.loss_plan.fused && options_.mode != Mode::kPredict) return {};
  return {node.activation, ActivationAlpha(node)};
}

Activation NodeGroups::JoinedActivation(const Node& node) const {
  const Activation own = ActivationOf(node);
  if (!own.linear() || readers_[node.id].size() != 1) return own;
  const Node& next = graph_.nodes()[readers_[node.id][0]];
  if (next.kind != LayerKind::kActivation || !joined_[next.id]) return own;
  return ActivationOf(next);
}

kernels::Window NodeGroups::WindowOf(const Node& node) const {
  const Node& producer = graph_.nodes()[node.inputs[0]];
  kernels::Window w = WindowOn(node.window, producer.output, node.output, options_.examples);
  if (producer.kind == LayerKind::kZeroPadding2D && joined_[producer.id]) {
    w = WindowOn(node.window, graph_.nodes()[producer.inputs[0]].output, node.output, options_.examples);
    for (int i = 0; i < 2; ++i) w.pad[i] += producer.window.pad_begin[i];
  }
  return w;
}

}  // namespace cairn::cudnn
