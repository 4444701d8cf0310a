// Rows of layers that are being built. This file goes when the last one has a file of its own.
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {
absl::Status InferPending(absl::Span<const Shape>, Node*, std::vector<Variable>*) {
  return absl::UnimplementedError("this layer is being built");
}
void WriteOnnx(const Node&, OnnxWriter&) {}
}  // namespace

#define CAIRN_PENDING(kind_name, field_name, text)                                  \
  constinit const LayerType k##kind_name##Layer = {.kind = LayerKind::k##kind_name, \
                                                   .field = v1::Layer::field_name,  \
                                                   .name = text,                    \
                                                   .infer = InferPending,           \
                                                   .write_onnx = WriteOnnx};

CAIRN_PENDING(Subtract, kSubtract, "subtract")
CAIRN_PENDING(Minimum, kMinimum, "minimum")
CAIRN_PENDING(Conv3D, kConv3D, "conv3d")
CAIRN_PENDING(Conv1DTranspose, kConv1DTranspose, "conv1d_transpose")
CAIRN_PENDING(Conv3DTranspose, kConv3DTranspose, "conv3d_transpose")
CAIRN_PENDING(DepthwiseConv1D, kDepthwiseConv1D, "depthwise_conv1d")
CAIRN_PENDING(SeparableConv1D, kSeparableConv1D, "separable_conv1d")
CAIRN_PENDING(MaxPooling3D, kMaxPooling3D, "max_pooling3d")
CAIRN_PENDING(AveragePooling3D, kAveragePooling3D, "average_pooling3d")
CAIRN_PENDING(GlobalMaxPooling1D, kGlobalMaxPooling1D, "global_max_pooling1d")
CAIRN_PENDING(GlobalMaxPooling2D, kGlobalMaxPooling2D, "global_max_pooling2d")
CAIRN_PENDING(GlobalMaxPooling3D, kGlobalMaxPooling3D, "global_max_pooling3d")
CAIRN_PENDING(GlobalAveragePooling3D, kGlobalAveragePooling3D, "global_average_pooling3d")
CAIRN_PENDING(AdaptiveAveragePooling1D, kAdaptiveAveragePooling1D, "adaptive_average_pooling1d")
CAIRN_PENDING(AdaptiveAveragePooling2D, kAdaptiveAveragePooling2D, "adaptive_average_pooling2d")
CAIRN_PENDING(AdaptiveAveragePooling3D, kAdaptiveAveragePooling3D, "adaptive_average_pooling3d")
CAIRN_PENDING(AdaptiveMaxPooling1D, kAdaptiveMaxPooling1D, "adaptive_max_pooling1d")
CAIRN_PENDING(AdaptiveMaxPooling2D, kAdaptiveMaxPooling2D, "adaptive_max_pooling2d")
CAIRN_PENDING(AdaptiveMaxPooling3D, kAdaptiveMaxPooling3D, "adaptive_max_pooling3d")
CAIRN_PENDING(Cropping1D, kCropping1D, "cropping1d")
CAIRN_PENDING(Cropping3D, kCropping3D, "cropping3d")
CAIRN_PENDING(ZeroPadding1D, kZeroPadding1D, "zero_padding1d")
CAIRN_PENDING(ZeroPadding3D, kZeroPadding3D, "zero_padding3d")
CAIRN_PENDING(UpSampling1D, kUpSampling1D, "up_sampling1d")
CAIRN_PENDING(UpSampling3D, kUpSampling3D, "up_sampling3d")
CAIRN_PENDING(Resizing, kResizing, "resizing")
CAIRN_PENDING(CenterCrop, kCenterCrop, "center_crop")
CAIRN_PENDING(ConvLSTM1D, kConvLstm1D, "conv_lstm1d")
CAIRN_PENDING(ConvLSTM2D, kConvLstm2D, "conv_lstm2d")
CAIRN_PENDING(ConvLSTM3D, kConvLstm3D, "conv_lstm3d")
CAIRN_PENDING(RMSNormalization, kRmsNormalization, "rms_normalization")
CAIRN_PENDING(UnitNormalization, kUnitNormalization, "unit_normalization")
CAIRN_PENDING(SpectralNormalization, kSpectralNormalization, "spectral_normalization")
CAIRN_PENDING(Normalization, kNormalization, "normalization")
CAIRN_PENDING(GaussianNoise, kGaussianNoise, "gaussian_noise")
CAIRN_PENDING(GaussianDropout, kGaussianDropout, "gaussian_dropout")
CAIRN_PENDING(AlphaDropout, kAlphaDropout, "alpha_dropout")
CAIRN_PENDING(SpatialDropout1D, kSpatialDropout1D, "spatial_dropout1d")
CAIRN_PENDING(SpatialDropout3D, kSpatialDropout3D, "spatial_dropout3d")
CAIRN_PENDING(ActivityRegularization, kActivityRegularization, "activity_regularization")
CAIRN_PENDING(RepeatVector, kRepeatVector, "repeat_vector")
CAIRN_PENDING(EinsumDense, kEinsumDense, "einsum_dense")
CAIRN_PENDING(Attention, kAttention, "attention")
CAIRN_PENDING(AdditiveAttention, kAdditiveAttention, "additive_attention")
CAIRN_PENDING(GroupQueryAttention, kGroupQueryAttention, "group_query_attention")
CAIRN_PENDING(Operation, kOperation, "operation")
CAIRN_PENDING(Reduce, kReduce, "reduce")
CAIRN_PENDING(Slice, kSlice, "slice")
CAIRN_PENDING(Discretization, kDiscretization, "discretization")
CAIRN_PENDING(CategoryEncoding, kCategoryEncoding, "category_encoding")
CAIRN_PENDING(Hashing, kHashing, "hashing")
CAIRN_PENDING(HashedCrossing, kHashedCrossing, "hashed_crossing")
CAIRN_PENDING(StringLookup, kStringLookup, "string_lookup")
CAIRN_PENDING(IntegerLookup, kIntegerLookup, "integer_lookup")
CAIRN_PENDING(TextVectorization, kTextVectorization, "text_vectorization")

}  // namespace cairn::layers
