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
#include "common/formats/keras_weights.h"
#include "common/formats/limits.h"
#include "common/formats/open_shape.h"
#include "common/formats/plain_file.h"
#include "common/formats/zip_file.h"
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
  if (node.kind != LayerKind::kMultiHeadAttention) {
    config["input_shape"] = shape(0);
    return config;
  }
  config["shapes_dict"]["query_shape"] = shape(0);
  config["shapes_dict"]["value_shape"] = shape(1);
  if (node.inputs.size() > 2) config["shapes_dict"]["key_shape"] = shape(2);
  return config;
}

absl::StatusOr<OrderedJson> LayerJson(const Graph& graph, const Node& node) {
  CAIRN_ASSIGN_OR_RETURN(OrderedJson config, KerasLayerConfig(node));
  const char* const module = KerasOperationModule(node);
  OrderedJson layer = KerasObject(module != nullptr ? module : "keras.layers", KerasClassOf(node), std::move(config));
  if (module != nullptr) layer["registered_name"] = KerasClassOf(node);  // Keras registers only layers by their names
  if (!node.variables.empty()) layer["build_config"] = BuildConfig(graph, node);
  return layer;
}

absl::Status CheckNames(const Graph& graph) {
  std::map<std::string, const Node*> names;
  for (const Node& node : graph.nodes()) {
    if (node.shares >= 0) continue;  // a repeated call of another layer, without a name of its own
    const auto [other, first] = names.emplace(KerasLayerName(node.name), &node);
    if (first) continue;
    return absl::UnimplementedError(absl::StrCat("layer \"", node.name, "\": Keras' format has no '/' in names, and \"",
                                                 other->first, "\" is another layer; export safetensors"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> KerasModelJson(const std::string& name, const Graph& graph, const v1::Data* data) {
  CAIRN_RETURN_IF_ERROR(CheckNames(graph));
  const bool sequential = IsSequentialModel(graph);
  OrderedJson config = OrderedJson::object();
  config["name"] = name.empty() ? (sequential ? "sequential" : "functional") : name;
  config["trainable"] = true;
  if (sequential) config["dtype"] = "float32";
  config["layers"] = OrderedJson::array();
  for (const int id : KerasOrder(graph)) {
    const Node& node = graph.nodes()[static_cast<size_t>(id)];
    CAIRN_ASSIGN_OR_RETURN(OrderedJson layer, LayerJson(graph, node));
    if (!sequential) {
      layer["name"] = KerasLayerName(node.name);
      layer["inbound_nodes"] = KerasInboundNodes(graph, node);
    }
    config["layers"].push_back(std::move(layer));
  }
  OrderedJson model;
  if (sequential) {
    config["build_input_shape"] = KerasBatchShape(graph.input_shape());
    model = KerasObject("keras", "Sequential", std::move(config));
  } else {
    const auto tensors = [&](const std::vector<int>& ids) {
      OrderedJson list = OrderedJson::array();
      for (const int id : ids) list.push_back(KerasHistory(graph, graph.nodes()[static_cast<size_t>(id)]));
      return list;
    };
    config["input_layers"] = tensors(graph.inputs());
    config["output_layers"] = tensors(graph.outputs());
    model = KerasObject("keras.src.models.functional", "Functional", std::move(config));
    model["registered_name"] = "Functional";  // Keras does not register the class by its name
  }
  OrderedJson shapes = OrderedJson::array();
  for (const int id : graph.inputs()) shapes.push_back(KerasBatchShape(graph.nodes()[static_cast<size_t>(id)].output));
  model["build_config"]["input_shape"] = shapes.size() == 1 ? shapes[0] : shapes;
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
  const auto text = [](const Buffer& bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadZipMember(path, kConfig, kKerasJsonBytesMax));
  const absl::StatusOr<Buffer> beside = ReadZipMember(path, kMetadata, kKerasMetadataBytesMax);
  if (!beside.ok()) return text(bytes);  // metadata.json is optional
  const absl::StatusOr<Json> metadata = ParseBoundedJson(text(*beside), kKerasMetadataBytesMax);
  absl::StatusOr<Json> model = ParseBoundedJson(text(bytes), kKerasJsonBytesMax);
  if (!metadata.ok() || !model.ok() || !metadata->is_object() || !model->is_object()) return text(bytes);
  const auto version = metadata->find(kVersion);
  if (version == metadata->end() || !version->is_string()) return text(bytes);
  (*model)[kVersion] = *version;
  return model->dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

absl::StatusOr<SafetensorsFile> ReadKerasArchiveWeights(const std::string& path, const Shape& input_shape) {
  CAIRN_ASSIGN_OR_RETURN(std::string config, ReadKerasArchiveConfig(path));
  if (!input_shape.empty()) {
    // If the model has another input, its weights are compared below.
    if (absl::StatusOr<std::string> closed = CloseKerasShape(input_shape, config); closed.ok()) {
      config = *std::move(closed);
    }
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
  return legacy ? ReadKerasH5Weights(bytes, path, graph) : ReadKerasWeights(bytes, path, graph, KerasLayerPaths(graph));
}

}  // namespace cairn
