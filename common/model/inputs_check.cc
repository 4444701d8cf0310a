#include "common/model/inputs_check.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/limits.h"
#include "common/model/model_inputs.h"
#include "common/model/nearest.h"
#include "common/model/target_check.h"
#include "common/model/text_inputs.h"

namespace cairn {
namespace {

std::string Where(int place) { return absl::StrCat("data.inputs[", place, "]"); }

std::vector<std::string> NamesOf(const Graph& graph) {
  std::vector<std::string> names;
  for (const int id : graph.inputs()) names.push_back(graph.nodes()[static_cast<size_t>(id)].name);
  return names;
}

absl::Status CheckName(const std::vector<std::string>& names, int place, v1::InputSource* source) {
  if (source->input().empty() && names.size() == 1) source->set_input(names[0]);
  if (source->input().empty()) {
    return Bad(Where(place), ".input: missing, and the model has ", names.size(), " inputs; name \"", names[0],
               "\" or another");
  }
  if (std::find(names.begin(), names.end(), source->input()) != names.end()) return absl::OkStatus();
  const std::string shown = source->input().substr(0, kLayerNameBytesMax), nearest = Nearest(shown, names);
  return Bad(Where(place), ".input: \"", shown, "\" is not an input of the model; ",
             nearest.empty() ? absl::StrCat("the first one is \"", names[0], "\"")
                             : absl::StrCat("did you mean \"", nearest, "\"?"));
}

// Of texts.
absl::Status CheckTextSource(const Node& node, int place, v1::InputSource* source) {
  if (source->has_text() && source->text() != OfTexts(node)) {
    return Bad(Where(place), ".text: ", source->text() ? "true" : "false", ", but input \"", node.name, "\" takes ",
               OfTexts(node) ? "texts" : "numbers", "; leave it out");
  }
  source->clear_text();
  if (!OfTexts(node)) return absl::OkStatus();
  source->set_text(true);
  return absl::OkStatus();
}

absl::Status CheckTextFormat(const v1::Data& data, const Graph& graph) {
  const v1::Data::Format format = data.format();
  if (format != v1::Data::AUTO && format != v1::Data::CSV && format != v1::Data::TFRECORD &&
      format != v1::Data::TEXT_FOLDER) {
    return Bad("data.format: ", v1::Data::Format_Name(format),
               " has no texts, which the model takes; use CSV, TFRECORD ", "or TEXT_FOLDER");
  }
  for (const v1::TargetSource& target : data.targets()) {
    if (target.input_itself()) {
      return Bad("data.targets: input_itself, but the model's input is texts; name columns or a feature");
    }
  }
  const auto texts = [&](int id) { return OfTexts(graph.nodes()[static_cast<size_t>(id)]); };
  if (format == v1::Data::TEXT_FOLDER && (graph.inputs().size() != 1 || ModelInputSize(graph) != 1)) {
    return Bad("data.format: TEXT_FOLDER has one text an example, and the model takes ",
               graph.inputs().size() == 1 ? "several" : "several inputs",
               "; use an input { text: true shape: 1 } alone");
  }
  if (!data.inputs().empty() || graph.inputs().size() == 1) return absl::OkStatus();
  const int id = *std::find_if(graph.inputs().begin(), graph.inputs().end(), texts);
  return Bad("data.inputs: missing, and input \"", graph.nodes()[static_cast<size_t>(id)].name,
             "\" takes texts; say what each input takes, as inputs { input: \"",
             graph.nodes()[static_cast<size_t>(id)].name, "\" columns: \"title\" }");
}

absl::Status CheckSource(const v1::Data& data, const Node& node, int place, const v1::InputSource& source) {
  const bool columns = !source.columns().empty(), feature = !source.feature().empty();
  // One input of texts may leave it to the data which columns or feature there are.
  if (OfTexts(node) && !columns && !feature && data.inputs_size() == 1) return absl::OkStatus();
  if (columns == feature) {
    return Bad(Where(place), ": names ", columns ? "both columns and a feature" : "no source",
               "; name columns of a CSV file or a feature of TFRECORD");
  }
  if (columns != !data.inputs(0).columns().empty()) {
    return Bad(Where(place), ": ",
               columns ? "columns, but data.inputs[0] names a feature" : "a feature, but data.inputs[0] names columns",
               "; data has one format");
  }
  const Shape given(source.shape().begin(), source.shape().end());
  if (!given.empty() && given != node.output) {
    return Bad(Where(place), ".shape: ", ToString(given), ", but input \"", node.name, "\" is ", ToString(node.output),
               "; leave it out");
  }
  const int64_t wanted = NumElements(node.output);
  if (columns && source.columns_size() != wanted) {
    return Bad(Where(place), ".columns: ", source.columns_size(), " of them, but input \"", node.name,
               "\" has the shape ", ToString(node.output), "; name ", wanted);
  }
  if (!feature) return absl::OkStatus();
  if (source.feature().size() > kFeatureNameBytesMax) {
    return Bad(Where(place), ".feature: a name of more than ", kFeatureNameBytesMax, " bytes; use a shorter one");
  }
  const v1::TfRecord& record = data.tfrecord();
  const char* const other = !record.input().empty()                            ? "input"
                            : record.shape_size() > 0                          ? "shape"
                            : record.encoding() != v1::TfRecord::ENCODING_AUTO ? "encoding"
                                                                               : nullptr;
  if (other != nullptr) {
    return Bad(Where(place), ".feature: together with data.tfrecord.", other,
               ", which is of a model with one input; leave that out");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInputSources(v1::JobSpec* spec, const Graph& graph) {
  v1::Data& data = *spec->mutable_data();
  if (HasTexts(graph)) {
    CAIRN_RETURN_IF_ERROR(CheckTextFormat(data, graph));
    if (data.inputs().empty()) data.add_inputs();
  }
  if (data.inputs().empty()) return absl::OkStatus();
  if (data.augmentation_size() > 0 || data.image_height() > 0) {
    return Bad(data.augmentation_size() > 0 ? "data.augmentation" : "data.image_height", ": of pictures, but ",
               HasTexts(graph) ? "the model's input is texts" : "data.inputs names columns or features",
               "; leave it out");
  }
  const std::vector<std::string> names = NamesOf(graph);
  for (int i = 0; i < data.inputs_size(); ++i) CAIRN_RETURN_IF_ERROR(CheckName(names, i, data.mutable_inputs(i)));
  google::protobuf::RepeatedPtrField<v1::InputSource> ordered;
  for (const int id : graph.inputs()) {
    const Node& node = graph.nodes()[static_cast<size_t>(id)];
    int found = -1;
    for (int i = 0; i < data.inputs_size(); ++i) {
      if (data.inputs(i).input() != node.name) continue;
      if (found >= 0) return Bad(Where(i), ".input: \"", node.name, "\" twice; leave one of them out");
      found = i;
      CAIRN_RETURN_IF_ERROR(CheckTextSource(node, i, data.mutable_inputs(i)));
      CAIRN_RETURN_IF_ERROR(CheckSource(data, node, i, data.inputs(i)));
    }
    if (found < 0) {
      return Bad("data.inputs: there is no entry for input \"", node.name, "\"; add inputs { input: \"", node.name,
                 "\" columns: ... } or feature: ...");
    }
    *ordered.Add() = data.inputs(found);
  }
  *data.mutable_inputs() = std::move(ordered);
  return CheckTargetsAgainstData(data, data.format());
}

absl::Status CheckInputSizes(const Graph& graph, const v1::Data& data, const std::vector<int64_t>& sizes) {
  for (size_t i = 0; i < std::min(sizes.size(), graph.inputs().size()); ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(graph.inputs()[i])];
    if (sizes[i] == NumElements(node.output)) continue;
    return Bad(Where(static_cast<int>(i)), ".feature: \"", data.inputs(static_cast<int>(i)).feature(), "\" has ",
               sizes[i], OfTexts(node) ? " texts" : " numbers", " in the first record, but input \"", node.name,
               "\" is ", ToString(node.output), "; make them equal");
  }
  return absl::OkStatus();
}

}  // namespace cairn
