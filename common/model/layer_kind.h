// The kinds of layers. A layer's row, layers::k<name>Layer, is in a file of common/model/layers/.
#pragma once

namespace cairn {

// clang-format off
#define CAIRN_LAYERS(X) \
  X(Input) \
  X(Rescaling) \
  X(Conv2D) \
  X(DepthwiseConv2D) \
  X(BatchNormalization) \
  X(Activation) \
  X(MaxPooling2D) \
  X(AveragePooling2D) \
  X(GlobalAveragePooling2D) \
  X(Add) \
  X(Concatenate) \
  X(Flatten) \
  X(Dense) \
  X(Dropout) \
  X(ZeroPadding2D) \
  X(LayerNormalization) \
  X(GroupNormalization) \
  X(Embedding) \
  X(GlobalAveragePooling1D) \
  X(MaxPooling1D) \
  X(AveragePooling1D) \
  X(Conv1D) \
  X(SeparableConv2D) \
  X(Conv2DTranspose) \
  X(UpSampling2D) \
  X(SpatialDropout2D) \
  X(Reshape) \
  X(Permute) \
  X(Multiply) \
  X(Average) \
  X(Maximum) \
  X(MultiHeadAttention) \
  X(Cropping2D) \
  X(PReLU) \
  X(Dot)
// clang-format on

enum class LayerKind {
#define CAIRN_LAYER_KIND(name) k##name,
  CAIRN_LAYERS(CAIRN_LAYER_KIND)
#undef CAIRN_LAYER_KIND
};

}  // namespace cairn
