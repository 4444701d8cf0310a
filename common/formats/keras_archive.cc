#include "common/formats/keras_archive.h"

#include <unistd.h>

#include <map>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/files.h"
#include "common/formats/keras_augmentation_writer.h"
#include "common/formats/keras_class.h"
#include "common/formats/keras_h5.h"
#include "common/formats/keras_inbound.h"
#include "common/formats/keras_model.h"
#include "common/formats/keras_states.h"
#include "common/formats/keras_vocabulary.h"
#include "common/formats/keras_weights.h"
#include "common/formats/limits.h"
#include "common/formats/open_shape.h"
#include "common/formats/plain_file.h"
#include "common/formats/zip_file.h"
#include "common/model/call_mode.h"
#include "common/model/external_check.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_operations.h"
#include "common/model/layer_type.h"
#include "common/model/recurrent.h"

namespace cairn {
namespace {

constexpr char kConfig[] = "config.json";
constexpr char kMetadata[] = "metadata.json";
constexpr char kVersion[] = "keras_version";
constexpr char kWeights[] = "model.weights.h5";
constexpr char kKerasVersion[] = "3.0.0";  // the version of this format

// The shapes with which the layer was built.
OrderedJson BuildConfig(const Graph& graph, const Node& node) {
  OrderedJson config = OrderedJson::object();
  const auto shape = [&](size_t i) {
    return KerasBatchShape(graph.nodes()[static_cast<size_t>(node.inputs[i])].output);
  };
  if (IsRecurrent(node.kind) && node.inputs.size() > 1) {
    config["shapes_dict"]["sequences_shape"] = shape(0);
    config["shapes_dict"]["initial_state_shape"] = OrderedJson::array();
    for (size_t i = 1; i < node.inputs.size(); ++i) config["shapes_dict"]["initial_state_shape"].push_back(shape(i));
    return config;
  }
  if (TypeOf(node.kind).merges) {
    for (size_t i = 0; i < node.inputs.size(); ++i) config["input_shape"].push_back(shape(i));
    return config;
  }
  if (!TakesQuery(node.kind)) {
    config["input_shape"] = shape(0);
    return config;
  }
  config["shapes_dict"]["query_shape"] = shape(0);
  config["shapes_dict"]["value_shape"] = shape(1);
  if (node.inputs.size() > 2) config["shapes_dict"]["key_shape"] = shape(2);
  return config;
}

absl::StatusOr<OrderedJson> LayerJson(const KerasScopes& scopes, const Node& node, const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(OrderedJson config, KerasLayerConfig(node));
  if (config.contains("name")) config["name"] = name;
  const char* const module = KerasOperationModule(node);
  OrderedJson layer = KerasObject(module != nullptr ? module : "keras.layers", KerasClassOf(node), std::move(config));
  if (module != nullptr) layer["registered_name"] = KerasClassOf(node);  // Keras registers only layers by their names
  if (!node.variables.empty()) layer["build_config"] = BuildConfig(scopes.graph(), node);
  return layer;
}

// What stands for an input of a model inside a model.
absl::StatusOr<OrderedJson> InnerInputJson(const KerasScopes& scopes, const std::string& name, int node) {
  const Shape& shape = scopes.graph().nodes()[static_cast<size_t>(node)].output;
  Node input;
  input.kind = LayerKind::kInput;
  input.name = name;
  input.output = shape;
  input.layer.set_name(name);
  for (const int64_t side : shape) input.layer.mutable_input()->add_shape(static_cast<int32_t>(side));
  return LayerJson(scopes, input, name);
}

absl::Status CheckNames(const KerasScopes& scopes, int scope) {
  std::map<std::string, std::string> names;
  for (const KerasScopes::Member& member : scopes.MembersOf(scope)) {
    const std::string name =
        member.node >= 0 ? scopes.graph().nodes()[static_cast<size_t>(member.node)].name : scopes.NameOf(member, scope);
    const auto [other, first] = names.emplace(scopes.NameOf(member, scope), name);
    if (first) continue;
    return absl::UnimplementedError(absl::StrCat("layer \"", name, "\": Keras' format has no '/' in names, and \"",
                                                 other->first, "\" is another layer; export safetensors"));
  }
  return absl::OkStatus();
}

bool IsFrozen(const KerasScopes& scopes, int scope) {
  bool frozen = false;
  for (const Node& node : scopes.graph().nodes()) {
    if (node.variables.empty() || !scopes.map().Within(scopes.map().OfNode(node.id), scope)) continue;
    if (node.trainable) return false;
    frozen = true;
  }
  return frozen;
}

// A model with its layers, and with those inside it.
absl::StatusOr<OrderedJson> ScopeJson(const KerasScopes& scopes, int scope, const std::string& name) {
  CAIRN_RETURN_IF_ERROR(CheckNames(scopes, scope));
  const Graph& graph = scopes.graph();
  const bool sequential = scopes.IsSequential(scope), whole = scope == SubmodelMap::kItself;
  const std::vector<int> inputs = whole ? graph.inputs() : scopes.map().Inputs(scope, 0);
  OrderedJson config = OrderedJson::object();
  config["name"] = name;
  config["trainable"] = whole || !IsFrozen(scopes, scope);
  if (sequential) config["dtype"] = "float32";
  config["layers"] = OrderedJson::array();
  for (const KerasScopes::Member& member : scopes.MembersOf(scope)) {
    const std::string of_member = scopes.NameOf(member, scope);
    const Node* const node = member.node < 0 ? nullptr : &graph.nodes()[static_cast<size_t>(member.node)];
    CAIRN_ASSIGN_OR_RETURN(OrderedJson layer,
                           node != nullptr ? LayerJson(scopes, *node, of_member)
                           : member.submodel >= 0
                               ? ScopeJson(scopes, member.submodel, of_member)
                               : InnerInputJson(scopes, of_member, inputs[static_cast<size_t>(member.input)]));
    if (!sequential) {
      layer["name"] = of_member;
      layer["inbound_nodes"] = node != nullptr        ? KerasInboundNodes(scopes, *node)
                               : member.submodel >= 0 ? KerasSubmodelNodes(scopes, member.submodel)
                                                      : OrderedJson::array();
    }
    config["layers"].push_back(std::move(layer));
  }
  OrderedJson model, shapes = OrderedJson::array();
  for (const int id : inputs) shapes.push_back(KerasBatchShape(graph.nodes()[static_cast<size_t>(id)].output));
  if (sequential) {
    config["build_input_shape"] = shapes[0];
    model = KerasObject("keras", "Sequential", std::move(config));
  } else {
    config["input_layers"] = OrderedJson::array();
    for (size_t i = 0; i < inputs.size(); ++i) {
      config["input_layers"].push_back(
          whole ? KerasHistory(scopes, inputs[i], scope)
                : OrderedJson::array({scopes.NameOf({.input = static_cast<int>(i)}, scope), 0, 0}));
    }
    config["output_layers"] = OrderedJson::array();
    for (const int id : scopes.OutputsOf(scope)) config["output_layers"].push_back(KerasHistory(scopes, id, scope));
    model = KerasObject("keras.src.models.functional", "Functional", std::move(config));
    model["registered_name"] = "Functional";  // Keras does not register the class by its name
  }
  model["build_config"]["input_shape"] = shapes.size() == 1 ? shapes[0] : shapes;
  return model;
}

}  // namespace

absl::StatusOr<std::string> KerasModelJson(const std::string& name, const Graph& graph, const v1::Data* data) {
  CAIRN_RETURN_IF_ERROR(CheckKerasStates(graph));
  const KerasScopes scopes(graph);
  const char* const unnamed = scopes.IsSequential(SubmodelMap::kItself) ? "sequential" : "functional";
  CAIRN_ASSIGN_OR_RETURN(OrderedJson model, ScopeJson(scopes, SubmodelMap::kItself, name.empty() ? unnamed : name));
  if (data != nullptr) InsertAugmentation(*data, &model);
  return model.dump(-1, ' ', /*ensure_ascii=*/true, OrderedJson::error_handler_t::replace);
}

namespace {

// A weights file may be float64 and also contain an optimizer's variables: up to three for each of the model's.
uint64_t WeightsBytesMax(const Graph& graph) {
  constexpr uint64_t kOverhead = uint64_t{64} << 20;  // groups, names
  return static_cast<uint64_t>(graph.space_size()) * sizeof(double) * 4 + kOverhead;
}

std::string MetadataJson() {
  OrderedJson metadata = OrderedJson::object();
  metadata[kVersion] = kKerasVersion;
  metadata["date_saved"] = absl::FormatTime("%Y-%m-%d@%H:%M:%S", absl::Now(), absl::UTCTimeZone());
  return metadata.dump();
}

}  // namespace

absl::Status WriteKerasArchive(const std::string& path, const std::string& model_name, const Graph& graph,
                               absl::Span<const float> space, const v1::Data* data) {
  CAIRN_RETURN_IF_ERROR(CheckHasLayers(graph, "Keras' format"));
  CAIRN_ASSIGN_OR_RETURN(const std::string config, KerasModelJson(model_name, graph, data));
  return WriteFileWhole(path, [&](const std::string& beside) -> absl::Status {
    const std::string weights = absl::StrCat(beside, ".weights");
    const absl::Cleanup remove = [&] { ::unlink(weights.c_str()); };
    CAIRN_RETURN_IF_ERROR(WriteKerasWeights(weights, graph, space));
    return WriteZip(beside, {{kMetadata, MetadataJson(), ""}, {kConfig, config, ""}, {kWeights, "", weights}});
  });
}

absl::Status WriteKerasWeightsFile(const std::string& path, const Graph& graph, absl::Span<const float> space) {
  CAIRN_RETURN_IF_ERROR(CheckHasLayers(graph, "Keras' format"));
  return WriteFileWhole(path, [&](const std::string& beside) { return WriteKerasWeights(beside, graph, space); });
}

absl::StatusOr<std::string> ReadKerasArchiveConfig(const std::string& path) {
  if (const absl::StatusOr<bool> legacy = IsHdf5File(path); legacy.ok() && *legacy) return ReadKerasH5Config(path);
  const auto member = [](const Json& object, const char* key) {
    return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
  };
  const auto text = [](const Buffer& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadZipMember(path, kConfig, kKerasJsonBytesMax));
  absl::StatusOr<Json> model = ParseBoundedJson(text(bytes), kKerasJsonBytesMax);
  if (!model.ok() || !model->is_object()) return text(bytes);
  CAIRN_RETURN_IF_ERROR(TakeVocabularies(path, &*model));
  // metadata.json is optional.
  if (const absl::StatusOr<Buffer> beside = ReadZipMember(path, kMetadata, kKerasMetadataBytesMax); beside.ok()) {
    const absl::StatusOr<Json> metadata = ParseBoundedJson(text(*beside), kKerasMetadataBytesMax);
    if (metadata.ok() && metadata->is_object() && !member(*metadata, kVersion).empty()) {
      (*model)[kVersion] = member(*metadata, kVersion);
    }
  }
  return model->dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

absl::StatusOr<SafetensorsFile> ReadKerasArchiveWeights(const std::string& path, const Graph* like) {
  CAIRN_ASSIGN_OR_RETURN(std::string config, ReadKerasArchiveConfig(path));
  // If the model has other inputs, its weights are compared below.
  for (size_t i = 0; like != nullptr && i < like->inputs().size(); ++i) {
    const Node& input = like->nodes()[static_cast<size_t>(like->inputs()[i])];
    absl::StatusOr<std::string> closed = like->inputs().size() == 1 ? CloseKerasShape(input.output, config)
                                                                    : CloseKerasInput(input.name, input.output, config);
    if (closed.ok()) config = *std::move(closed);
  }
  const absl::StatusOr<KerasModel> model = ReadKerasModel(config);
  const std::string where = absl::StrCat(path, ": config.json");
  if (!model.ok()) return Annotate(model.status(), where);
  const absl::StatusOr<Graph> graph = Graph::Build(model->model);
  if (!graph.ok()) return Annotate(graph.status(), where);
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadZipMember(path, kWeights, WeightsBytesMax(*graph)));
  return ReadKerasWeights(bytes, path, *graph, model->weight_paths);
}

absl::StatusOr<SafetensorsFile> ReadKerasWeightsFile(const std::string& path, const Graph& graph) {
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadFileBytes(path));
  if (!IsHdf5({reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    return absl::DataLossError(absl::StrCat(path, ": not an HDF5 file, or a damaged one"));
  }
  CAIRN_ASSIGN_OR_RETURN(const bool legacy, IsLegacyKerasH5(bytes, path));
  if (legacy) return ReadKerasH5Weights(bytes, path, graph);
  absl::StatusOr<SafetensorsFile> weights = ReadKerasWeights(bytes, path, graph, KerasLayerPaths(graph));
  const std::vector<std::string> scales = KerasLayerPaths(graph, /*layer_scales=*/true);
  if (!absl::IsFailedPrecondition(weights.status()) || scales == KerasLayerPaths(graph)) return weights;
  absl::StatusOr<SafetensorsFile> of_keras = ReadKerasWeights(bytes, path, graph, scales);
  return of_keras.ok() ? std::move(of_keras) : std::move(weights);
}

}  // namespace cairn
