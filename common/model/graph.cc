#include "common/model/graph.h"

#include "common/model/graph_builder.h"

namespace cairn {

absl::StatusOr<Graph> Graph::Build(const v1::Model& model) { return GraphBuilder(model).Build(); }

int64_t Graph::parameters() const {
  int64_t sum = 0;
  for (const Variable& variable : variables_) sum += variable.size;
  return sum;
}

int64_t Graph::trainable_parameters() const {
  int64_t sum = 0;
  for (const Variable& variable : variables_) {
    if (variable.kind == VariableKind::kTrainable) sum += variable.size;
  }
  return sum;
}

const char* LayerTypeName(LayerKind kind) {
  switch (kind) {
    case LayerKind::kInput: return "input_layer";
    case LayerKind::kRescaling: return "rescaling";
    case LayerKind::kConv2D: return "conv2d";
    case LayerKind::kDepthwiseConv2D: return "depthwise_conv2d";
    case LayerKind::kBatchNormalization: return "batch_normalization";
    case LayerKind::kActivation: return "activation";
    case LayerKind::kMaxPooling2D: return "max_pooling2d";
    case LayerKind::kAveragePooling2D: return "average_pooling2d";
    case LayerKind::kGlobalAveragePooling2D: return "global_average_pooling2d";
    case LayerKind::kAdd: return "add";
    case LayerKind::kConcatenate: return "concatenate";
    case LayerKind::kFlatten: return "flatten";
    case LayerKind::kDense: return "dense";
    case LayerKind::kDropout: return "dropout";
    case LayerKind::kZeroPadding2D: return "zero_padding2d";
    case LayerKind::kLayerNormalization: return "layer_normalization";
    case LayerKind::kGroupNormalization: return "group_normalization";
    case LayerKind::kEmbedding: return "embedding";
    case LayerKind::kGlobalAveragePooling1D: return "global_average_pooling1d";
    case LayerKind::kMaxPooling1D: return "max_pooling1d";
    case LayerKind::kAveragePooling1D: return "average_pooling1d";
    case LayerKind::kConv1D: return "conv1d";
    case LayerKind::kSeparableConv2D: return "separable_conv2d";
    case LayerKind::kConv2DTranspose: return "conv2d_transpose";
    case LayerKind::kUpSampling2D: return "up_sampling2d";
    case LayerKind::kSpatialDropout2D: return "spatial_dropout2d";
    case LayerKind::kReshape: return "reshape";
    case LayerKind::kPermute: return "permute";
    case LayerKind::kMultiply: return "multiply";
    case LayerKind::kAverage: return "average";
    case LayerKind::kMaximum: return "maximum";
    case LayerKind::kMultiHeadAttention: return "multi_head_attention";
  }
  return "unknown";
}

}  // namespace cairn
