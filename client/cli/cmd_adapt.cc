// cairn data adapt MODEL [DATA...]: computes the state of a model's layers of data, as Keras' adapt() does, and writes
// the model with it. Does not contact a cluster.
#include <fcntl.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/job_file.h"
#include "client/cli/set_field.h"
#include "common/data/adapt.h"
#include "common/formats/expand_model.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_vocabulary.h"
#include "common/formats/limits.h"
#include "common/formats/plain_file.h"
#include "common/model/keras/keras_config.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

bool IsModelFile(const std::string& path) {
  for (const char* ending : {".json", ".keras", ".h5", ".hdf5"}) {
    if (absl::EndsWithIgnoreCase(path, ending)) return true;
  }
  return false;
}

// A job with the model and its data's fields, whose unadapted layers have placeholders.
absl::StatusOr<v1::JobSpec> ReadUnadapted(const AdaptOptions& options, std::set<std::string>* names) {
  v1::JobSpec spec;
  if (IsModelFile(options.model)) {
    CAIRN_RETURN_IF_ERROR(TakeModelFile(options.model, &spec));
  } else {
    CAIRN_ASSIGN_OR_RETURN(spec, LoadJobFile(options.model));
  }
  for (const std::string& setting : options.settings) CAIRN_RETURN_IF_ERROR(ApplySetting(setting, &spec));
  std::set<std::string> held;
  if (!spec.model().keras_json().empty()) {
    CAIRN_ASSIGN_OR_RETURN(Json json, ParseBoundedJson(spec.model().keras_json(), kKerasJsonBytesMax));
    if (json.is_string()) {
      CAIRN_ASSIGN_OR_RETURN(json, ParseBoundedJson(json.get<std::string>(), kKerasJsonBytesMax));
    }
    held = HoldKerasPlaces(&json);
    spec.mutable_model()->set_keras_json(json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
  }
  CAIRN_RETURN_IF_ERROR(ExpandJob(&spec));
  CAIRN_ASSIGN_OR_RETURN(*names, HoldPlaces(spec.mutable_model()));
  for (const v1::Layer& layer : spec.model().layers()) {
    if (held.contains(layer.name())) names->insert(layer.name());
  }
  if (names->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.model,
                     ": no layer lacks its state; a lookup or text_vectorization without vocabulary, a discretization ",
                     "with num_bins and a normalization without mean are adapted"));
  }
  return spec;
}

absl::StatusOr<std::vector<AdaptedLayer>> Adapt(const AdaptOptions& options) {
  std::set<std::string> names;
  CAIRN_ASSIGN_OR_RETURN(v1::JobSpec spec, ReadUnadapted(options, &names));
  if (!absl::EndsWith(options.output, ".json")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--output ", options.output, ": a model is written as .json, without weights; use such a name"));
  }
  std::vector<std::string> paths = options.data;
  if (paths.empty()) paths.push_back(spec.data().path());
  CAIRN_ASSIGN_OR_RETURN(std::vector<AdaptedLayer> adapted, AdaptModel(names, paths, &spec));
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  CAIRN_ASSIGN_OR_RETURN(const std::string json, KerasModelJson(spec.model().name(), graph, &spec.data()));
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor file, OpenPlainFile(options.output, O_WRONLY | O_CREAT | O_TRUNC));
  CAIRN_RETURN_IF_ERROR(WriteAll(file.get(), json, options.output));
  return adapted;
}

}  // namespace

int RunAdaptData(const Globals& globals, const AdaptOptions& options) {
  const auto adapted = Adapt(options);
  if (!adapted.ok()) return Fail(adapted.status());
  Json list = Json::array();
  for (const AdaptedLayer& layer : *adapted) {
    if (!globals.json) absl::PrintF("%s (%s): %s\n", layer.name, layer.type, layer.state);
    list.push_back({{"layer", layer.name}, {"type", layer.type}, {"state", layer.state}});
  }
  if (globals.json) absl::PrintF("%s\n", Json({{"output", options.output}, {"layers", std::move(list)}}).dump());
  if (!globals.json) absl::PrintF("%s is written\n", options.output);
  return kExitOk;
}

}  // namespace cairn
