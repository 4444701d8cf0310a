#include "common/formats/keras_h5.h"

#include <fcntl.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/formats/hdf5_file.h"
#include "common/formats/keras_weights.h"
#include "common/formats/limits.h"
#include "common/formats/plain_file.h"
#include "common/model/keras/keras_config.h"
#include "common/model/submodels.h"

namespace cairn {
namespace {

constexpr absl::string_view kMagic("\x89HDF\r\n\x1a\n", 8);
constexpr char kModelWeights[] = "model_weights";

// One array of the file.
struct Weight {
  std::string group;  // the layer's
  std::string name;   // "dense/kernel", without ":0"
  std::string path;
  std::string scoped;  // "/LAYER/dense/kernel"
};

// The arrays of a node's variables, in order.
using Places = std::vector<const Weight*>;

// Reads a list of names; nullopt: there is none.
absl::StatusOr<std::optional<std::vector<std::string>>> Names(const Hdf5Reader& reader, const std::string& group,
                                                              const std::string& attribute) {
  absl::StatusOr<std::vector<std::string>> names = reader.Texts(group, attribute, kHdf5NamesBytesMax);
  if (names.ok()) return *std::move(names);
  if (!absl::IsNotFound(names.status())) return names.status();
  std::vector<std::string> joined;
  for (int part = 0;; ++part) {
    const absl::StatusOr<std::vector<std::string>> more =
        reader.Texts(group, absl::StrCat(attribute, part), kHdf5NamesBytesMax);
    if (absl::IsNotFound(more.status()) && part == 0) return std::nullopt;
    if (absl::IsNotFound(more.status())) return joined;
    if (!more.ok()) return more.status();
    if (part >= kHdf5NamePartsMax) return absl::DataLossError(absl::StrCat(attribute, ": too many parts"));
    joined.insert(joined.end(), more->begin(), more->end());
  }
}

// The group that contains the layers' groups.
absl::StatusOr<std::string> RootOf(const Hdf5Reader& reader) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t count, reader.CountIn(kModelWeights));
  return count >= 0 ? kModelWeights : "";
}

// Removes the suffix: "dense/kernel:0" becomes "dense/kernel".
std::string WithoutNumber(const std::string& name) {
  const size_t colon = name.rfind(':');
  const bool numbered = colon != std::string::npos && name.find_first_not_of("0123456789", colon + 1) == name.npos;
  return numbered ? name.substr(0, colon) : name;
}

// The weights of each layer that has some, in the file's order.
absl::StatusOr<std::vector<std::vector<Weight>>> WeightsOf(const Hdf5Reader& reader, const std::string& where) {
  CAIRN_ASSIGN_OR_RETURN(const std::string root, RootOf(reader));
  CAIRN_ASSIGN_OR_RETURN(const auto layers, Names(reader, root, "layer_names"));
  if (!layers.has_value()) {
    return absl::DataLossError(absl::StrCat(where, ": it has no layer_names; is it a file of Keras' weights?"));
  }
  for (const char* attribute : {"keras_version", "backend"}) {
    for (const std::string& group : {root, std::string()}) {
      const absl::StatusOr<std::vector<std::string>> text = reader.Texts(group, attribute, kHdf5NamesBytesMax);
      if (!text.ok() || text->size() != 1) continue;
      if ((*text)[0] != "theano" && !absl::StartsWith((*text)[0], "1.")) continue;
      return absl::UnimplementedError(absl::StrCat(where, ": ", attribute, " is \"", ShownText((*text)[0]),
                                                   "\", whose kernels have another layout; load it in Keras 2 with "
                                                   "TensorFlow and save it again"));
    }
  }
  const std::string prefix = root.empty() ? "" : absl::StrCat(root, "/");
  std::vector<std::vector<Weight>> weights;
  for (const std::string& layer : *layers) {
    const std::string group = absl::StrCat(prefix, layer);
    CAIRN_ASSIGN_OR_RETURN(const auto names, Names(reader, group, "weight_names"));
    if (!names.has_value() || names->empty()) continue;
    std::vector<Weight>& of_layer = weights.emplace_back();
    for (const std::string& name : *names) {
      const std::string plain = WithoutNumber(name);
      of_layer.push_back({layer, plain, absl::StrCat(group, "/", name), absl::StrCat("/", layer, "/", plain)});
    }
  }
  return weights;
}

std::string LocalName(const Graph& graph, const Node& node, int variable) {
  return graph.variables()[static_cast<size_t>(variable)].name.substr(node.name.size() + 1);
}

// Finds the node's variables among these weights: by name if each occurs once, otherwise by order if there are equally
// many.
std::optional<Places> PlacesAmong(const Graph& graph, const Node& node, const Places& weights) {
  Places places;
  for (const int v : node.variables) {
    const std::string local = LocalName(graph, node, v);
    const Weight* found = nullptr;
    int count = 0;
    for (const Weight* weight : weights) {
      if (weight->name != local && !absl::EndsWith(weight->name, absl::StrCat("/", local))) continue;
      found = weight;
      ++count;
    }
    if (count == 1) places.push_back(found);
  }
  if (places.size() == node.variables.size()) return places;
  if (weights.size() == node.variables.size()) return weights;
  return std::nullopt;
}

// Those of a model inside the model are in the group of the outermost one.
std::optional<Places> PlacesByName(const Graph& graph, const SubmodelMap& submodels, const Node& node,
                                   const std::vector<std::vector<Weight>>& layers) {
  Places of_group, within, of_model;
  const int own = submodels.OfNode(node.id);
  int outermost = own;
  while (outermost >= 0 && submodels.ParentOf(outermost) >= 0) outermost = submodels.ParentOf(outermost);
  const std::string scope = absl::StrCat("/", node.name, "/"),
                    local = absl::StrCat("/", submodels.LocalName(node.name, own), "/");
  for (const std::vector<Weight>& layer : layers) {
    for (const Weight& weight : layer) {
      if (weight.group == node.name) of_group.push_back(&weight);
      if (absl::StrContains(weight.scoped, scope)) within.push_back(&weight);
      if (outermost >= 0 && weight.group == submodels.at(outermost).name() && absl::StrContains(weight.scoped, local)) {
        of_model.push_back(&weight);
      }
    }
  }
  if (std::optional<Places> places = PlacesAmong(graph, node, of_model); places.has_value() && own >= 0) return places;
  if (std::optional<Places> places = PlacesAmong(graph, node, of_group)) return places;
  return PlacesAmong(graph, node, within);
}

// By node; empty for nodes without variables.
absl::StatusOr<std::vector<Places>> FindPlaces(const Graph& graph, const std::vector<std::vector<Weight>>& layers,
                                               const std::string& where) {
  const SubmodelMap submodels(graph);
  std::vector<Places> places(graph.nodes().size());
  const Node* missing = nullptr;
  std::vector<const Node*> in_order;
  for (const int id : KerasOrder(graph)) {
    const Node& node = graph.nodes()[static_cast<size_t>(id)];
    if (node.variables.empty() || node.shares >= 0) continue;
    in_order.push_back(&node);
    std::optional<Places> found = missing == nullptr ? PlacesByName(graph, submodels, node, layers) : std::nullopt;
    if (found.has_value()) {
      places[static_cast<size_t>(id)] = *std::move(found);
    } else if (missing == nullptr) {
      missing = &node;
    }
  }
  if (missing == nullptr) return places;
  bool alike = layers.size() == in_order.size();
  for (size_t i = 0; alike && i < layers.size(); ++i) alike = layers[i].size() == in_order[i]->variables.size();
  if (!alike) {
    return absl::FailedPreconditionError(absl::StrCat(
        "layer \"", missing->name, "\": its ", missing->variables.size(), " variables are not in ", where,
        " under its name, and by their order the layers differ: ", layers.size(), " have weights there, ",
        in_order.size(), " in the model, or one has another number of them; was it saved from the same model?"));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    Places& of_node = places[static_cast<size_t>(in_order[i]->id)];
    of_node.clear();
    for (const Weight& weight : layers[i]) of_node.push_back(&weight);
  }
  return places;
}

// Keras 3 leaves the modules out of its legacy files. An operation is told from a layer by its config, which has no
// `trainable`. The recursion is bounded, since the parser limits the depth.
bool NameOperations(Json* model) {
  Json& config = (*model)["config"];
  if (!config.is_object() || !config.contains("layers") || !config["layers"].is_array()) return false;
  bool named = false;
  for (Json& layer : config["layers"]) {
    if (!layer.is_object() || !layer.contains("config") || !layer["config"].is_object()) continue;
    named = NameOperations(&layer) || named;
    const Json& of_layer = layer["config"];
    if (layer.contains("module") || of_layer.contains("trainable") || of_layer.contains("layers")) continue;
    if (!layer.contains("inbound_nodes") || !layer["inbound_nodes"].is_array()) continue;
    const Json& calls = layer["inbound_nodes"];
    if (calls.empty() || !calls[0].is_object()) continue;
    layer["module"] = "keras.src.ops.numpy";
    named = true;
  }
  return named;
}

}  // namespace

bool IsHdf5(absl::string_view bytes) { return absl::StartsWith(bytes, kMagic); }

absl::StatusOr<bool> IsHdf5File(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, OpenPlainFile(path, O_RDONLY));
  char head[kMagic.size()];
  const ssize_t n = ::pread(file.get(), head, sizeof(head), 0);
  return n > 0 && IsHdf5({head, static_cast<size_t>(n)});
}

absl::StatusOr<bool> IsLegacyKerasH5(const Buffer& bytes, const std::string& where) {
  const auto read = [&](const Hdf5Reader& reader) -> absl::StatusOr<std::string> {
    CAIRN_ASSIGN_OR_RETURN(const std::string root, RootOf(reader));
    CAIRN_ASSIGN_OR_RETURN(const auto names, Names(reader, root, "layer_names"));
    return std::string(names.has_value() ? "legacy" : "");
  };
  CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadHdf5Text(bytes, where, 64, read));
  return !text.empty();
}

absl::StatusOr<std::string> ReadKerasH5Config(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadFileBytes(path));
  const auto read = [&](const char* attribute, size_t bytes_max) {
    return ReadHdf5Text(bytes, path, bytes_max, [&](const Hdf5Reader& reader) -> absl::StatusOr<std::string> {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> texts, reader.Texts("", attribute, bytes_max));
      if (texts.size() != 1) return absl::DataLossError(absl::StrCat(path, ": ", attribute, " is not one text"));
      return texts[0];
    });
  };
  absl::StatusOr<std::string> config = read("model_config", kKerasJsonBytesMax);
  if (absl::IsNotFound(config.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": holds weights without a model; --set initial_weights takes them"));
  }
  if (!config.ok()) return config;
  const absl::StatusOr<std::string> beside = read("keras_version", kKerasMetadataBytesMax);
  absl::StatusOr<Json> model = ParseBoundedJson(*config, kKerasJsonBytesMax);
  if (!model.ok() || !model->is_object() || !model->contains("config")) return config;
  const bool named = NameOperations(&*model), versioned = beside.ok() && !model->contains("keras_version");
  if (!named && !versioned) return config;
  if (versioned) (*model)["keras_version"] = *beside;
  return model->dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

absl::StatusOr<SafetensorsFile> ReadKerasH5Weights(const Buffer& bytes, const std::string& where, const Graph& graph) {
  int64_t numbers = 0;
  for (const Variable& v : graph.variables()) numbers += v.size;
  const auto read = [&](const Hdf5Reader& reader, absl::Span<float> out) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::vector<Weight>> layers, WeightsOf(reader, where));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Places> places, FindPlaces(graph, layers, where));
    for (const Node& node : graph.nodes()) {
      if (node.shares >= 0) continue;
      for (size_t i = 0; i < node.variables.size(); ++i) {
        const Variable& v = graph.variables()[static_cast<size_t>(node.variables[i])];
        const size_t size = static_cast<size_t>(v.size);
        const Weight& weight = *places[static_cast<size_t>(node.id)][i];
        CAIRN_RETURN_IF_ERROR(ReadKerasVariable(reader, weight.path, v, out.subspan(0, size)));
        out.remove_prefix(size);
      }
    }
    return absl::OkStatus();
  };
  CAIRN_ASSIGN_OR_RETURN(const Buffer values, ReadHdf5(bytes, where, numbers, read));
  SafetensorsFile file;
  size_t at = 0;
  for (const Node& node : graph.nodes()) {
    if (node.shares >= 0) continue;
    for (const int id : node.variables) {
      const Variable& v = graph.variables()[static_cast<size_t>(id)];
      const size_t size = static_cast<size_t>(v.size) * sizeof(float);
      file.tensors.push_back({v.name, v1::FLOAT32, v.shape, values.Slice(at, size)});
      at += size;
    }
  }
  return file;
}

}  // namespace cairn
