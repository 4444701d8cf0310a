#include "common/formats/onnx/fold_batch_norm.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// The scale and shift, per channel, that follow a layer's output.
struct Affine {
  std::vector<double> scale, shift;
};

bool CanFold(const Node& node) {
  switch (node.kind) {
    case LayerKind::kConv1D:
    case LayerKind::kConv2D:
    case LayerKind::kDepthwiseConv2D:
    case LayerKind::kSeparableConv2D:
    case LayerKind::kConv3D:
    case LayerKind::kDepthwiseConv1D:
    case LayerKind::kSeparableConv1D:
    case LayerKind::kConv1DTranspose:
    case LayerKind::kConv2DTranspose:
    case LayerKind::kConv3DTranspose:
    case LayerKind::kDense: return node.activation == v1::LINEAR;
    default: return false;
  }
}

void UseBias(LayerKind kind, v1::Layer* layer) {
  switch (kind) {
    case LayerKind::kConv1D: return layer->mutable_conv1d()->set_use_bias(true);
    case LayerKind::kConv2D: return layer->mutable_conv2d()->set_use_bias(true);
    case LayerKind::kDepthwiseConv2D: return layer->mutable_depthwise_conv2d()->set_use_bias(true);
    case LayerKind::kSeparableConv2D: return layer->mutable_separable_conv2d()->set_use_bias(true);
    case LayerKind::kConv3D: return layer->mutable_conv3d()->set_use_bias(true);
    case LayerKind::kDepthwiseConv1D: return layer->mutable_depthwise_conv1d()->set_use_bias(true);
    case LayerKind::kSeparableConv1D: return layer->mutable_separable_conv1d()->set_use_bias(true);
    case LayerKind::kConv1DTranspose: return layer->mutable_conv1d_transpose()->set_use_bias(true);
    case LayerKind::kConv2DTranspose: return layer->mutable_conv2d_transpose()->set_use_bias(true);
    case LayerKind::kConv3DTranspose: return layer->mutable_conv3d_transpose()->set_use_bias(true);
    default: return layer->mutable_dense()->set_use_bias(true);
  }
}

// Empty if the layer has no such variable.
absl::Span<const float> ValuesOf(const Graph& graph, const Node& node, absl::string_view name,
                                 absl::Span<const float> space) {
  for (const int id : node.variables) {
    const Variable& v = graph.variables()[static_cast<size_t>(id)];
    if (v.name == absl::StrCat(node.name, "/", name))
      return space.subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size));
  }
  return {};
}

Affine AffineOf(const Graph& graph, const Node& bn, absl::Span<const float> space) {
  const auto gamma = ValuesOf(graph, bn, "gamma", space), beta = ValuesOf(graph, bn, "beta", space);
  const auto mean = ValuesOf(graph, bn, "moving_mean", space), variance = ValuesOf(graph, bn, "moving_variance", space);
  Affine affine;
  for (size_t c = 0; c < mean.size(); ++c) {
    const double scale =
        (gamma.empty() ? 1.0 : gamma[c]) /
        std::sqrt(static_cast<double>(variance[c]) + static_cast<double>(bn.layer.batch_normalization().epsilon()));
    affine.scale.push_back(scale);
    affine.shift.push_back((beta.empty() ? 0.0 : beta[c]) - mean[c] * scale);
  }
  return affine;
}

// The output channel of a kernel's i-th number. Kernels have output channels last, except for transposed convolutions;
// depthwise kernels have two channel axes.
size_t ChannelOf(LayerKind kind, const Variable& v, size_t i, size_t channels) {
  if (kind == LayerKind::kConv1DTranspose || kind == LayerKind::kConv2DTranspose ||
      kind == LayerKind::kConv3DTranspose) {
    return i / static_cast<size_t>(v.shape.back()) % channels;
  }
  return i % channels;
}

class Folder {
 public:
  Folder(const Graph& graph, absl::Span<const float> space) : graph_(graph), space_(space) {}

  absl::StatusOr<FoldedModel> Fold() {
    FindFoldable();
    v1::Model model;
    for (const Node& node : graph_.nodes()) {
      if (into_.contains(node.id)) continue;
      v1::Layer* layer = model.add_layers();
      *layer = node.layer;
      layer->clear_submodel();  // calls of one may be folded differently
      layer->clear_inputs();
      for (const int input : node.inputs) layer->add_inputs(NameFor(input));
      if (affines_.contains(node.id)) UseBias(node.kind, layer);
    }
    for (const int output : graph_.outputs()) {  // of one alone it is the last layer
      if (graph_.outputs().size() > 1) model.add_outputs(NameFor(output));
    }
    CAIRN_ASSIGN_OR_RETURN(Graph folded, Graph::Build(model));
    std::vector<float> space(static_cast<size_t>(folded.space_size()), 0.0f);
    for (const Variable& v : folded.variables()) FillVariable(folded, v, absl::MakeSpan(space));
    return FoldedModel{std::move(folded), std::move(space)};
  }

 private:
  // Nodes that stay as they are: outputs by whose names a job or a program knows them, and calls of one layer.
  std::vector<bool> Kept() const {
    std::vector<bool> kept(graph_.nodes().size(), false);
    for (const int output : graph_.outputs()) kept[static_cast<size_t>(output)] = graph_.outputs().size() > 1;
    for (const Node& node : graph_.nodes()) {
      if (node.shares < 0) continue;
      kept[static_cast<size_t>(node.id)] = kept[static_cast<size_t>(node.shares)] = true;
    }
    return kept;
  }

  void FindFoldable() {
    const std::vector<bool> kept = Kept();
    std::vector<int> uses(graph_.nodes().size(), 0);
    for (const Node& node : graph_.nodes()) {
      for (const int input : node.inputs) ++uses[static_cast<size_t>(input)];
    }
    for (const Node& node : graph_.nodes()) {
      if (node.kind != LayerKind::kBatchNormalization) continue;
      const Node& before = graph_.nodes()[static_cast<size_t>(node.inputs[0])];
      if (!CanFold(before) || uses[static_cast<size_t>(before.id)] != 1) continue;
      if (kept[static_cast<size_t>(node.id)] || kept[static_cast<size_t>(before.id)]) continue;
      into_[node.id] = before.id;
      affines_[before.id] = AffineOf(graph_, node, space_);
    }
  }

  const std::string& NameFor(int id) const {
    const auto it = into_.find(id);
    return graph_.nodes()[static_cast<size_t>(it == into_.end() ? id : it->second)].name;
  }

  void FillVariable(const Graph& folded, const Variable& v, absl::Span<float> space) const {
    const std::string& layer = folded.nodes()[static_cast<size_t>(v.node)].name;
    const auto original =
        std::find_if(graph_.nodes().begin(), graph_.nodes().end(), [&](const Node& n) { return n.name == layer; });
    const absl::Span<float> to = space.subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size));
    const absl::string_view name = absl::string_view(v.name).substr(layer.size() + 1);
    const absl::Span<const float> from = ValuesOf(graph_, *original, name, space_);
    std::copy(from.begin(), from.end(), to.begin());  // empty if there was no bias
    const auto it = affines_.find(original->id);
    if (it == affines_.end() || name == "depthwise_kernel") return;
    const auto& [scale, shift] = it->second;
    for (size_t i = 0; i < to.size(); ++i) {
      if (name == "bias") {
        to[i] = static_cast<float>(static_cast<double>(to[i]) * scale[i] + shift[i]);
      } else {
        to[i] = static_cast<float>(static_cast<double>(to[i]) * scale[ChannelOf(original->kind, v, i, scale.size())]);
      }
    }
  }

  const Graph& graph_;
  const absl::Span<const float> space_;
  std::map<int, int> into_;        // from a BatchNormalization to the node that replaces it
  std::map<int, Affine> affines_;  // the scale and shift of such a node
};

}  // namespace

absl::StatusOr<FoldedModel> FoldBatchNormalizations(const Graph& graph, absl::Span<const float> space) {
  return Folder(graph, space).Fold();
}

}  // namespace cairn
