#include "common/model/onnx/onnx_joins.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_operations.h"

namespace cairn {
namespace {

bool AllAre(absl::Span<const float> values, float value) {
  return std::all_of(values.begin(), values.end(), [&](float v) { return v == value; });
}

// Input `input` * scale + offset, with one number for all elements.
absl::Status ByOne(OnnxImporter& importer, int input, float scale, float offset) {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, importer.ViewOf(input));
  const size_t last = static_cast<size_t>(importer.layers().ShapeOf(x.layer).back());
  const int open = importer.FoldableInput(input);
  if (open < 0 ||
      !importer.layers().FoldInto(open, std::vector<float>(last, scale), std::vector<float>(last, offset))) {
    v1::Layer layer;
    layer.mutable_rescaling()->set_scale(scale);
    layer.mutable_rescaling()->set_offset(offset);
    CAIRN_ASSIGN_OR_RETURN(x.layer, importer.AddLayer(LayerKind::kRescaling, layer, {x.layer}));
  }
  importer.MarkFoldable(x.layer);
  importer.SetView(std::move(x));
  return absl::OkStatus();
}

// The same, with one number for each index of `axis`.
absl::Status ByChannel(OnnxImporter& importer, int input, int axis, std::vector<float> scale,
                       std::vector<float> offset) {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, importer.ViewOf(input));
  const std::vector<int> order = AxisLast(x.dims.size(), axis);
  const std::optional<OnnxView> last = x.Transposed(order);
  const bool of_layer = last.has_value() && last->InPlace() && last->dims == importer.layers().ShapeOf(x.layer);
  const int open = importer.FoldableInput(input);
  if (of_layer && open >= 0 && importer.layers().KindOf(x.layer) != LayerKind::kRescaling &&
      importer.layers().FoldInto(open, scale, offset)) {
    importer.MarkFoldable(x.layer);
    importer.SetView(std::move(x));
    return absl::OkStatus();
  }
  // A 1x1 depthwise convolution on an image.
  CAIRN_ASSIGN_OR_RETURN(int from, importer.layers().PlaceInOrder(x, order));
  const Shape shape = importer.layers().ShapeOf(from);
  Shape picture = shape;
  while (picture.size() < 3) picture.insert(picture.begin(), 1);
  CAIRN_ASSIGN_OR_RETURN(from, importer.layers().Place(OnnxView::Of(from, picture)));
  v1::Layer layer;
  v1::DepthwiseConv2D* conv = layer.mutable_depthwise_conv2d();
  conv->add_kernel_size(1);
  const int64_t channels = picture.back();
  const bool biased = !AllAre(offset, 0);
  conv->set_use_bias(biased);
  std::vector<OnnxVariable> variables = {{"kernel", {1, 1, channels, 1}, std::move(scale)}};
  if (biased) variables.push_back({"bias", {channels}, std::move(offset)});
  CAIRN_ASSIGN_OR_RETURN(const int id,
                         importer.AddLayer(LayerKind::kDepthwiseConv2D, layer, {from}, std::move(variables)));
  importer.MarkFoldable(id);
  importer.SetView({id, shape, InverseOrder(order), x.dims});
  return absl::OkStatus();
}

// A constant of one number, or with one number for each index of one axis, usually the channels.
absl::Status WithConstant(OnnxImporter& importer, int constant_input) {
  const int value_input = 1 - constant_input;
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(value_input));
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor constant, importer.ConstantOf(constant_input, "constant"));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  if (constant.whole) constant.floats.assign(constant.ints.begin(), constant.ints.end());
  const std::string& type = importer.node().op_type();
  const v1::Operation::Kind kind = type == "Add"   ? v1::Operation::ADD
                                   : type == "Sub" ? v1::Operation::SUBTRACT
                                   : type == "Mul" ? v1::Operation::MULTIPLY
                                                   : v1::Operation::DIVIDE;
  if (type == "Div" && constant_input == 0) return ImportOnnxBinary(importer, kind);
  const size_t count = constant.floats.size();
  std::vector<float> scale(count, type == "Sub" && constant_input == 0 ? -1.0f : 1.0f), offset(count, 0.0f);
  for (size_t i = 0; i < count; ++i) {
    const float c = constant.floats[i];
    if (type == "Add") offset[i] = c;
    if (type == "Sub") offset[i] = constant_input == 0 ? c : -c;
    if (type == "Mul") scale[i] = c;
    if (type == "Div") scale[i] = 1 / c;
  }
  const int beyond = static_cast<int>(constant.dims.size()) -
                     static_cast<int>(x.dims.size());  // axes before the value's; 1: the batch
  int axis = -1, axes = 0;
  for (int i = 0; i < static_cast<int>(constant.dims.size()); ++i) {
    if (constant.dims[static_cast<size_t>(i)] == 1) continue;
    axis = i - beyond;
    ++axes;
  }
  if (beyond > 1 || axes > 1 ||
      (axes == 1 && (axis < 0 || x.dims[static_cast<size_t>(axis)] != static_cast<int64_t>(count)))) {
    return ImportOnnxBinary(importer, kind);
  }
  return axes == 0 ? ByOne(importer, value_input, scale[0], offset[0])
                   : ByChannel(importer, value_input, axis, std::move(scale), std::move(offset));
}

absl::Status JoinLayers(OnnxImporter& importer, LayerKind kind, const std::vector<OnnxView>& views) {
  v1::Layer layer;
  switch (kind) {
    case LayerKind::kMultiply: layer.mutable_multiply(); break;
    case LayerKind::kAverage: layer.mutable_average(); break;
    case LayerKind::kMaximum: layer.mutable_maximum(); break;
    case LayerKind::kMinimum: layer.mutable_minimum(); break;
    default: layer.mutable_add();
  }
  const OnnxView* largest = &views[0];
  bool alike = true;
  for (const OnnxView& view : views) {
    if (view.dims.size() != views[0].dims.size())
      return Lacks("its inputs ", ToString(views[0].dims), " and ", ToString(view.dims),
                   " differ in the number of their axes");
    if (NumElements(view.dims) > NumElements(largest->dims)) largest = &view;
    alike = alike && view.grid == views[0].grid && view.axes == views[0].axes && view.dims == views[0].dims &&
            importer.layers().ShapeOf(view.layer) == importer.layers().ShapeOf(views[0].layer);
  }
  std::vector<int> inputs;
  if (alike) {
    for (const OnnxView& view : views) inputs.push_back(view.layer);
    CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(kind, layer, inputs));
    importer.SetView({id, views[0].grid, views[0].axes, views[0].dims});
    return absl::OkStatus();
  }
  // In the axis order of the largest one.
  const std::vector<int> order = largest->LayerOrder();
  for (const OnnxView& view : views) {
    CAIRN_ASSIGN_OR_RETURN(const int input, importer.layers().PlaceInOrder(view, order));
    inputs.push_back(input);
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(kind, layer, inputs));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id), order));
  return absl::OkStatus();
}

}  // namespace

absl::Status ImportOnnxArithmetic(OnnxImporter& importer) {
  if (importer.node().input_size() != 2) return Bad("it has ", importer.node().input_size(), " inputs; 2 are needed");
  for (int i = 0; i < 2; ++i) {
    if (importer.HasInput(i) && importer.IsConstant(i)) return WithConstant(importer, i);
  }
  const std::string& type = importer.node().op_type();
  if (type == "Sub") return ImportOnnxBinary(importer, v1::Operation::SUBTRACT);
  if (type == "Div") return ImportOnnxBinary(importer, v1::Operation::DIVIDE);
  return ImportOnnxJoin(importer);
}

absl::Status ImportOnnxJoin(OnnxImporter& importer) {
  const bool of_two = importer.node().input_size() == 2 && (importer.IsConstant(0) || importer.IsConstant(1));
  if (of_two && importer.node().op_type() == "Max") return ImportOnnxBinary(importer, v1::Operation::MAXIMUM);
  if (importer.node().input_size() == 2 && importer.node().op_type() == "Min")
    return ImportOnnxBinary(importer, v1::Operation::MINIMUM);
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  std::vector<OnnxView> views;
  for (int i = 0; i < importer.node().input_size(); ++i) {
    CAIRN_ASSIGN_OR_RETURN(OnnxView view, importer.ViewOf(i));
    views.push_back(std::move(view));
  }
  if (views.size() == 1) {
    importer.SetView(views[0]);
    return absl::OkStatus();
  }
  const std::string& type = importer.node().op_type();
  return JoinLayers(importer,
                    type == "Mul"    ? LayerKind::kMultiply
                    : type == "Mean" ? LayerKind::kAverage
                    : type == "Max"  ? LayerKind::kMaximum
                    : type == "Min"  ? LayerKind::kMinimum
                                     : LayerKind::kAdd,
                    views);
}

}  // namespace cairn
