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
  X(Dot) \
  X(Subtract) \
  X(Minimum) \
  X(Conv3D) \
  X(Conv1DTranspose) \
  X(Conv3DTranspose) \
  X(DepthwiseConv1D) \
  X(SeparableConv1D) \
  X(MaxPooling3D) \
  X(AveragePooling3D) \
  X(GlobalMaxPooling1D) \
  X(GlobalMaxPooling2D) \
  X(GlobalMaxPooling3D) \
  X(GlobalAveragePooling3D) \
  X(AdaptiveAveragePooling1D) \
  X(AdaptiveAveragePooling2D) \
  X(AdaptiveAveragePooling3D) \
  X(AdaptiveMaxPooling1D) \
  X(AdaptiveMaxPooling2D) \
  X(AdaptiveMaxPooling3D) \
  X(Cropping1D) \
  X(Cropping3D) \
  X(ZeroPadding1D) \
  X(ZeroPadding3D) \
  X(UpSampling1D) \
  X(UpSampling3D) \
  X(Resizing) \
  X(CenterCrop) \
  X(SimpleRNN) \
  X(LSTM) \
  X(GRU) \
  X(Bidirectional) \
  X(TimeDistributed) \
  X(Masking) \
  X(RMSNormalization) \
  X(UnitNormalization) \
  X(Normalization) \
  X(GaussianNoise) \
  X(GaussianDropout) \
  X(AlphaDropout) \
  X(SpatialDropout1D) \
  X(SpatialDropout3D) \
  X(ActivityRegularization) \
  X(RepeatVector) \
  X(EinsumDense) \
  X(Attention) \
  X(AdditiveAttention) \
  X(Operation) \
  X(Reduce) \
  X(Slice) \
  X(Discretization) \
  X(CategoryEncoding) \
  X(Hashing) \
  X(HashedCrossing) \
  X(IntegerLookup) \
  X(External) \
  X(StringLookup) \
  X(TextVectorization) \
  X(Stack) \
  X(Pad) \
  X(Tile) \
  X(Take) \
  X(OneHot) \
  X(Einsum) \
  X(GroupQueryAttention) \
  X(ConvLSTM1D) \
  X(ConvLSTM2D) \
  X(ConvLSTM3D) \
  X(TopK) \
  X(SpectralNormalization)
// clang-format on

enum class LayerKind {
#define CAIRN_LAYER_KIND(name) k##name,
  CAIRN_LAYERS(CAIRN_LAYER_KIND)
#undef CAIRN_LAYER_KIND
};

}  // namespace cairn
