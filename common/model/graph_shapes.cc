// The layers without variables and windows, and the switch over all of them.
#include "common/model/graph_shapes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/model/layer_fields.h"

namespace cairn {
namespace layers {
namespace {

constexpr float kLeakyReluLayerSlope = 0.3f;  // keras.layers.LeakyReLU

absl::Status InferInput(Node* node) {
  const Numbers& shape = node->layer.input().shape();
  if (shape.empty()) return Bad("shape is missing; give it without the batch dimension, such as [28,28,1] or [64]");
  if (shape.size() > static_cast<int>(kDimensionsMax)) {
    return Bad("shape has ", shape.size(), " dimensions; give it without the batch dimension: [features], ",
               "[steps, features] or [height, width, channels]");
  }
  node->output.assign(shape.begin(), shape.end());
  for (int64_t dim : node->output) {
    if (dim <= 0) return Bad("shape ", ToString(node->output), " has a dimension that is not positive");
  }
  return absl::OkStatus();
}

absl::Status InferRescaling(Node* node) {
  const v1::Rescaling& rescaling = node->layer.rescaling();
  if (rescaling.scale() == 0 || !std::isfinite(rescaling.scale())) {
    return Bad("scale is missing, 0 or not finite; use a number such as 0.00392157 (1/255)");
  }
  if (!std::isfinite(rescaling.offset())) return Bad("offset is not finite; use a number");
  return absl::OkStatus();
}

absl::Status InferActivation(Node* node) {
  v1::ActivationLayer* layer = node->layer.mutable_activation();
  if (layer->activation() == v1::ACTIVATION_UNSPECIFIED) return Bad("activation is missing; use RELU, say");
  CAIRN_RETURN_IF_ERROR(ReadActivation(layer, node));
  const auto positive = [](const char* field, float value, const char* example) {
    if (value >= 0 && std::isfinite(value)) return absl::OkStatus();
    return Bad(field, " ", value, " is negative or not finite; use a number such as ", example);
  };
  if (node->activation == v1::LEAKY_RELU) {
    if (!layer->has_negative_slope()) layer->set_negative_slope(kLeakyReluLayerSlope);
    CAIRN_RETURN_IF_ERROR(positive("negative_slope", layer->negative_slope(), "0.3"));
    node->negative_slope = layer->negative_slope();
  } else if (layer->has_negative_slope()) {
    return Bad("negative_slope is only for LEAKY_RELU; leave it away");
  }
  if (node->activation == v1::ELU) {
    if (!layer->has_alpha()) layer->set_alpha(kEluAlpha);
    CAIRN_RETURN_IF_ERROR(positive("alpha", layer->alpha(), "1"));
    node->alpha = layer->alpha();
  } else if (layer->has_alpha()) {
    return Bad("alpha is only for ELU; leave it away");
  }
  return absl::OkStatus();
}

absl::Status InferReshape(const Shape& input, Node* node) {
  Numbers* target = node->layer.mutable_reshape()->mutable_target_shape();
  if (target->empty()) return Bad("target_shape is missing; give it without the batch dimension, such as [7,7,64]");
  if (target->size() > static_cast<int>(kDimensionsMax)) {
    return Bad("target_shape has ", target->size(), " dimensions; at most ", kDimensionsMax,
               " are supported, without the batch dimension");
  }
  const int64_t numbers = NumElements(input);
  int free = -1;
  int64_t known = 1;
  for (int i = 0; i < target->size(); ++i) {
    const int32_t dim = target->Get(i);
    if (dim == -1 && free < 0) {
      free = i;
      continue;
    }
    if (dim == -1) return Bad("target_shape has more than one -1; give all but one");
    if (dim <= 0) return Bad("target_shape ", dim, " is not positive; use 1 or more, or one -1 for what is left");
    known = SaturatingMultiply(known, dim);
  }
  if (free >= 0 && numbers % known == 0) {
    target->Set(free, static_cast<int32_t>(numbers / known));
    known = numbers;
  }
  const Shape shape(target->begin(), target->end());
  if (known != numbers || (free >= 0 && shape[free] == -1)) {
    return Bad("target_shape ", ToString(shape), " does not fit its input ", ToString(input), " of ", numbers,
               " numbers; make their products equal");
  }
  node->output = shape;
  return absl::OkStatus();
}

absl::Status InferPermute(const Shape& input, Node* node) {
  const Numbers& dims = node->layer.permute().dims();
  const int rank = static_cast<int>(input.size());
  std::vector<int32_t> sorted(dims.begin(), dims.end());
  std::sort(sorted.begin(), sorted.end());
  bool permutation = dims.size() == rank;
  for (int i = 0; permutation && i < rank; ++i) permutation = sorted[i] == i + 1;
  if (!permutation) {
    return Bad("dims [", absl::StrJoin(dims, ","), "] is no order of the axes 1 .. ", rank, " of its input ",
               ToString(input), "; name each once, such as ",
               rank == 2   ? "[2,1]"
               : rank == 3 ? "[3,1,2]"
                           : "[1]");
  }
  for (int i = 0; i < rank; ++i) node->output[i] = input[dims[i] - 1];
  return absl::OkStatus();
}

absl::Status NeedOneShape(absl::Span<const Shape> inputs) {
  for (const Shape& input : inputs) {
    if (input != inputs[0]) {
      return Bad("its inputs have different shapes, ", ToString(inputs[0]), " and ", ToString(input),
                 "; make them equal, by a 1x1 Conv2D on one of them, say");
    }
  }
  return absl::OkStatus();
}

// As numpy broadcasts: axes are counted from the last one, one of 1 is repeated.
absl::Status InferMultiply(absl::Span<const Shape> inputs, Node* node) {
  Shape output = inputs[0];
  for (const Shape& input : inputs) {
    if (input.size() > output.size()) output.insert(output.begin(), input.size() - output.size(), 1);
    for (size_t i = 0; i < input.size(); ++i) {
      int64_t& to = output[output.size() - 1 - i];
      const int64_t dim = input[input.size() - 1 - i];
      if (to != dim && to != 1 && dim != 1) {
        return Bad("its inputs ", ToString(inputs[0]), " and ", ToString(input),
                   " differ in an axis that is 1 in neither; make the axes equal or 1");
      }
      to = std::max(to, dim);
    }
  }
  node->output = output;
  return absl::OkStatus();
}

absl::Status InferConcatenate(absl::Span<const Shape> inputs, Node* node) {
  int64_t last = 0;
  for (const Shape& input : inputs) {
    if (input.size() != inputs[0].size() || !std::equal(input.begin(), input.end() - 1, inputs[0].begin())) {
      return Bad("its inputs ", ToString(inputs[0]), " and ", ToString(input),
                 " differ in more than the last axis, along which they are joined; make the other axes equal");
    }
    last += input.back();
  }
  node->output.back() = last;
  return absl::OkStatus();
}

absl::Status InferKind(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::Layer* layer = &node->layer;
  switch (node->kind) {
    case LayerKind::kInput: return InferInput(node);
    case LayerKind::kRescaling: return InferRescaling(node);
    case LayerKind::kConv2D: return InferConv2D(inputs[0], node, variables);
    case LayerKind::kDepthwiseConv2D: return InferDepthwiseConv2D(inputs[0], node, variables);
    case LayerKind::kBatchNormalization: return InferBatchNormalization(inputs[0], node, variables);
    case LayerKind::kActivation: return InferActivation(node);
    case LayerKind::kMaxPooling2D: return InferPooling2D(inputs[0], layer->mutable_max_pooling2d(), node);
    case LayerKind::kAveragePooling2D: return InferPooling2D(inputs[0], layer->mutable_average_pooling2d(), node);
    case LayerKind::kGlobalAveragePooling2D:
      CAIRN_RETURN_IF_ERROR(NeedImage(inputs[0]));
      node->output = {inputs[0][2]};
      return absl::OkStatus();
    case LayerKind::kAdd:
    case LayerKind::kAverage:
    case LayerKind::kMaximum: return NeedOneShape(inputs);
    case LayerKind::kConcatenate: return InferConcatenate(inputs, node);
    case LayerKind::kFlatten: node->output = {NumElements(inputs[0])}; return absl::OkStatus();
    case LayerKind::kDense: return InferDense(inputs[0], node, variables);
    case LayerKind::kDropout: return NeedRate("rate", layer->dropout().rate());
    case LayerKind::kZeroPadding2D: return InferZeroPadding2D(inputs[0], node);
    case LayerKind::kLayerNormalization: return InferLayerNormalization(inputs[0], node, variables);
    case LayerKind::kGroupNormalization: return InferGroupNormalization(inputs[0], node, variables);
    case LayerKind::kEmbedding: return InferEmbedding(inputs[0], node, variables);
    case LayerKind::kGlobalAveragePooling1D:
      CAIRN_RETURN_IF_ERROR(NeedSequence(inputs[0]));
      node->output = {inputs[0][1]};
      return absl::OkStatus();
    case LayerKind::kMaxPooling1D: return InferPooling1D(inputs[0], layer->mutable_max_pooling1d(), node);
    case LayerKind::kAveragePooling1D: return InferPooling1D(inputs[0], layer->mutable_average_pooling1d(), node);
    case LayerKind::kConv1D: return InferConv1D(inputs[0], node, variables);
    case LayerKind::kSeparableConv2D: return InferSeparableConv2D(inputs[0], node, variables);
    case LayerKind::kConv2DTranspose: return InferConv2DTranspose(inputs[0], node, variables);
    case LayerKind::kUpSampling2D: return InferUpSampling2D(inputs[0], node);
    case LayerKind::kSpatialDropout2D:
      CAIRN_RETURN_IF_ERROR(NeedImage(inputs[0]));
      return NeedRate("rate", layer->spatial_dropout2d().rate());
    case LayerKind::kReshape: return InferReshape(inputs[0], node);
    case LayerKind::kPermute: return InferPermute(inputs[0], node);
    case LayerKind::kMultiply: return InferMultiply(inputs, node);
    case LayerKind::kMultiHeadAttention: return InferMultiHeadAttention(inputs, node, variables);
  }
  return absl::InternalError("a layer kind without inference");
}

}  // namespace
}  // namespace layers

int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

absl::Status InferLayer(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  if (!inputs.empty()) node->output = inputs[0];  // most layers keep it, or most of it
  CAIRN_RETURN_IF_ERROR(layers::InferKind(inputs, node, variables));
  int64_t size = 1;
  for (int64_t dim : node->output) size = SaturatingMultiply(size, dim);
  if (size > kLayerOutputMax) {
    return layers::Bad("its output ", ToString(node->output), " has too many numbers; the limit is ", kLayerOutputMax,
                       " for one example");
  }
  return absl::OkStatus();
}

}  // namespace cairn
