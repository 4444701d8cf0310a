#include "common/model/onnx/onnx_layers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/lacks.h"
#include "common/model/layer_type.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"

namespace cairn {
namespace {

// Replaces characters that a layer's name may not have; letters, digits, '_', '-' and '.' are allowed.
std::string Plain(absl::string_view name) {
  std::string plain;
  for (const char c : name.substr(0, 100)) {
    const bool good = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
    if (good) plain.push_back(c);
    if (!good && !plain.empty() && plain.back() != '_') plain.push_back('_');
  }
  return plain;
}

bool AllAre(absl::Span<const float> values, float value) {
  return std::all_of(values.begin(), values.end(), [&](float v) { return v == value; });
}

// The transpositions, each of kPermutedAxesMax axes at most, that together are the view's. More axes are moved to the
// front one by one, the last of them first, each as the second one of three: those before it, itself, those behind it.
std::vector<OnnxView> StepsOf(const OnnxView& view) {
  if (view.grid.size() <= kPermutedAxesMax) return {view};
  std::vector<int> order = SameOrder(view.grid.size());
  // The longest end of view.axes that has its order already stays where it is.
  size_t moving = view.axes.size();
  for (size_t i = order.size(); moving > 0 && i-- > 0;) moving -= order[i] == view.axes[moving - 1];
  std::vector<OnnxView> steps;
  while (moving-- > 0) {
    const auto place = std::find(order.begin(), order.end(), view.axes[moving]);
    const auto product = [&](auto from, auto to) {
      int64_t size = 1;
      for (; from != to; ++from) size *= view.grid[static_cast<size_t>(*from)];
      return size;
    };
    if (place == order.begin()) continue;
    const Shape grid = {product(order.begin(), place), product(place, place + 1), product(place + 1, order.end())};
    steps.push_back({view.layer, grid, {1, 0, 2}, {}});
    std::rotate(order.begin(), place, place + 1);
  }
  return steps;
}

}  // namespace

void OnnxLayers::SetName(const std::string& name) { name_ = name; }

std::string OnnxLayers::UniqueName(LayerKind kind, std::string name) const {
  name = Plain(name);
  while (!name.empty() && name.back() == '_') name.pop_back();
  if (name.empty()) name = LayerTypeName(kind);
  std::string unique = name;
  for (int count = 1; names_.contains(unique); ++count) unique = absl::StrCat(name, "_", count);
  return unique;
}

absl::StatusOr<int> OnnxLayers::Add(LayerKind kind, v1::Layer layer, const std::vector<int>& inputs,
                                    std::vector<OnnxVariable> variables, const std::string& name) {
  if (model_.layers_size() >= kLayersMax) return Lacks("the model has more than ", kLayersMax, " layers");
  layer.set_name(UniqueName(kind, name.empty() ? name_ : name));
  names_.insert(layer.name());
  std::vector<cairn::Shape> shapes;
  for (const int input : inputs) {
    layer.add_inputs(model_.layers(input).name());
    shapes.push_back(ShapeOf(input));
  }
  cairn::Node node;
  node.kind = kind;
  node.name = layer.name();
  node.layer = layer;
  std::vector<Variable> inferred;
  CAIRN_RETURN_IF_ERROR(InferLayer(shapes, &node, &inferred));
  for (OnnxVariable& v : variables) {
    v.name = absl::StrCat(layer.name(), "/", v.name);
    variables_.push_back(std::move(v));
  }
  *model_.add_layers() = std::move(layer);
  kinds_.push_back(kind);
  shapes_.push_back(node.output);
  return model_.layers_size() - 1;
}

bool OnnxLayers::FoldInto(int id, absl::Span<const float> scale, absl::Span<const float> offset) {
  v1::Layer* layer = model_.mutable_layers(id);
  const LayerKind kind = kinds_[static_cast<size_t>(id)];
  if (kind == LayerKind::kRescaling && AllAre(scale, scale[0]) && AllAre(offset, offset[0])) {
    v1::Rescaling* rescaling = layer->mutable_rescaling();
    rescaling->set_scale(rescaling->scale() * scale[0]);
    rescaling->set_offset(rescaling->offset() * scale[0] + offset[0]);
    return true;
  }
  size_t inner = 1;  // distance in the kernel between two output channels
  switch (kind) {
    case LayerKind::kConv2D:
      layer->mutable_conv2d()->set_use_bias(layer->conv2d().use_bias() || !AllAre(offset, 0));
      break;
    case LayerKind::kConv1D:
      layer->mutable_conv1d()->set_use_bias(layer->conv1d().use_bias() || !AllAre(offset, 0));
      break;
    case LayerKind::kDepthwiseConv2D:
      layer->mutable_depthwise_conv2d()->set_use_bias(layer->depthwise_conv2d().use_bias() || !AllAre(offset, 0));
      break;
    case LayerKind::kConv3D:
      layer->mutable_conv3d()->set_use_bias(layer->conv3d().use_bias() || !AllAre(offset, 0));
      break;
    case LayerKind::kDepthwiseConv1D:
      layer->mutable_depthwise_conv1d()->set_use_bias(layer->depthwise_conv1d().use_bias() || !AllAre(offset, 0));
      break;
    case LayerKind::kConv1DTranspose:
      layer->mutable_conv1d_transpose()->set_use_bias(layer->conv1d_transpose().use_bias() || !AllAre(offset, 0));
      break;
    case LayerKind::kConv2DTranspose:
      layer->mutable_conv2d_transpose()->set_use_bias(layer->conv2d_transpose().use_bias() || !AllAre(offset, 0));
      break;
    case LayerKind::kConv3DTranspose:
      layer->mutable_conv3d_transpose()->set_use_bias(layer->conv3d_transpose().use_bias() || !AllAre(offset, 0));
      break;
    case LayerKind::kDense:
      layer->mutable_dense()->set_use_bias(layer->dense().use_bias() || !AllAre(offset, 0));
      break;
    default: return false;
  }
  OnnxVariable *kernel = nullptr, *bias = nullptr;
  for (OnnxVariable& v : variables_) {
    if (v.name == absl::StrCat(layer->name(), "/kernel")) kernel = &v;
    if (v.name == absl::StrCat(layer->name(), "/bias")) bias = &v;
  }
  if (kind == LayerKind::kConv1DTranspose || kind == LayerKind::kConv2DTranspose ||
      kind == LayerKind::kConv3DTranspose) {
    inner = static_cast<size_t>(kernel->shape.back());
  }
  const size_t channels = scale.size();
  for (size_t i = 0; i < kernel->values.size(); ++i) kernel->values[i] *= scale[i / inner % channels];
  if (bias != nullptr) {
    for (size_t i = 0; i < channels; ++i) bias->values[i] = bias->values[i] * scale[i] + offset[i];
  } else if (!AllAre(offset, 0)) {
    variables_.push_back(
        {absl::StrCat(layer->name(), "/bias"), {static_cast<int64_t>(channels)}, {offset.begin(), offset.end()}});
  }
  return true;
}

ImportedOnnx OnnxLayers::Take() {
  ImportedOnnx imported;
  imported.model = std::move(model_);
  imported.variables = std::move(variables_);
  return imported;
}

// ---- values ----

absl::StatusOr<int> OnnxLayers::Place(const OnnxView& view) {
  const std::string key =
      absl::StrCat(view.layer, ":", ToString(view.grid), absl::StrJoin(view.axes, ","), ToString(view.dims));
  if (const auto it = placed_.find(key); it != placed_.end()) return it->second;
  if (view.dims.empty() || view.dims.size() > kLayerDimensionsMax) {
    return Lacks("it needs a value of ", view.dims.size() + 1,
                 " dimensions, batch included, as a layer's output; Cairn's have 2 to 5");
  }
  const auto reshape = [&](int layer, const cairn::Shape& shape) -> absl::StatusOr<int> {
    if (ShapeOf(layer) == shape) return layer;
    v1::Layer reshaped;
    if (shape.size() == 1) {
      reshaped.mutable_flatten();
      return Add(LayerKind::kFlatten, reshaped, {layer});
    }
    reshaped.mutable_reshape()->mutable_target_shape()->Assign(shape.begin(), shape.end());
    return Add(LayerKind::kReshape, reshaped, {layer});
  };
  int layer = view.layer;
  if (!view.InPlace()) {
    OnnxView moved = view.grid == ShapeOf(layer) ? view : view.Simplified();
    if (moved.grid.size() > kPermutedAxesMax) moved = view.Simplified();
    for (const OnnxView& step : StepsOf(moved)) {
      CAIRN_ASSIGN_OR_RETURN(layer, reshape(layer, step.grid));
      v1::Layer permute;
      for (const int axis : step.axes) permute.mutable_permute()->add_dims(axis + 1);
      CAIRN_ASSIGN_OR_RETURN(layer, Add(LayerKind::kPermute, permute, {layer}));
    }
  }
  CAIRN_ASSIGN_OR_RETURN(layer, reshape(layer, view.dims));
  placed_[key] = layer;
  return layer;
}

absl::StatusOr<OnnxView> OnnxLayers::TransposedView(const OnnxView& view, const std::vector<int>& order) {
  if (std::optional<OnnxView> transposed = view.Transposed(order)) return *std::move(transposed);
  CAIRN_ASSIGN_OR_RETURN(const int placed, Place(view));
  return *OnnxView::Of(placed, view.dims).Transposed(order);
}

absl::StatusOr<int> OnnxLayers::PlaceInOrder(const OnnxView& view, const std::vector<int>& order) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView transposed, TransposedView(view, order));
  return Place(transposed);
}

absl::StatusOr<int> OnnxLayers::PlaceChannelsLast(const OnnxView& view) {
  return PlaceInOrder(view, ChannelsLast(view.dims.size()));
}

// Flattened in ONNX's order there, in Cairn's order here: the weights are permuted, not the numbers.
absl::StatusOr<int> OnnxLayers::PlaceRow(const OnnxView& x, std::vector<int64_t>* order) {
  order->resize(static_cast<size_t>(NumElements(x.dims)));
  WalkInOrder(x.grid, x.axes, [&](int64_t layer, int64_t value) { (*order)[static_cast<size_t>(layer)] = value; });
  return Place(OnnxView::Of(x.layer, x.dims));
}

}  // namespace cairn
