#include "common/formats/keras_vocabulary.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/bad.h"
#include "common/base/text.h"
#include "common/formats/keras_order.h"
#include "common/formats/limits.h"
#include "common/formats/zip_file.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

std::string TextOf(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

bool IsMissing(const Json& config, const char* key) { return !config.contains(key) || config[key].is_null(); }

// The layers of a model's config, or null.
Json* LayersOf(Json* model) {
  if (!model->is_object() || !model->contains("config")) return nullptr;
  Json* config = &(*model)["config"];
  if (config->is_array()) return config;  // Sequential of Keras 2's first releases
  if (!config->is_object() || !config->contains("layers") || !(*config)["layers"].is_array()) return nullptr;
  return &(*config)["layers"];
}

// Calls `visit` with each layer's class, config and path in an archive, those of models inside models too.
using Visit = std::function<absl::Status(const std::string& type, const std::string& path, Json* config)>;
absl::Status WalkLayers(Json* model, const std::string& path, int depth, const Visit& visit) {
  Json* const layers = LayersOf(model);
  if (layers == nullptr || depth > kKerasNestingMax) return absl::OkStatus();
  KerasContainer container(path);
  for (Json& layer : *layers) {
    const std::string type = TextOf(layer, "class_name");
    if (type.empty() || !layer.contains("config")) continue;
    const std::string at = container.PathOf(type);
    if (LayersOf(&layer) != nullptr) {
      CAIRN_RETURN_IF_ERROR(WalkLayers(&layer, at, depth + 1, visit));
    } else if (layer["config"].is_object()) {
      CAIRN_RETURN_IF_ERROR(visit(type, at, &layer["config"]));
    }
  }
  return absl::OkStatus();
}

bool IsLookup(const std::string& type) {
  return type == "StringLookup" || type == "IntegerLookup" || type == "TextVectorization";
}

// NOT_FOUND: the archive has none for the layer.
absl::StatusOr<std::string> ReadVocabulary(const std::string& path, const std::string& layer) {
  for (const char* folder : {"", "/_lookup_layer"}) {
    const std::string member = absl::StrCat("assets/", layer, folder, "/vocabulary.txt");
    const absl::StatusOr<Buffer> bytes = ReadZipMember(path, member, kKerasJsonBytesMax);
    if (bytes.ok()) return std::string(reinterpret_cast<const char*>(bytes->data()), bytes->size());
    if (!absl::IsNotFound(bytes.status())) return bytes.status();
  }
  return absl::NotFoundError(layer);
}

// One token a line, those that Keras puts first among them.
absl::StatusOr<Json> TokensIn(absl::string_view text, bool numbers) {
  if (!IsUtf8({text.data(), text.size()})) return Bad("its vocabulary.txt is not UTF-8");
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  Json tokens = Json::array();
  for (const absl::string_view line : lines) {
    int64_t number = 0;
    if (numbers && !absl::SimpleAtoi(line, &number)) {
      return Bad("its vocabulary.txt has ", ShownText(line), ", which is not a whole number");
    }
    if (numbers) {
      tokens.push_back(number);
    } else {
      tokens.push_back(std::string(line));
    }
  }
  return tokens;
}

void HoldPlace(const std::string& type, Json* config) {
  if (type == "Discretization") {
    const Json& bins = (*config)["num_bins"];
    const int64_t count = bins.is_number_integer() ? bins.get<int64_t>() : 0;
    Json boundaries = Json::array();
    for (int64_t i = 1; i < std::min<int64_t>(count, kNormalizationNumbersMax); ++i) boundaries.push_back(0.0);
    (*config)["bin_boundaries"] = std::move(boundaries);
    return;
  }
  if (!IsLookup(type)) return;  // a Normalization needs none
  Json tokens = Json::array();
  if (type == "IntegerLookup") tokens.push_back(kEmbeddingIdsMax - 1);
  if (type != "IntegerLookup") tokens.push_back("[cairn data adapt]");
  (*config)["vocabulary"] = std::move(tokens);
  if (TextOf(*config, "output_mode") == "tf_idf") (*config)["idf_weights"] = Json::array({1.0});
}

}  // namespace

absl::Status TakeVocabularies(const std::string& path, Json* model) {
  return WalkLayers(model, "", 0, [&](const std::string& type, const std::string& layer, Json* config) -> absl::Status {
    if (!IsLookup(type) || !IsMissing(*config, "vocabulary")) return absl::OkStatus();
    const absl::StatusOr<std::string> text = ReadVocabulary(path, layer);
    if (absl::IsNotFound(text.status())) return absl::OkStatus();  // it was not adapted
    if (!text.ok()) return text.status();
    const std::string name = absl::StrCat(path, ": layer \"", ShownText(TextOf(*config, "name")), "\"");
    if (TextOf(*config, "output_mode") == "tf_idf" && IsMissing(*config, "idf_weights")) {
      return Bad(name, " (", type, "): its idf_weights are not in the description; make the layer with vocabulary and ",
                 "idf_weights, or adapt it with `cairn data adapt`");
    }
    absl::StatusOr<Json> tokens = TokensIn(*text, type == "IntegerLookup");
    if (!tokens.ok()) return Annotate(tokens.status(), name);
    (*config)["vocabulary"] = *std::move(tokens);
    return absl::OkStatus();
  });
}

std::set<std::string> HoldKerasPlaces(Json* model) {
  std::set<std::string> names;
  WalkLayers(model, "", 0, [&](const std::string& type, const std::string&, Json* config) {
    const bool unadapted = IsLookup(type) ? IsMissing(*config, "vocabulary")
                           : type == "Discretization"
                               ? IsMissing(*config, "bin_boundaries") && !IsMissing(*config, "num_bins")
                           : type == "Normalization" ? IsMissing(*config, "mean")
                                                     : false;
    if (!unadapted) return absl::OkStatus();
    HoldPlace(type, config);
    names.insert(TextOf(*config, "name"));
    return absl::OkStatus();
  }).IgnoreError();
  return names;
}

}  // namespace cairn
