// PyTorch's names and shapes of a model's variables, as in a state_dict of the same layers.
//
//   layer                 Keras                                          PyTorch
//   Dense                 kernel [in, out], bias                         weight [out, in], bias
//   Conv2D, Conv1D        kernel [h, w, in, out]                         weight [out, in, h, w]
//   DepthwiseConv2D       kernel [h, w, in, multiplier]                  weight [in * multiplier, 1, h, w]
//   SeparableConv2D       depthwise_kernel, pointwise_kernel, bias       depthwise.weight, pointwise.weight,
//                         pointwise.bias
//   Conv2DTranspose       kernel [h, w, out, in]                         weight [in, out, h, w]
//   BatchNormalization    gamma, beta, moving_mean, moving_variance      weight, bias, running_mean, running_var
//   Layer-, GroupNorm     gamma, beta                                    weight, bias
//   Embedding             embeddings                                     weight
//
// A name is the layer's, a dot, and the above: "conv1.weight". Names of torchvision's residual blocks get their dots
// back: layer "layer1_0_conv1" is "layer1.0.conv1.weight". The kernel of a Dense after a Flatten of an image has its
// rows in PyTorch's order, channels before height and width. A MultiHeadAttention has no counterpart.
//
// Free functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "common/model/graph.h"

namespace cairn {

// Errors: UNIMPLEMENTED names a layer without a counterpart.
absl::StatusOr<std::vector<Safetensor>> ToTorchLayout(const Graph& graph, absl::Span<const float> space);

// Whether the file's names are PyTorch's rather than Keras'.
bool IsTorchLayout(const SafetensorsFile& file, const Graph& graph);

// The tensors of the model's variables, under Keras' names and in Keras' shapes; other tensors in the file are
// ignored.
// Errors: FAILED_PRECONDITION names a tensor with a wrong shape, as the file names it; UNIMPLEMENTED as above.
absl::StatusOr<SafetensorsFile> FromTorchLayout(const SafetensorsFile& file, const Graph& graph);

}  // namespace cairn
