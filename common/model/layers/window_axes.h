// Windows over any number of axes (common/model/window.h): the steps of a sequence, the height and width of an image,
// or the depth, height and width of a volume.
//
// Free functions; any thread. Errors are as those of LayerType's functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/layers/windows.h"
#include "common/model/limits.h"
#include "common/model/window.h"

namespace cairn::layers {

// ---- shapes ----

absl::Status NeedAxes(const Shape& input, int rank);  // the input must have `rank` axes and channels
// Reads no number, one for all axes, or one for each axis, all at least 1; `fallback` 0: the field is required. Writes
// `rank` numbers back.
absl::Status ReadAxes(const char* field, int rank, int64_t fallback, Numbers* numbers, int64_t* out);
// Reads one number (all sides), `rank` numbers (both sides of each axis) or 2 * rank (begin and end of each axis), all
// at least 0; none: `fallback` for all. Writes 2 * rank numbers back.
absl::Status ReadEnds(const char* field, int rank, int32_t fallback, Numbers* numbers, int32_t* ends);
// Strides and dilation may not both exceed 1.
absl::Status CheckAxes(const Window& window, int rank);
// Computes the pads of the node's window and the axes of its output, by TensorFlow's rules. CAUSAL (sequences only):
// all of SAME's padding is before the first step.
absl::Status SlideAxes(const char* what, int rank, const Shape& input, v1::Padding padding, Node* node);
// As ReadPadding, but accepts CAUSAL too.
template <typename Layer>
absl::Status ReadPaddingOrCausal(Layer* layer) {
  return layer->padding() == v1::CAUSAL ? absl::OkStatus() : ReadPadding(layer);
}

// Reads kernel_size, strides, dilation_rate and padding of convolutions whose fields have a number for each axis.
template <typename Conv>
absl::Status ReadConvAxes(int rank, const Shape& input, Conv* conv, Node* node) {
  int64_t kernel[kWindowAxesMax], strides[kWindowAxesMax], dilation[kWindowAxesMax];
  CAIRN_RETURN_IF_ERROR(NeedAxes(input, rank));
  CAIRN_RETURN_IF_ERROR(ReadAxes("kernel_size", rank, 0, conv->mutable_kernel_size(), kernel));
  CAIRN_RETURN_IF_ERROR(ReadAxes("strides", rank, 1, conv->mutable_strides(), strides));
  CAIRN_RETURN_IF_ERROR(ReadAxes("dilation_rate", rank, 1, conv->mutable_dilation_rate(), dilation));
  for (int i = 0; i < rank; ++i) SetAxis({kernel[i], strides[i], dilation[i]}, rank, i, &node->window);
  CAIRN_RETURN_IF_ERROR(CheckAxes(node->window, rank));
  if (rank > 1) {
    CAIRN_RETURN_IF_ERROR(ReadPadding(conv));
  } else {
    CAIRN_RETURN_IF_ERROR(ReadPaddingOrCausal(conv));
  }
  return SlideAxes("kernel", rank, input, conv->padding(), node);
}

// The sizes of the kernel's axes, followed by before_last and last.
Shape KernelShape(const Window& window, int rank, int64_t before_last, int64_t last);

// Reads the number of groups of a convolution: `groups` must divide both the input channels and the filters.
template <typename Conv>
absl::Status ReadGroups(int64_t channels, Conv* conv, Node* node) {
  if (!conv->has_groups()) conv->set_groups(1);
  const int32_t groups = conv->groups();
  if (groups < 1) return Bad("groups ", groups, " is not positive; use 1 or more");
  if (channels % groups != 0 || conv->filters() % groups != 0) {
    return Bad("groups ", groups, " does not divide both the ", channels, " channels of its input and its ",
               conv->filters(), " filters; use a number that does");
  }
  node->window.groups = groups;
  return absl::OkStatus();
}

// ---- Keras ----

// "valid", "same" or "causal".
v1::Padding PaddingOrCausal(KerasConfig& c);
void WritePaddingOrCausal(v1::Padding padding, KerasWriter* c);

// As Windowed, for layers whose fields have a number for each axis; a sequence's padding may be causal.
template <typename Layer>
void WindowedAxes(KerasConfig& c, int rank, Layer* layer) {
  c.Ints("kernel_size", layer->mutable_kernel_size());
  c.Ints("strides", layer->mutable_strides());
  c.Ints("dilation_rate", layer->mutable_dilation_rate());
  if (rank == 1) {
    layer->set_padding(PaddingOrCausal(c));
    keras::ChannelsLast(c);
  } else {
    PaddingAndChannels(c, layer);
  }
}

template <typename Layer>
void Groups(KerasConfig& c, Layer* layer) {
  int32_t groups = 1;
  c.Int("groups", &groups);
  layer->set_groups(groups);
}

// Writes padding or cropping: [begin, end] for a sequence, else a pair for each axis.
void WriteEnds(const char* key, const Numbers& ends, KerasWriter* c);

// ---- ONNX ----

// As WriteOnnxWindow, for any number of axes.
void WriteOnnxAxes(OnnxWriter& w, const Node& node, int rank, bool dilations);
// KernelToFront permutes Keras' kernel [axes..., in, out] to the [out, in, axes...] of ONNX and PyTorch. KernelSizes:
// the sizes of the kernel's axes.
std::vector<int> KernelToFront(int rank);
std::vector<int64_t> KernelSizes(const Window& window, int rank);

}  // namespace cairn::layers
