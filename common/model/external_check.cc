#include "common/model/external_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/bad.h"
#include "common/model/example_key.h"
#include "common/model/limits.h"
#include "common/model/model_file_name.h"

namespace cairn {
namespace {

// Fields of Data that say something of examples that the program has.
constexpr const char* kFieldsBesideExternal[] = {"external", "shuffle", "drop_remainder", "prefetch"};
// Fields of Data that are about what a loss of Cairn compares with.
constexpr const char* kFieldsOfLosses[] = {"inputs", "targets", "weight_column"};

bool Among(absl::Span<const char* const> names, const std::string& name) {
  return std::any_of(names.begin(), names.end(), [&](const char* other) { return name == other; });
}

absl::Status Computes(const char* field, const char* what) {
  return Bad(field, ": the program of model.external computes ", what, "; leave it out");
}

absl::Status CheckNothingOfLosses(const v1::JobSpec& spec) {
  if (spec.has_loss()) return Computes("loss", "the loss itself");
  if (!spec.metrics().empty()) {
    return Bad("metrics: the program of model.external reports its own; name them in model.external.figures");
  }
  if (!spec.outputs().empty()) return Computes("outputs", "all losses itself");
  if (!spec.class_weight().empty()) return Computes("class_weight", "the loss itself");
  return absl::OkStatus();
}

absl::Status CheckHowItIsComputed(const v1::JobSpec& spec) {
  if (spec.strategy() == v1::CENTRAL_STORAGE) {
    return Bad("strategy: CENTRAL_STORAGE computes layer by layer, and the program of model.external takes all values ",
               "at once; use MULTI_WORKER_MIRRORED");
  }
  if (spec.compute_dtype() != v1::DATA_TYPE_UNSPECIFIED && spec.compute_dtype() != v1::FLOAT32) {
    return Computes("compute_dtype", "with the types that it chooses");
  }
  if (spec.has_loss_scaling()) return Computes("loss_scaling", "with the scale that it chooses");
  if (spec.allow_tf32()) return Computes("allow_tf32", "with the types that it chooses");
  return absl::OkStatus();
}

absl::Status CheckFiles(const v1::JobSpec& spec) {
  const std::string& weights = spec.initial_weights();
  for (const char* ending : {".keras", ".h5", ".hdf5", ".onnx"}) {
    if (!absl::EndsWithIgnoreCase(weights, ending)) continue;
    return Bad("initial_weights: ", weights, " holds weights of layers, and a program computes the model; give a ",
               "checkpoint's directory or a .safetensors file");
  }
  for (int i = 0; i < spec.callbacks_size(); ++i) {
    if (!spec.callbacks(i).has_model_checkpoint()) continue;
    const ModelFileKind kind = ModelFileKindOf(spec.callbacks(i).model_checkpoint().filepath());
    if (kind == ModelFileKind::kSafetensors || kind == ModelFileKind::kUnknown) continue;
    return Bad("callbacks[", i, "].model_checkpoint.filepath: a model that a program computes has no layers to write; ",
               "end it in .safetensors");
  }
  return absl::OkStatus();
}

}  // namespace

const v1::External* ExternalOf(const v1::Model& model) {
  for (const v1::Layer& layer : model.layers()) {
    if (layer.has_external()) return &layer.external();
  }
  return nullptr;
}

bool IsProgramName(absl::string_view name) {
  return !name.empty() && name.size() <= kProgramNameBytesMax && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

std::string ProgramText(absl::string_view name, absl::string_view version) {
  return absl::StrCat("\"", name, "\" version \"", version, "\"");
}

absl::Status ExpandExternal(v1::Model* model) {
  if (!model->trainable_layers().empty()) {
    return Bad("model.trainable_layers: model.external has variables, no layers; give those that are not trained ",
               "kind: FROZEN");
  }
  if (!model->outputs().empty()) return Bad("model.outputs: model.external has no layers; leave it out");
  v1::External external = std::move(*model->mutable_external());
  model->clear_external();
  v1::Layer& input = *model->add_layers();
  input.set_name("examples");
  v1::InputLayer& shape = *input.mutable_input();
  for (const int32_t side : external.input_shape()) shape.add_shape(side);
  if (external.input_shape().empty()) shape.add_shape(kExampleKeyBytes);
  v1::Layer& layer = *model->add_layers();
  layer.set_name("external");
  *layer.mutable_external() = std::move(external);
  return absl::OkStatus();
}

absl::Status CheckHasLayers(const Graph& graph, const char* format) {
  for (const Node& node : graph.nodes()) {
    if (node.kind != LayerKind::kExternal) continue;
    return absl::UnimplementedError(
        absl::StrCat("layer \"", node.name, "\": the program ",
                     ProgramText(node.layer.external().program(), node.layer.external().version()),
                     " computes it, so that there are no layers to write as ", format, "; write safetensors"));
  }
  return absl::OkStatus();
}

absl::Status CheckExternalData(v1::Data* data) {
  const auto* reflection = data->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> set;
  reflection->ListFields(*data, &set);
  for (const google::protobuf::FieldDescriptor* field : set) {
    if (Among(kFieldsBesideExternal, field->name())) continue;
    return Bad("data.", field->name(), ": the program of data.external has the examples; leave one of the two out");
  }
  const v1::ExternalData& external = data->external();
  if (external.examples() < 1) {
    return Bad("data.external.examples: ", external.examples(), " is not positive; give the number of examples in the ",
               "training split");
  }
  const std::pair<const char*, int64_t> counts[] = {{"examples", external.examples()},
                                                    {"validation_examples", external.validation_examples()},
                                                    {"test_examples", external.test_examples()}};
  for (const auto& [field, count] : counts) {
    if (count >= 0 && count <= kExternalExamplesMax) continue;
    return Bad("data.external.", field, ": ", count, " is not within 0 .. ", kExternalExamplesMax);
  }
  if (!data->has_shuffle()) data->set_shuffle(true);
  return absl::OkStatus();
}

absl::Status CheckExternalJob(const v1::JobSpec& spec, const Graph& graph) {
  const v1::External* const external = ExternalOf(spec);
  const bool own_data = spec.data().has_external();
  if (external == nullptr) {
    if (!own_data) return absl::OkStatus();
    return Bad("data.external: only with model.external, whose program has the examples; give data.path");
  }
  if (graph.nodes().size() != 2) {
    return Bad("model.layers: layer \"", graph.nodes().back().name, "\": a model that a program computes has an input ",
               "and one layer `external`; give it as model.external");
  }
  if (own_data && !external->input_shape().empty()) {
    return Bad("model.external.input_shape: together with data.external, whose examples are the program's; leave it ",
               "out");
  }
  if (!own_data && external->input_shape().empty()) {
    return Bad("model.external.input_shape: missing, and data.path names Cairn's examples; give their shape, or ",
               "data.external instead of data.path");
  }
  for (const char* name : kFieldsOfLosses) {
    const auto* field = v1::Data::descriptor()->FindFieldByName(name);
    const auto* reflection = spec.data().GetReflection();
    const bool given = field->is_repeated() ? reflection->FieldSize(spec.data(), field) > 0
                                            : !reflection->GetString(spec.data(), field).empty();
    if (given) return Bad("data.", name, ": the program of model.external gets an input and a label; leave it out");
  }
  CAIRN_RETURN_IF_ERROR(CheckNothingOfLosses(spec));
  CAIRN_RETURN_IF_ERROR(CheckHowItIsComputed(spec));
  return CheckFiles(spec);
}

}  // namespace cairn
