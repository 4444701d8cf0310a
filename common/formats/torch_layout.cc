#include "common/formats/torch_layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/formats/onnx/axis_order.h"
#include "common/tensor/dtype.h"

namespace cairn {
namespace {

// Where an element stands in both: PyTorch's tensor is Keras', looked at as `grid`, with its axes in the order `axes`,
// and then of `shape`.
struct Place {
  std::string name;
  Shape grid;
  std::vector<int> axes;
  Shape shape;
};

// "layer2_0_downsample_1" of torchvision's residual networks is "layer2.0.downsample.1"; every other name stays.
std::string TorchName(const std::string& layer) {
  absl::string_view rest = layer;
  const auto number = [&rest] {
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    rest.remove_prefix(digits);
    return digits > 0;
  };
  const bool block = absl::ConsumePrefix(&rest, "layer") && number() && absl::ConsumePrefix(&rest, "_") && number() &&
                     absl::ConsumePrefix(&rest, "_");
  const bool module = absl::ConsumePrefix(&rest, "conv") || absl::ConsumePrefix(&rest, "bn") ||
                      absl::ConsumePrefix(&rest, "downsample_");
  if (!block || !module || !number() || !rest.empty()) return layer;
  return absl::StrReplaceAll(layer, {{"_", "."}});
}

bool EndsWithName(const Variable& v, absl::string_view name) { return absl::EndsWith(v.name, absl::StrCat("/", name)); }

// The picture that a Dense layer's input was before it was flattened: nullopt where there was none.
std::optional<Shape> FlattenedPicture(const Graph& graph, const Node& dense) {
  const Node* node = &graph.nodes()[static_cast<size_t>(dense.inputs[0])];
  while (node->kind == LayerKind::kDropout || node->kind == LayerKind::kActivation) {
    node = &graph.nodes()[static_cast<size_t>(node->inputs[0])];
  }
  if (node->kind != LayerKind::kFlatten) return std::nullopt;
  const Shape& picture = graph.nodes()[static_cast<size_t>(node->inputs[0])].output;
  if (picture.size() < 2) return std::nullopt;
  return picture;
}

Place DensePlace(const Graph& graph, const Node& node, const Variable& v) {
  const int64_t in = v.shape[0], out = v.shape[1];
  const std::optional<Shape> picture = FlattenedPicture(graph, node);
  if (!picture.has_value()) return {"weight", {in, out}, {1, 0}, {out, in}};
  Place place{"weight", *picture, {}, {out, in}};
  const int rank = static_cast<int>(picture->size());
  place.grid.push_back(out);
  place.axes = {rank, rank - 1};  // channels first
  for (int i = 0; i + 1 < rank; ++i) place.axes.push_back(i);
  return place;
}

absl::StatusOr<Place> KernelPlace(const Graph& graph, const Node& node, const Variable& v) {
  const Shape& s = v.shape;
  switch (node.kind) {
    case LayerKind::kDense: return DensePlace(graph, node, v);
    case LayerKind::kConv2D: return Place{"weight", s, {3, 2, 0, 1}, {s[3], s[2], s[0], s[1]}};
    case LayerKind::kConv1D: return Place{"weight", s, {2, 1, 0}, {s[2], s[1], s[0]}};
    case LayerKind::kDepthwiseConv2D: return Place{"weight", s, {2, 3, 0, 1}, {s[2] * s[3], 1, s[0], s[1]}};
    case LayerKind::kConv2DTranspose: return Place{"weight", s, {3, 2, 0, 1}, {s[3], s[2], s[0], s[1]}};
    default: break;
  }
  if (EndsWithName(v, "depthwise_kernel"))
    return Place{"depthwise.weight", s, {2, 3, 0, 1}, {s[2] * s[3], 1, s[0], s[1]}};
  if (EndsWithName(v, "pointwise_kernel")) return Place{"pointwise.weight", s, {3, 2, 0, 1}, {s[3], s[2], s[0], s[1]}};
  return absl::UnimplementedError(absl::StrCat("layer \"", node.name, "\": ", LayerTypeName(node.kind),
                                               " has no counterpart in PyTorch's layout; use Keras'"));
}

absl::StatusOr<Place> PlaceOf(const Graph& graph, const Variable& v) {
  const Node& node = graph.nodes()[static_cast<size_t>(v.node)];
  absl::StatusOr<Place> place;
  const auto as_it_is = [&](const char* name) {
    Place same{name, v.shape, {}, v.shape};
    for (size_t i = 0; i < v.shape.size(); ++i) same.axes.push_back(static_cast<int>(i));
    return same;
  };
  if (node.kind == LayerKind::kMultiHeadAttention) {
    place = KernelPlace(graph, node, v);
  } else if (EndsWithName(v, "gamma") || EndsWithName(v, "embeddings")) {
    place = as_it_is("weight");
  } else if (EndsWithName(v, "beta")) {
    place = as_it_is("bias");
  } else if (EndsWithName(v, "bias")) {
    place = as_it_is(node.kind == LayerKind::kSeparableConv2D ? "pointwise.bias" : "bias");
  } else if (EndsWithName(v, "moving_mean")) {
    place = as_it_is("running_mean");
  } else if (EndsWithName(v, "moving_variance")) {
    place = as_it_is("running_var");
  } else {
    place = KernelPlace(graph, node, v);
  }
  if (!place.ok()) return place;
  place->name = absl::StrCat(TorchName(node.name), ".", place->name);
  return place;
}

}  // namespace

absl::StatusOr<std::vector<Safetensor>> ToTorchLayout(const Graph& graph, absl::Span<const float> space) {
  std::vector<Safetensor> tensors;
  for (const Variable& v : graph.variables()) {
    CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(graph, v));
    Safetensor tensor{place.name, v1::FLOAT32, place.shape,
                      Buffer::Allocate(static_cast<size_t>(v.size) * sizeof(float))};
    const float* const from = space.data() + v.offset;
    float* const to = tensor.data.mutable_floats().data();
    WalkInOrder(place.grid, place.axes, [&](int64_t keras, int64_t torch) { to[torch] = from[keras]; });
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

bool IsTorchLayout(const SafetensorsFile& file, const Graph& graph) {
  std::map<std::string, bool> names;  // whether they are PyTorch's
  for (const Variable& v : graph.variables()) {
    names[v.name] = false;
    if (const absl::StatusOr<Place> place = PlaceOf(graph, v); place.ok()) names[place->name] = true;
  }
  size_t torch = 0, keras = 0;
  for (const Safetensor& tensor : file.tensors) {
    const auto it = names.find(tensor.name);
    if (it != names.end()) ++(it->second ? torch : keras);
  }
  return torch > keras;
}

absl::StatusOr<SafetensorsFile> FromTorchLayout(const SafetensorsFile& file, const Graph& graph) {
  std::map<std::string, const Safetensor*> tensors;
  for (const Safetensor& tensor : file.tensors) tensors[tensor.name] = &tensor;
  SafetensorsFile converted;
  converted.metadata = file.metadata;
  for (const Variable& v : graph.variables()) {
    CAIRN_ASSIGN_OR_RETURN(const Place place, PlaceOf(graph, v));
    const auto it = tensors.find(place.name);
    if (it == tensors.end()) continue;
    const Safetensor& tensor = *it->second;
    if (tensor.shape != place.shape) {
      return absl::FailedPreconditionError(absl::StrCat("tensor \"", place.name, "\": shape ", ToString(tensor.shape),
                                                        ", ", ToString(place.shape), " in the model (its variable \"",
                                                        v.name, "\" in PyTorch's layout)"));
    }
    Buffer floats = Buffer::Allocate(static_cast<size_t>(v.size) * sizeof(float));
    ToFloat({tensor.data.data(), tensor.data.size()}, tensor.dtype, floats.mutable_floats());
    Buffer keras_values = Buffer::Allocate(floats.size());
    const float* const from = floats.floats().data();
    float* const to = keras_values.mutable_floats().data();
    WalkInOrder(place.grid, place.axes, [&](int64_t keras, int64_t torch) { to[keras] = from[torch]; });
    converted.tensors.push_back({v.name, v1::FLOAT32, v.shape, std::move(keras_values)});
  }
  return converted;
}

}  // namespace cairn
