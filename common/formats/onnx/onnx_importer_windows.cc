// Convolutions, poolings, pads and up-sampling.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/formats/onnx/axis_order.h"
#include "common/formats/onnx/onnx_importer.h"

namespace cairn {
namespace {

constexpr int64_t kWindowMax = int64_t{1} << 20;

// Height and width of [channels, height, width]; of [channels, steps] an image of height 1.
void Extent(const OnnxView& x, int64_t extent[2]) {
  extent[0] = x.dims.size() == 3 ? x.dims[1] : 1;
  extent[1] = x.dims.back();
}

// Of TensorFlow's SAME.
void SamePads(int64_t extent, int64_t reach, int64_t stride, int64_t* begin, int64_t* end) {
  const int64_t out = (extent + stride - 1) / stride, total = std::max<int64_t>(0, (out - 1) * stride + reach - extent);
  *begin = total / 2;
  *end = total - *begin;
}

int64_t Reach(const Window& w, int i) { return (w.kernel[i] - 1) * w.dilation[i] + 1; }

template <typename Field>
void SetPair(const int64_t (&pair)[2], Field* field) {
  field->Clear();
  for (const int64_t n : pair) field->Add(static_cast<int32_t>(n));
}

}  // namespace

absl::Status OnnxImporter::ReadWindow(OnnxAttributes* attributes, absl::Span<const int64_t> kernel, const OnnxView& x,
                                      Window* window) const {
  const size_t rank = kernel.size();
  const auto read = [&](const char* name, int64_t lowest, absl::Span<int64_t> to) -> absl::Status {
    const std::vector<int64_t> given = attributes->Ints(name);
    if (given.empty()) return absl::OkStatus();
    if (given.size() != to.size())
      return Bad("attribute \"", name, "\" has ", given.size(), " numbers; ", to.size(), " are needed");
    for (size_t i = 0; i < to.size(); ++i) {
      if (given[i] < lowest || given[i] > kWindowMax)
        return Bad("attribute \"", name, "\": ", given[i], " is outside ", lowest, " .. ", kWindowMax);
      to[i] = given[i];
    }
    return absl::OkStatus();
  };
  const size_t first = 2 - rank;  // a sequence is an image of height 1
  int64_t pads[4] = {0, 0, 0, 0};
  for (size_t i = 0; i < rank; ++i) {
    if (kernel[i] < 1 || kernel[i] > kWindowMax)
      return Bad("its window is ", kernel[i], " wide; 1 .. ", kWindowMax, " can be");
    window->kernel[first + i] = kernel[i];
  }
  CAIRN_RETURN_IF_ERROR(read("strides", 1, absl::MakeSpan(window->strides + first, rank)));
  CAIRN_RETURN_IF_ERROR(read("dilations", 1, absl::MakeSpan(window->dilation + first, rank)));
  CAIRN_RETURN_IF_ERROR(read("pads", 0, absl::MakeSpan(pads, 2 * rank)));
  for (size_t i = 0; i < rank; ++i) {
    window->pad_begin[first + i] = pads[i];
    window->pad_end[first + i] = pads[rank + i];
  }
  const std::string automatic = attributes->Text("auto_pad", "NOTSET");
  if (automatic == "NOTSET") return absl::OkStatus();
  if (automatic != "VALID" && automatic != "SAME_UPPER" && automatic != "SAME_LOWER") {
    return Bad("attribute \"auto_pad\" is \"", absl::CEscape(automatic.substr(0, 64)), "\"");
  }
  int64_t extent[2];
  Extent(x, extent);
  for (int i = 0; i < 2; ++i) {
    int64_t begin = 0, end = 0;
    if (automatic != "VALID") SamePads(extent[i], Reach(*window, i), window->strides[i], &begin, &end);
    if (automatic == "SAME_LOWER") std::swap(begin, end);
    window->pad_begin[i] = begin;
    window->pad_end[i] = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Padding> OnnxImporter::PadFor(const Window& window, const OnnxView& x, bool zeros_do, int* layer) {
  int64_t extent[2];
  Extent(x, extent);
  bool valid = true, same = true;
  for (int i = 0; i < 2; ++i) {
    int64_t begin, end;
    SamePads(extent[i], Reach(window, i), window.strides[i], &begin, &end);
    valid = valid && window.pad_begin[i] == 0 && window.pad_end[i] == 0;
    same = same && window.pad_begin[i] == begin && window.pad_end[i] == end;
  }
  if (valid) return v1::VALID;
  if (same) return v1::SAME;
  if (x.dims.size() != 3)
    return Lacks(
        "its pads are neither none nor those of TensorFlow's SAME, and sequences cannot be padded by a layer of their "
        "own");
  if (!zeros_do)
    return Lacks("its pads are not those of TensorFlow's SAME, and zeros in their place would change what it computes");
  v1::Layer pad;
  for (const int64_t n : {window.pad_begin[0], window.pad_end[0], window.pad_begin[1], window.pad_end[1]}) {
    pad.mutable_zero_padding2d()->add_padding(static_cast<int32_t>(n));
  }
  CAIRN_ASSIGN_OR_RETURN(*layer, AddLayer(LayerKind::kZeroPadding2D, pad, {*layer}));
  return v1::VALID;
}

absl::Status OnnxImporter::Conv() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor weight, ConstantOf(1, "weight"));
  const size_t rank = weight.dims.size();
  if (weight.whole || (rank != 3 && rank != 4) || x.dims.size() != rank - 1) {
    return Lacks("weight ", ToString(weight.dims), " on an input ", ToString(x.dims),
                 "; weights [out,in,h,w] on pictures and [out,in,w] on sequences are read");
  }
  OnnxAttributes attributes(*node_);
  const int64_t groups = attributes.Int("group", 1), out = weight.dims[0], in = x.dims[0];
  const Shape kernel(weight.dims.begin() + 2, weight.dims.end());
  const std::vector<int64_t> given = attributes.Ints("kernel_shape");
  if (!given.empty() && given != kernel)
    return Bad("kernel_shape is ", ToString(given), ", its weight ", ToString(weight.dims));
  Window w;
  CAIRN_RETURN_IF_ERROR(ReadWindow(&attributes, kernel, x, &w));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (groups < 1 || groups > in || out < 1 || weight.dims[1] < 1 || weight.dims[1] * groups != in ||
      out % groups != 0) {
    return Bad("weight ", ToString(weight.dims), " and group ", groups, " do not fit an input of ", in, " channels");
  }
  const bool depthwise = groups == in && in > 1;
  if (groups != 1 && !(depthwise && rank == 4))
    return Lacks("group ", groups, " of ", in, " channels; 1, and for pictures one for each channel, are read");
  std::vector<float> bias;
  if (HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(bias, FloatsOf(2, "bias", out));
  }
  CAIRN_ASSIGN_OR_RETURN(int from, PlaceChannelsLast(x));
  CAIRN_ASSIGN_OR_RETURN(const v1::Padding padding, PadFor(w, x, /*zeros_do=*/true, &from));
  v1::Layer layer;
  std::vector<OnnxVariable> variables;
  LayerKind kind;
  const auto fill = [&](auto* conv) {
    conv->set_padding(padding);
    conv->set_use_bias(!bias.empty());
    SetPair(w.kernel, conv->mutable_kernel_size());
    SetPair(w.strides, conv->mutable_strides());
    SetPair(w.dilation, conv->mutable_dilation_rate());
  };
  if (depthwise) {
    kind = LayerKind::kDepthwiseConv2D;
    fill(layer.mutable_depthwise_conv2d());
    layer.mutable_depthwise_conv2d()->set_depth_multiplier(static_cast<int32_t>(out / in));
    variables.push_back({"kernel",
                         {kernel[0], kernel[1], in, out / in},
                         InOrder(weight.floats, {in, out / in, kernel[0], kernel[1]}, {2, 3, 0, 1})});
  } else if (rank == 4) {
    kind = LayerKind::kConv2D;
    fill(layer.mutable_conv2d());
    layer.mutable_conv2d()->set_filters(static_cast<int32_t>(out));
    variables.push_back({"kernel", {kernel[0], kernel[1], in, out}, InOrder(weight.floats, weight.dims, {2, 3, 1, 0})});
  } else {
    kind = LayerKind::kConv1D;
    v1::Conv1D* conv = layer.mutable_conv1d();
    conv->set_filters(static_cast<int32_t>(out));
    conv->set_padding(padding);
    conv->set_use_bias(!bias.empty());
    conv->set_kernel_size(static_cast<int32_t>(w.kernel[1]));
    conv->set_strides(static_cast<int32_t>(w.strides[1]));
    conv->set_dilation_rate(static_cast<int32_t>(w.dilation[1]));
    variables.push_back({"kernel", {kernel[0], in, out}, InOrder(weight.floats, weight.dims, {2, 1, 0})});
  }
  const bool open = bias.empty();
  if (!open) variables.push_back({"bias", {out}, std::move(bias)});
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(kind, layer, {from}, std::move(variables), 1));
  open_[node_->output(0)] = id;
  SetView(OnnxView::Of(id, LayerShape(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

absl::Status OnnxImporter::ConvTranspose() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor weight, ConstantOf(1, "weight"));
  if (weight.whole || weight.dims.size() != 4 || x.dims.size() != 3 || weight.dims[0] != x.dims[0] ||
      weight.dims[1] < 1) {
    return Lacks("weight ", ToString(weight.dims), " on an input ", ToString(x.dims),
                 "; weights [in,out,h,w] on pictures are read");
  }
  OnnxAttributes attributes(*node_);
  attributes.Only("group", 1, "Cairn's have one group");
  const Shape kernel(weight.dims.begin() + 2, weight.dims.end());
  const std::vector<int64_t> given = attributes.Ints("kernel_shape"), beyond = attributes.Ints("output_padding");
  if (!given.empty() && given != kernel)
    return Bad("kernel_shape is ", ToString(given), ", its weight ", ToString(weight.dims));
  if (!beyond.empty() && beyond.size() != 2)
    return Bad("attribute \"output_padding\" has ", beyond.size(), " numbers; 2 are needed");
  Window w;
  CAIRN_RETURN_IF_ERROR(ReadWindow(&attributes, kernel, x, &w));
  if (attributes.Text("auto_pad", "NOTSET") != "NOTSET") return Lacks("attribute \"auto_pad\"; give pads");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  // Keras cuts nothing (VALID), or so much that the output is as large as the strides say (SAME).
  bool valid = true, same = true;
  for (int i = 0; i < 2; ++i) {
    const int64_t over = w.kernel[i] - w.strides[i], more = beyond.empty() ? 0 : beyond[static_cast<size_t>(i)];
    const int64_t cut = std::max<int64_t>(0, over);
    const bool long_enough = more == std::max<int64_t>(0, -over);
    valid = valid && w.dilation[i] == 1 && long_enough && w.pad_begin[i] == 0 && w.pad_end[i] == 0;
    same = same && w.dilation[i] == 1 && long_enough && w.pad_begin[i] == cut / 2 && w.pad_end[i] == cut - cut / 2;
  }
  if (!valid && !same) return Lacks("its pads, output_padding or dilations are not those of Keras' VALID or SAME");
  std::vector<float> bias;
  const int64_t out = weight.dims[1];
  if (HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(bias, FloatsOf(2, "bias", out));
  }
  CAIRN_ASSIGN_OR_RETURN(const int from, PlaceChannelsLast(x));
  v1::Layer layer;
  v1::Conv2DTranspose* conv = layer.mutable_conv2d_transpose();
  conv->set_filters(static_cast<int32_t>(out));
  conv->set_padding(valid ? v1::VALID : v1::SAME);
  conv->set_use_bias(!bias.empty());
  SetPair(w.kernel, conv->mutable_kernel_size());
  SetPair(w.strides, conv->mutable_strides());
  std::vector<OnnxVariable> variables = {
      {"kernel", {kernel[0], kernel[1], out, x.dims[0]}, InOrder(weight.floats, weight.dims, {2, 3, 1, 0})}};
  if (!bias.empty()) variables.push_back({"bias", {out}, std::move(bias)});
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(LayerKind::kConv2DTranspose, layer, {from}, std::move(variables), 1));
  open_[node_->output(0)] = id;
  SetView(OnnxView::Of(id, LayerShape(id), ChannelsLast(3)));
  return absl::OkStatus();
}

// Whether the layer gives nothing below zero.
bool OnnxImporter::NotNegative(int layer) const {
  const v1::Layer& l = model_.layers(layer);
  const auto input = [&](int i) {
    for (int id = 0; id < layer; ++id) {
      if (model_.layers(id).name() == l.inputs(i)) return id;
    }
    return 0;
  };
  switch (kinds_[static_cast<size_t>(layer)]) {
    case LayerKind::kActivation:
      switch (l.activation().activation()) {
        case v1::RELU:
        case v1::RELU6:
        case v1::SIGMOID:
        case v1::SOFTMAX:
        case v1::SOFTPLUS: return true;
        default: return false;
      }
    case LayerKind::kMaxPooling2D:
    case LayerKind::kAveragePooling2D:
    case LayerKind::kZeroPadding2D:
    case LayerKind::kPermute:
    case LayerKind::kReshape:
    case LayerKind::kDropout: return NotNegative(input(0));
    default: return false;
  }
}

absl::Status OnnxImporter::Pool() {
  const bool max = node_->op_type() == "MaxPool";
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  if (x.dims.size() != 2 && x.dims.size() != 3)
    return Lacks("on an input ", ToString(x.dims), "; pictures and sequences are pooled");
  OnnxAttributes attributes(*node_);
  const std::vector<int64_t> kernel = attributes.Ints("kernel_shape");
  if (kernel.size() != x.dims.size() - 1)
    return Bad("attribute \"kernel_shape\" has ", kernel.size(), " numbers; ", x.dims.size() - 1, " are needed");
  Window w;
  CAIRN_RETURN_IF_ERROR(ReadWindow(&attributes, kernel, x, &w));
  const bool ceil = attributes.Int("ceil_mode", 0) != 0;
  const bool counts_pads = !max && attributes.Int("count_include_pad", 0) != 0;
  attributes.Ignore("storage_order");  // of its second output
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  int64_t extent[2];
  Extent(x, extent);
  bool padded = false;
  for (int i = 0; i < 2; ++i) {
    if (w.dilation[i] != 1) return Lacks("attribute \"dilations\" is not 1");
    padded = padded || w.pad_begin[i] > 0 || w.pad_end[i] > 0;
    const int64_t left = (extent[i] + w.pad_begin[i] + w.pad_end[i] - w.kernel[i]) % w.strides[i];
    if (ceil && left > 0) return Lacks("ceil_mode lets the last window go beyond its input ", ToString(x.dims));
  }
  CAIRN_ASSIGN_OR_RETURN(int from, PlaceChannelsLast(x));
  v1::Padding padding = v1::VALID;
  if (counts_pads && padded) {  // the pads' zeros are averaged too: a layer makes them
    if (x.dims.size() != 3) return Lacks("count_include_pad on a sequence");
    v1::Layer pad;
    for (const int64_t n : {w.pad_begin[0], w.pad_end[0], w.pad_begin[1], w.pad_end[1]})
      pad.mutable_zero_padding2d()->add_padding(static_cast<int32_t>(n));
    CAIRN_ASSIGN_OR_RETURN(from, AddLayer(LayerKind::kZeroPadding2D, pad, {from}));
  } else {
    CAIRN_ASSIGN_OR_RETURN(padding, PadFor(w, x, max && NotNegative(from), &from));
  }
  v1::Layer layer;
  LayerKind kind;
  if (x.dims.size() == 3) {
    kind = max ? LayerKind::kMaxPooling2D : LayerKind::kAveragePooling2D;
    v1::Pooling2D* pool = max ? layer.mutable_max_pooling2d() : layer.mutable_average_pooling2d();
    SetPair(w.kernel, pool->mutable_pool_size());
    SetPair(w.strides, pool->mutable_strides());
    pool->set_padding(padding);
  } else {
    kind = max ? LayerKind::kMaxPooling1D : LayerKind::kAveragePooling1D;
    v1::Pooling1D* pool = max ? layer.mutable_max_pooling1d() : layer.mutable_average_pooling1d();
    pool->set_pool_size(static_cast<int32_t>(w.kernel[1]));
    pool->set_strides(static_cast<int32_t>(w.strides[1]));
    pool->set_padding(padding);
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(kind, layer, {from}));
  SetView(OnnxView::Of(id, LayerShape(id), ChannelsLast(x.dims.size())));
  return absl::OkStatus();
}

// [channels, 1, 1] of [channels, height, width].
absl::Status OnnxImporter::GlobalPool() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(*node_).Finish());
  if (x.dims.size() != 2 && x.dims.size() != 3)
    return Lacks("on an input ", ToString(x.dims), "; pictures and sequences are pooled");
  CAIRN_ASSIGN_OR_RETURN(const int from, PlaceChannelsLast(x));
  const bool picture = x.dims.size() == 3;
  Shape ones(x.dims.size(), 1);
  ones[0] = x.dims[0];
  v1::Layer layer;
  LayerKind kind;
  if (node_->op_type() == "GlobalAveragePool") {
    kind = picture ? LayerKind::kGlobalAveragePooling2D : LayerKind::kGlobalAveragePooling1D;
    picture ? static_cast<void>(layer.mutable_global_average_pooling2d())
            : static_cast<void>(layer.mutable_global_average_pooling1d());
  } else if (picture) {
    kind = LayerKind::kMaxPooling2D;
    SetPair({x.dims[1], x.dims[2]}, layer.mutable_max_pooling2d()->mutable_pool_size());
  } else {
    kind = LayerKind::kMaxPooling1D;
    layer.mutable_max_pooling1d()->set_pool_size(static_cast<int32_t>(x.dims[1]));
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(kind, layer, {from}));
  SetView(OnnxView::Of(id, {x.dims[0]}).As(std::move(ones)));
  return absl::OkStatus();
}

// Over height and width, or over the steps, wherever the channels stand.
absl::Status OnnxImporter::ReduceMean() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  std::vector<int64_t> given = attributes.Ints("axes");
  const bool keep = attributes.Int("keepdims", 1) != 0;
  attributes.Only("noop_with_empty_axes", 0, "give axes");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (HasInput(1)) {
    CAIRN_ASSIGN_OR_RETURN(given, IntsOf(1, "axes"));
  }
  std::set<int> axes;
  for (const int64_t axis : given) {
    CAIRN_ASSIGN_OR_RETURN(const int a, AxisOf(axis, x));
    axes.insert(a);
  }
  const size_t rank = x.dims.size();
  if ((rank != 2 && rank != 3) || axes.size() != rank - 1)
    return Lacks("over ", axes.size(), " axes of its input ", ToString(x.dims),
                 "; all but the batch and one axis are averaged here");
  int left = 0;
  while (axes.contains(left)) ++left;
  CAIRN_ASSIGN_OR_RETURN(const int from, PlaceInOrder(x, AxisLast(rank, left)));
  v1::Layer layer;
  if (rank == 3) {
    layer.mutable_global_average_pooling2d();
  } else {
    layer.mutable_global_average_pooling1d();
  }
  CAIRN_ASSIGN_OR_RETURN(
      const int id,
      AddLayer(rank == 3 ? LayerKind::kGlobalAveragePooling2D : LayerKind::kGlobalAveragePooling1D, layer, {from}));
  OnnxView mean = OnnxView::Of(id, LayerShape(id));
  if (keep) {
    Shape dims(rank, 1);
    dims[static_cast<size_t>(left)] = x.dims[static_cast<size_t>(left)];
    mean = mean.As(std::move(dims));
  }
  SetView(std::move(mean));
  return absl::OkStatus();
}

absl::Status OnnxImporter::Pad() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  const std::string mode = attributes.Text("mode", "constant");
  std::vector<int64_t> pads = attributes.Ints("pads");
  float value = attributes.Float("value", 0);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (mode != "constant")
    return Lacks("attribute \"mode\" is \"", absl::CEscape(mode.substr(0, 64)), "\"; Cairn pads with zeros");
  if (HasInput(1)) {
    CAIRN_ASSIGN_OR_RETURN(pads, IntsOf(1, "pads"));
  }
  if (HasInput(2)) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> constant, FloatsOf(2, "value", 1));
    value = constant[0];
  }
  if (HasInput(3)) return Lacks("its axes (input 3); give pads for all of them");
  if (value != 0) return Lacks("it pads with ", value, "; Cairn pads with zeros");
  if (pads.size() != 2 * (x.dims.size() + 1))
    return Bad(pads.size(), " pads for an input of ", x.dims.size() + 1, " dimensions, batch included");
  for (const int64_t pad : pads) {
    if (pad < 0 || pad > kWindowMax) return Lacks("a pad of ", pad, "; 0 .. ", kWindowMax, " can be");
  }
  if (std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; })) {
    SetView(x);
    return absl::OkStatus();
  }
  // Two of three axes are padded: the third one is the channels.
  const size_t rank = x.dims.size() + 1;
  const auto is_padded = [&](size_t axis) { return pads[axis] > 0 || pads[axis + rank] > 0; };
  if (rank != 4 || is_padded(0) || (is_padded(1) && is_padded(2) && is_padded(3))) {
    return Lacks("it pads its input ", ToString(x.dims), " in other axes than height and width");
  }
  int channels = 0;
  while (is_padded(static_cast<size_t>(channels) + 1)) ++channels;
  const std::vector<int> order = AxisLast(3, channels);
  CAIRN_ASSIGN_OR_RETURN(const int from, PlaceInOrder(x, order));
  v1::Layer layer;
  for (int i = 0; i < 2; ++i) {
    const size_t axis = static_cast<size_t>(order[static_cast<size_t>(i)]) + 1;
    layer.mutable_zero_padding2d()->add_padding(static_cast<int32_t>(pads[axis]));
    layer.mutable_zero_padding2d()->add_padding(static_cast<int32_t>(pads[axis + rank]));
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(LayerKind::kZeroPadding2D, layer, {from}));
  SetView(OnnxView::Of(id, LayerShape(id), order));
  return absl::OkStatus();
}

// By whole factors, of height and width.
absl::Status OnnxImporter::Resize() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  if (x.dims.size() != 3) return Lacks("on an input ", ToString(x.dims), "; pictures are resized");
  const bool old = node_->op_type() == "Upsample";
  OnnxAttributes attributes(*node_);
  const std::string mode = attributes.Text("mode", "nearest");
  const std::string places = attributes.Text("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  const std::string rounds = attributes.Text("nearest_mode", old ? "floor" : "round_prefer_floor");
  attributes.Only("antialias", 0, "Cairn does not smooth");
  for (const char* name : {"cubic_coeff_a", "exclude_outside", "extrapolation_value", "keep_aspect_ratio_policy"})
    attributes.Ignore(name);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  const bool half = places == "half_pixel" || places == "pytorch_half_pixel";
  const bool nearest = mode == "nearest" && (half ? rounds == "round_prefer_floor" || rounds == "round_prefer_ceil"
                                                  : places == "asymmetric" && rounds == "floor");
  const bool linear = mode == "linear" && half;
  if (!nearest && !linear) {
    return Lacks("mode ", absl::CEscape(mode.substr(0, 64)), " with coordinates ", absl::CEscape(places.substr(0, 64)),
                 " (", absl::CEscape(rounds.substr(0, 64)),
                 "); nearest and linear by half pixels, and nearest by asymmetric ones rounded down, are read");
  }
  std::vector<double> scales;
  const int scales_input = old ? 1 : 2;
  if (HasInput(scales_input)) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<float> given, FloatsOf(scales_input, "scales", 4));
    scales.assign(given.begin(), given.end());
  } else {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, IntsOf(3, "sizes"));
    if (sizes.size() != 4) return Bad("its sizes has ", sizes.size(), " numbers; 4 are needed");
    scales = {1};
    for (size_t i = 1; i < 4; ++i) scales.push_back(static_cast<double>(sizes[i]) / static_cast<double>(x.dims[i - 1]));
  }
  int channels = -1;
  for (int axis = 2; axis >= 0; --axis) {
    if (scales[static_cast<size_t>(axis) + 1] == 1 && (axis != 1 || channels < 0)) channels = axis;
  }
  for (const double scale : scales) {
    if (!(scale >= 1 && scale <= 1024 && scale == std::floor(scale)))
      return Lacks("a factor of ", scale, "; whole ones up to 1024 are read");
  }
  if (channels != 0 && channels != 2) return Lacks("it resizes the channels of its input ", ToString(x.dims));
  const std::vector<int> order = AxisLast(3, channels);
  CAIRN_ASSIGN_OR_RETURN(const int from, PlaceInOrder(x, order));
  v1::Layer layer;
  for (int i = 0; i < 2; ++i)
    layer.mutable_up_sampling2d()->add_size(
        static_cast<int32_t>(scales[static_cast<size_t>(order[static_cast<size_t>(i)]) + 1]));
  layer.mutable_up_sampling2d()->set_interpolation(linear ? v1::UpSampling2D::BILINEAR : v1::UpSampling2D::NEAREST);
  CAIRN_ASSIGN_OR_RETURN(const int id, AddLayer(LayerKind::kUpSampling2D, layer, {from}));
  SetView(OnnxView::Of(id, LayerShape(id), order));
  return absl::OkStatus();
}

}  // namespace cairn
