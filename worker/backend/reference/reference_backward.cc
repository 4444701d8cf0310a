// The layers' way back: which formula each takes and where its numbers are.
#include <algorithm>

#include "common/model/call_mode.h"
#include "worker/backend/reference/reference_net.h"

namespace cairn {

using reference::AttentionShape;
using reference::Geometry;

// dy: with regard to `before`. Adds to the gradients of the node's inputs and variables.
void ReferenceNet::BackwardNode(const Node& node, absl::Span<const double> dy, absl::Span<const double> values,
                                absl::Span<double> gradients) {
  const Geometry g = GeometryOf(node);
  const std::vector<double>& x = nodes_[node.inputs[0]].output;
  const absl::Span<double> dx = absl::MakeSpan(nodes_[node.inputs[0]].gradient);
  const auto variable = [&](const char* name) { return VariableOf(node, name, values); };
  const auto gradient = [&](const char* name) { return VariableOf(node, name, gradients); };
  switch (node.kind) {
    case LayerKind::kInput:
    case LayerKind::kFlatten:
    case LayerKind::kReshape:
    case LayerKind::kActivation:
      for (size_t i = 0; i < dy.size(); ++i) dx[i] += dy[i];
      break;
    case LayerKind::kRescaling:
      for (size_t i = 0; i < dy.size(); ++i) dx[i] += dy[i] * node.layer.rescaling().scale();
      break;
    case LayerKind::kConv2D:
    case LayerKind::kConv1D:
      reference::Conv2DBackward(g, x, variable("kernel"), dy, dx, gradient("kernel"), gradient("bias"));
      break;
    case LayerKind::kDepthwiseConv2D:
      reference::DepthwiseConv2DBackward(g, x, variable("kernel"), dy, dx, gradient("kernel"), gradient("bias"));
      break;
    case LayerKind::kBatchNormalization: {
      if (!node.trainable || InfersAlways(node)) {
        reference::ConstantBatchNormalizationBackward(x, variable("moving_mean"), variable("moving_variance"),
                                                      node.layer.batch_normalization().epsilon(), variable("gamma"), dy,
                                                      dx, gradient("gamma"), gradient("beta"));
        break;
      }
      const reference::BatchStatistics& statistics = nodes_[node.id].statistics;
      reference::BatchNormalizationBackward(x, statistics, node.layer.batch_normalization().epsilon(),
                                            variable("gamma"), dy, dx, gradient("gamma"), gradient("beta"));
      const absl::Span<double> mean = gradient("moving_mean"), variance = gradient("moving_variance");
      for (size_t c = 0; c < mean.size(); ++c) {
        mean[c] = static_cast<double>(examples_) * statistics.mean[c];
        variance[c] = static_cast<double>(examples_) * statistics.variance[c];
      }
      break;
    }
    case LayerKind::kMaxPooling2D:
    case LayerKind::kMaxPooling1D: reference::MaxPooling2DBackward(g, x, dy, dx); break;
    case LayerKind::kAveragePooling2D:
    case LayerKind::kAveragePooling1D: reference::AveragePooling2DBackward(g, dy, dx); break;
    case LayerKind::kGlobalAveragePooling2D:
    case LayerKind::kGlobalAveragePooling1D: reference::GlobalAveragePooling2DBackward(g, dy, dx); break;
    case LayerKind::kAdd:
    case LayerKind::kAverage:
    case LayerKind::kMaximum:
    case LayerKind::kMultiply:
    case LayerKind::kConcatenate: BackwardJoin(node, dy); break;
    case LayerKind::kDense:
      reference::DenseBackward(g.input.back(), g.output.back(), x, variable("kernel"), dy, dx, gradient("kernel"),
                               gradient("bias"));
      break;
    case LayerKind::kDropout:
      for (size_t i = 0; i < dy.size(); ++i) dx[i] += dy[i] * nodes_[node.id].mask[i];
      break;
    case LayerKind::kZeroPadding2D: reference::ZeroPadding2DBackward(g, dy, dx); break;
    case LayerKind::kLayerNormalization:
      reference::GroupNormalizationBackward(static_cast<int64_t>(x.size()) / g.input.back(), g.input.back(), 1,
                                            node.layer.layer_normalization().epsilon(), x, variable("gamma"), dy, dx,
                                            gradient("gamma"), gradient("beta"));
      break;
    case LayerKind::kGroupNormalization: {
      const v1::GroupNormalization& norm = node.layer.group_normalization();
      reference::GroupNormalizationBackward(examples_, g.input.back(), norm.groups(), norm.epsilon(), x,
                                            variable("gamma"), dy, dx, gradient("gamma"), gradient("beta"));
      break;
    }
    case LayerKind::kEmbedding: {
      const absl::Span<double> table = gradient("embeddings");
      const int64_t width = node.output.back();
      for (size_t i = 0; i < dy.size(); ++i) table[static_cast<int64_t>(x[i / width]) * width + i % width] += dy[i];
      break;  // the ids have no gradient
    }
    case LayerKind::kSeparableConv2D: BackwardSeparable(node, dy, values, gradients); break;
    case LayerKind::kConv2DTranspose:
      reference::Conv2DTransposeBackward(g, x, variable("kernel"), dy, dx, gradient("kernel"), gradient("bias"));
      break;
    case LayerKind::kUpSampling2D:
      reference::UpSampling2DBackward(g, node.layer.up_sampling2d().interpolation() == v1::UpSampling2D::BILINEAR, dy,
                                      dx);
      break;
    case LayerKind::kSpatialDropout2D: {
      const int64_t channels = g.input[2], pixels = g.input[0] * g.input[1];
      const std::vector<float>& mask = nodes_[node.id].mask;
      for (size_t i = 0; i < dy.size(); ++i) {
        dx[i] += dy[i] * mask[i / (pixels * channels) * channels + i % channels];
      }
      break;
    }
    case LayerKind::kPermute: {
      const std::vector<int64_t> from = reference::PermutedPlaces(examples_, g.input, node.layer.permute().dims());
      for (size_t i = 0; i < dy.size(); ++i) dx[from[i]] += dy[i];
      break;
    }
    case LayerKind::kMultiHeadAttention: BackwardAttention(node, dy, values, gradients); break;
  }
}

void ReferenceNet::BackwardJoin(const Node& node, absl::Span<const double> dy) {
  int64_t place = 0;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    std::vector<double>& dx = nodes_[node.inputs[k]].gradient;
    const int64_t channels = ShapeOf(node, k).back();
    switch (node.kind) {
      case LayerKind::kAdd:
        for (size_t i = 0; i < dx.size(); ++i) dx[i] += dy[i];
        break;
      case LayerKind::kAverage:
        for (size_t i = 0; i < dx.size(); ++i) dx[i] += dy[i] / static_cast<double>(node.inputs.size());
        break;
      case LayerKind::kMaximum: {
        const std::vector<double>& y = nodes_[node.id].before;
        const auto first_with = [&](size_t i) {
          size_t first = 0;
          while (nodes_[node.inputs[first]].output[i] != y[i]) ++first;
          return first;
        };
        for (size_t i = 0; i < dx.size(); ++i) dx[i] += first_with(i) == k ? dy[i] : 0.0;
        break;
      }
      case LayerKind::kMultiply: {
        std::vector<double> product(dy.begin(), dy.end());  // with all the others
        for (size_t other = 0; other < node.inputs.size(); ++other) {
          if (other == k) continue;
          const std::vector<double>& x = nodes_[node.inputs[other]].output;
          const std::vector<int64_t> places = reference::BroadcastPlaces(examples_, ShapeOf(node, other), node.output);
          for (size_t i = 0; i < product.size(); ++i) product[i] *= x[places[i]];
        }
        const std::vector<int64_t> places = reference::BroadcastPlaces(examples_, ShapeOf(node, k), node.output);
        for (size_t i = 0; i < product.size(); ++i) dx[places[i]] += product[i];
        break;
      }
      default:  // Concatenate
        for (size_t i = 0; i < dx.size(); ++i) dx[i] += dy[i / channels * node.output.back() + place + i % channels];
        place += channels;
        break;
    }
  }
}

void ReferenceNet::BackwardSeparable(const Node& node, absl::Span<const double> dy, absl::Span<const double> values,
                                     absl::Span<double> gradients) {
  const std::vector<double>& between = nodes_[node.id].between;
  std::vector<double> dbetween(between.size(), 0.0);
  reference::Conv2DBackward(PointwiseOf(node), between, VariableOf(node, "pointwise_kernel", values), dy,
                            absl::MakeSpan(dbetween), VariableOf(node, "pointwise_kernel", gradients),
                            VariableOf(node, "bias", gradients));
  Activations& input = nodes_[node.inputs[0]];
  reference::DepthwiseConv2DBackward(DepthwiseOf(node), input.output, VariableOf(node, "depthwise_kernel", values),
                                     dbetween, absl::MakeSpan(input.gradient),
                                     VariableOf(node, "depthwise_kernel", gradients), {});
}

void ReferenceNet::BackwardAttention(const Node& node, absl::Span<const double> dy, absl::Span<const double> values,
                                     absl::Span<double> gradients) {
  const AttentionShape a = AttentionOf(node);
  const Activations& here = nodes_[node.id];
  const auto project = [&](int64_t in, int64_t out, const std::vector<double>& x, const char* kernel, const char* bias,
                           absl::Span<const double> to, std::vector<double>* dx) {
    reference::DenseBackward(in, out, x, VariableOf(node, kernel, values), to, absl::MakeSpan(*dx),
                             VariableOf(node, kernel, gradients), VariableOf(node, bias, gradients));
  };
  std::vector<double> dheads(here.heads.size(), 0.0), dquery(here.query.size(), 0.0), dkey(here.key.size(), 0.0),
      dvalue(here.value.size(), 0.0);
  const int64_t d = ShapeOf(node, 0)[1];
  project(a.heads * a.value_dim, d, here.heads, "attention_output/kernel", "attention_output/bias", dy, &dheads);
  reference::AttentionBackward(a, here.query, here.key, here.value, here.mask, here.weights, dheads,
                               absl::MakeSpan(dquery), absl::MakeSpan(dkey), absl::MakeSpan(dvalue));
  const auto input = [&](size_t k) -> Activations& { return nodes_[node.inputs[k]]; };
  const size_t key = node.inputs.size() - 1;
  project(d, a.heads * a.key_dim, input(0).output, "query/kernel", "query/bias", dquery, &input(0).gradient);
  project(ShapeOf(node, key)[1], a.heads * a.key_dim, input(key).output, "key/kernel", "key/bias", dkey,
          &input(key).gradient);
  project(ShapeOf(node, 1)[1], a.heads * a.value_dim, input(1).output, "value/kernel", "value/bias", dvalue,
          &input(1).gradient);
}

}  // namespace cairn
