#include "common/formats/torch_layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/model/layer_type.h"
#include "common/model/onnx/axis_order.h"
#include "common/tensor/dtype.h"

namespace cairn {
namespace {

// "layer2_0_downsample_1" of torchvision's residual networks becomes "layer2.0.downsample.1"; other names are
// unchanged.
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

absl::StatusOr<TorchPlace> PlaceOf(const Graph& graph, const Variable& v) {
  const Node& node = graph.nodes()[static_cast<size_t>(v.node)];
  if (node.kind == LayerKind::kExternal) {
    return absl::UnimplementedError(absl::StrCat(
        "layer \"", node.name, "\": a program computes it, and its variables have the layout that the program gave ",
        "them; leave the layout out"));
  }
  const absl::string_view name = absl::string_view(v.name).substr(node.name.size() + 1);
  const LayerType& type = TypeOf(node.kind);
  std::optional<TorchPlace> place = type.torch != nullptr ? type.torch(graph, v, name) : std::nullopt;
  const char* same = name == "gamma" ? "weight" : name == "beta" || name == "bias" ? "bias" : nullptr;
  if (!place.has_value() && same != nullptr) place = TorchPlace{same, v.shape, SameOrder(v.shape.size()), v.shape};
  if (!place.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat("layer \"", node.name, "\": ", type.name, " has no counterpart in PyTorch's layout; use Keras'"));
  }
  place->name = absl::StrCat(TorchName(node.name), ".", place->name);
  return *std::move(place);
}

}  // namespace

absl::StatusOr<std::vector<Safetensor>> ToTorchLayout(const Graph& graph, absl::Span<const float> space) {
  std::vector<Safetensor> tensors;
  for (const Variable& v : graph.variables()) {
    CAIRN_ASSIGN_OR_RETURN(const TorchPlace place, PlaceOf(graph, v));
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
  std::map<std::string, bool> names;  // value: whether the name is PyTorch's
  for (const Variable& v : graph.variables()) {
    names[v.name] = false;
    if (const absl::StatusOr<TorchPlace> place = PlaceOf(graph, v); place.ok()) names[place->name] = true;
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
    CAIRN_ASSIGN_OR_RETURN(const TorchPlace place, PlaceOf(graph, v));
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
