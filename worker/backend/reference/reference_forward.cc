// The layers' way forward: which formula each takes and where its numbers are.
#include <algorithm>

#include "common/model/call_mode.h"
#include "worker/backend/dropout.h"
#include "worker/backend/embedding.h"
#include "worker/backend/reference/reference_net.h"

namespace cairn {

using reference::AttentionShape;
using reference::Geometry;

Geometry ReferenceNet::GeometryOf(const Node& node) const {
  Geometry g{examples_, ShapeOf(node, 0), node.output, node.window};
  switch (node.kind) {
    case LayerKind::kConv1D:
    case LayerKind::kMaxPooling1D:
    case LayerKind::kAveragePooling1D:
    case LayerKind::kGlobalAveragePooling1D:
      g.input.insert(g.input.begin(), 1);  // a sequence is an image of height 1
      g.output.insert(g.output.begin(), 1);
      return g;
    default: return g;
  }
}

Geometry ReferenceNet::DepthwiseOf(const Node& node) const {
  Geometry g = GeometryOf(node);
  g.output[2] = g.input[2] * node.layer.separable_conv2d().depth_multiplier();
  return g;
}

Geometry ReferenceNet::PointwiseOf(const Node& node) const {
  return {examples_, DepthwiseOf(node).output, node.output, Window{}};
}

AttentionShape ReferenceNet::AttentionOf(const Node& node) const {
  const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
  return {examples_,     ShapeOf(node, 0)[0], ShapeOf(node, 1)[0],  mha.num_heads(),
          mha.key_dim(), mha.value_dim(),     mha.use_causal_mask()};
}

// Into `before`: the node without its activation.
absl::Status ReferenceNet::ForwardNode(const Node& node, const StepInfo* training, absl::Span<const double> values) {
  if (InfersAlways(node)) training = nullptr;
  const Geometry g = GeometryOf(node);
  const std::vector<double>& x = nodes_[node.inputs[0]].output;
  Activations& here = nodes_[node.id];
  const absl::Span<double> y = absl::MakeSpan(here.before);
  const auto variable = [&](const char* name) { return VariableOf(node, name, values); };
  switch (node.kind) {
    case LayerKind::kInput:
    case LayerKind::kFlatten:
    case LayerKind::kReshape:
    case LayerKind::kActivation: std::copy(x.begin(), x.end(), y.begin()); break;
    case LayerKind::kRescaling: {
      const v1::Rescaling& r = node.layer.rescaling();
      std::transform(x.begin(), x.end(), y.begin(), [&](double v) { return v * r.scale() + r.offset(); });
      break;
    }
    case LayerKind::kConv2D:
    case LayerKind::kConv1D: reference::Conv2D(g, x, variable("kernel"), variable("bias"), y); break;
    case LayerKind::kDepthwiseConv2D: reference::DepthwiseConv2D(g, x, variable("kernel"), variable("bias"), y); break;
    case LayerKind::kBatchNormalization: {
      const bool own = training != nullptr && node.trainable;  // a frozen layer keeps to the moving statistics
      if (own) here.statistics = reference::Statistics(g.input.back(), x);
      const absl::Span<const double> mean = own ? here.statistics.mean : variable("moving_mean");
      const absl::Span<const double> variance = own ? here.statistics.variance : variable("moving_variance");
      reference::BatchNormalization(x, mean, variance, node.layer.batch_normalization().epsilon(), variable("gamma"),
                                    variable("beta"), y);
      break;
    }
    case LayerKind::kMaxPooling2D:
    case LayerKind::kMaxPooling1D: reference::MaxPooling2D(g, x, y); break;
    case LayerKind::kAveragePooling2D:
    case LayerKind::kAveragePooling1D: reference::AveragePooling2D(g, x, y); break;
    case LayerKind::kGlobalAveragePooling2D:
    case LayerKind::kGlobalAveragePooling1D: reference::GlobalAveragePooling2D(g, x, y); break;
    case LayerKind::kAdd:
    case LayerKind::kAverage:
    case LayerKind::kMaximum:
    case LayerKind::kMultiply:
    case LayerKind::kConcatenate: ForwardJoin(node, y); break;
    case LayerKind::kDense:
      reference::Dense(g.input.back(), g.output.back(), x, variable("kernel"), variable("bias"), y);
      break;
    case LayerKind::kDropout: {
      here.mask.assign(y.size(), 1.0f);
      if (training != nullptr) {
        DropoutMask(*training, node.id, node.layer.dropout().rate()).Fill(0, absl::MakeSpan(here.mask));
      }
      for (size_t i = 0; i < y.size(); ++i) y[i] = x[i] * here.mask[i];
      break;
    }
    case LayerKind::kZeroPadding2D: reference::ZeroPadding2D(g, x, y); break;
    case LayerKind::kLayerNormalization:
      reference::GroupNormalization(static_cast<int64_t>(x.size()) / g.input.back(), g.input.back(), 1,
                                    node.layer.layer_normalization().epsilon(), x, variable("gamma"), variable("beta"),
                                    y);
      break;
    case LayerKind::kGroupNormalization: {
      const v1::GroupNormalization& norm = node.layer.group_normalization();
      reference::GroupNormalization(examples_, g.input.back(), norm.groups(), norm.epsilon(), x, variable("gamma"),
                                    variable("beta"), y);
      break;
    }
    case LayerKind::kEmbedding: return ForwardEmbedding(node, variable("embeddings"), y);
    case LayerKind::kSeparableConv2D: ForwardSeparable(node, values, y); break;
    case LayerKind::kConv2DTranspose: reference::Conv2DTranspose(g, x, variable("kernel"), variable("bias"), y); break;
    case LayerKind::kUpSampling2D:
      reference::UpSampling2D(g, node.layer.up_sampling2d().interpolation() == v1::UpSampling2D::BILINEAR, x, y);
      break;
    case LayerKind::kSpatialDropout2D: {
      const int64_t channels = g.input[2], pixels = g.input[0] * g.input[1];
      here.mask.assign(examples_ * channels, 1.0f);
      if (training != nullptr) {
        DropoutMask(*training, node.id, node.layer.spatial_dropout2d().rate()).Fill(0, absl::MakeSpan(here.mask));
      }
      for (size_t i = 0; i < y.size(); ++i) y[i] = x[i] * here.mask[i / (pixels * channels) * channels + i % channels];
      break;
    }
    case LayerKind::kPermute: {
      const std::vector<int64_t> from = reference::PermutedPlaces(examples_, g.input, node.layer.permute().dims());
      for (size_t i = 0; i < y.size(); ++i) y[i] = x[from[i]];
      break;
    }
    case LayerKind::kMultiHeadAttention: ForwardAttention(node, training, values, y); break;
  }
  return absl::OkStatus();
}

void ReferenceNet::ForwardJoin(const Node& node, absl::Span<double> y) {
  int64_t place = 0;  // Concatenate: of the input's first channel
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const std::vector<double>& from = nodes_[node.inputs[k]].output;
    const int64_t channels = ShapeOf(node, k).back();
    switch (node.kind) {
      case LayerKind::kAdd:
        for (size_t i = 0; i < y.size(); ++i) y[i] += from[i];
        break;
      case LayerKind::kAverage:
        for (size_t i = 0; i < y.size(); ++i) y[i] += from[i] / static_cast<double>(node.inputs.size());
        break;
      case LayerKind::kMaximum:
        for (size_t i = 0; i < y.size(); ++i) y[i] = k == 0 ? from[i] : std::max(y[i], from[i]);
        break;
      case LayerKind::kMultiply: {
        const std::vector<int64_t> places = reference::BroadcastPlaces(examples_, ShapeOf(node, k), node.output);
        for (size_t i = 0; i < y.size(); ++i) y[i] = k == 0 ? from[places[i]] : y[i] * from[places[i]];
        break;
      }
      default:  // Concatenate
        for (size_t i = 0; i < from.size(); ++i) {
          y[i / channels * node.output.back() + place + i % channels] = from[i];
        }
        place += channels;
        break;
    }
  }
}

void ReferenceNet::ForwardSeparable(const Node& node, absl::Span<const double> values, absl::Span<double> y) {
  const Geometry depthwise = DepthwiseOf(node), pointwise = PointwiseOf(node);
  std::vector<double>& between = nodes_[node.id].between;
  between.assign(examples_ * NumElements(depthwise.output), 0.0);
  reference::DepthwiseConv2D(depthwise, nodes_[node.inputs[0]].output, VariableOf(node, "depthwise_kernel", values), {},
                             absl::MakeSpan(between));
  reference::Conv2D(pointwise, between, VariableOf(node, "pointwise_kernel", values), VariableOf(node, "bias", values),
                    y);
}

absl::Status ReferenceNet::ForwardEmbedding(const Node& node, absl::Span<const double> table,
                                            absl::Span<double> y) const {
  const std::vector<double>& ids = nodes_[node.inputs[0]].output;
  const int64_t rows = node.layer.embedding().input_dim(), width = node.output.back();
  for (size_t i = 0; i < ids.size(); ++i) {
    const float id = static_cast<float>(ids[i]);
    const int64_t row = EmbeddingRow(id, rows);
    if (row < 0) return BadEmbeddingId(node, static_cast<int64_t>(i) / NumElements(ShapeOf(node, 0)), id);
    for (int64_t c = 0; c < width; ++c) y[i * width + c] = table[row * width + c];
  }
  return absl::OkStatus();
}

void ReferenceNet::ForwardAttention(const Node& node, const StepInfo* training, absl::Span<const double> values,
                                    absl::Span<double> y) {
  const AttentionShape a = AttentionOf(node);
  Activations& here = nodes_[node.id];
  const std::vector<double>&query = nodes_[node.inputs[0]].output, &value = nodes_[node.inputs[1]].output,
        &key = nodes_[node.inputs.back()].output;
  const auto project = [&](const std::vector<double>& x, int64_t in, int64_t out, const char* kernel, const char* bias,
                           std::vector<double>* to) {
    to->assign(static_cast<int64_t>(x.size()) / in * out, 0.0);
    reference::Dense(in, out, x, VariableOf(node, kernel, values), VariableOf(node, bias, values), absl::MakeSpan(*to));
  };
  const int64_t d = ShapeOf(node, 0)[1];
  project(query, d, a.heads * a.key_dim, "query/kernel", "query/bias", &here.query);
  project(key, ShapeOf(node, node.inputs.size() - 1)[1], a.heads * a.key_dim, "key/kernel", "key/bias", &here.key);
  project(value, ShapeOf(node, 1)[1], a.heads * a.value_dim, "value/kernel", "value/bias", &here.value);
  here.mask.assign(a.scores(), 1.0f);
  const float rate = node.layer.multi_head_attention().dropout();
  if (training != nullptr && rate > 0) DropoutMask(*training, node.id, rate).Fill(0, absl::MakeSpan(here.mask));
  here.weights.assign(a.scores(), 0.0);
  here.heads.assign(examples_ * a.queries * a.heads * a.value_dim, 0.0);
  reference::Attention(a, here.query, here.key, here.value, here.mask, absl::MakeSpan(here.weights),
                       absl::MakeSpan(here.heads));
  reference::Dense(a.heads * a.value_dim, d, here.heads, VariableOf(node, "attention_output/kernel", values),
                   VariableOf(node, "attention_output/bias", values), y);
}

}  // namespace cairn
