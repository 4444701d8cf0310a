#include "common/model/onnx/onnx_moves.h"

#include <string>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_arrange.h"

namespace cairn {
namespace {

// batch: the axis of the batch in its output.
absl::Status AddMove(OnnxImporter& importer, LayerKind kind, const v1::Layer& layer, const OnnxView& x, int batch = 0) {
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, SameOrder(x.dims.size())));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(kind, layer, {from}));
  importer.SetLaidView(OnnxView::Of(id, importer.layers().ShapeOf(id)).WithBatchAt(batch));
  return absl::OkStatus();
}

}  // namespace

// One index without an axis of its own is a part: x[:, 3].
absl::Status ImportOnnxTake(OnnxImporter& importer) {
  if (!importer.IsConstant(1)) {
    return Lacks("it selects from one layer's output by another's; the indices must be a constant");
  }
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor indices, importer.ConstantOf(1, "indices"));
  OnnxAttributes attributes(importer.node());
  CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(attributes.Int("axis", 0)));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  const int64_t size = x.dims[static_cast<size_t>(axis)];
  if (!indices.whole || indices.ints.empty()) return Bad("its indices are not whole numbers");
  for (const int64_t index : indices.ints) {
    if (index < -size || index >= size) return Bad("index ", index, " is not on an axis of ", size);
  }
  if (size == 1 && indices.dims.empty()) {
    importer.SetLaidView(OnnxWithoutAxes(x, {axis}));
    return absl::OkStatus();
  }
  v1::Layer layer;
  if (indices.dims.empty()) {
    for (size_t i = 0; i < x.dims.size(); ++i) layer.mutable_slice()->add_axes();
    layer.mutable_slice()->mutable_axes(axis)->set_begin(static_cast<int32_t>(indices.ints[0]));
    layer.mutable_slice()->mutable_axes(axis)->set_drop(true);
    return AddMove(importer, LayerKind::kSlice, layer, x, x.BatchWithout(axis));
  }
  v1::Take* take = layer.mutable_take();
  take->set_axis(axis + 1);
  for (const int64_t index : indices.ints) take->add_indices(static_cast<int32_t>(index));
  for (const int64_t side : indices.dims) take->add_indices_shape(static_cast<int32_t>(side));
  const int more = axis < x.batch ? static_cast<int>(indices.dims.size()) - 1 : 0;  // axes before the batch
  return AddMove(importer, LayerKind::kTake, layer, x, x.batch + more);
}

absl::Status ImportOnnxPads(OnnxImporter& importer, v1::Pad::Mode mode, const std::vector<int64_t>& pads, float value) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  const size_t rank = x.dims.size() + 1;
  if (pads[0] != 0 || pads[rank] != 0) return Lacks("it pads the batch; only the axes after it are padded");
  v1::Layer layer;
  layer.mutable_pad()->set_mode(mode);
  layer.mutable_pad()->set_constant_value(value);
  for (size_t axis = 1; axis < rank; ++axis) {
    layer.mutable_pad()->add_before(static_cast<int32_t>(pads[axis]));
    layer.mutable_pad()->add_after(static_cast<int32_t>(pads[axis + rank]));
  }
  return AddMove(importer, LayerKind::kPad, layer, x);
}

absl::Status ImportOnnxEinsumOfTwo(OnnxImporter& importer) {
  OnnxAttributes attributes(importer.node());
  v1::Layer layer;
  layer.mutable_einsum()->set_equation(attributes.Text("equation", ""));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (importer.node().input_size() != 2)
    return Lacks("of ", importer.node().input_size(), " values; of two it is read");
  std::vector<int> inputs;
  for (int i = 0; i < 2; ++i) {
    CAIRN_ASSIGN_OR_RETURN(const OnnxView view, importer.ViewOf(i));
    CAIRN_ASSIGN_OR_RETURN(const int input, importer.layers().PlaceInOrder(view, SameOrder(view.dims.size())));
    inputs.push_back(input);
  }
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kEinsum, layer, inputs));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

}  // namespace cairn
