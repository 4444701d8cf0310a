// cairn models [NAME]: lists the ready-made models with their parameters, or the layers of one, or of a model in a
// file, and with what it can be trained. --report: whether each layer of a file is supported. Does not contact a
// cluster.
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/input_shape.h"
#include "client/cli/job_file.h"
#include "common/formats/expand_model.h"
#include "common/formats/keras_class.h"
#include "common/formats/model_report.h"
#include "common/formats/open_shape.h"
#include "common/model/graph.h"
#include "common/model/ready_made/ready_made.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

bool IsFile(const std::string& name) {
  for (const char* ending : {".keras", ".h5", ".hdf5", ".json", ".onnx"}) {
    if (absl::EndsWithIgnoreCase(name, ending)) return true;
  }
  return false;
}

// The model is read with these shapes. Errors: an input is closed already, and has another shape.
absl::Status CheckShape(const InputShape& given, const v1::Model& model) {
  for (const v1::Layer& layer : model.layers()) {
    if (!layer.has_input() || (!given.input.empty() && layer.name() != given.input)) continue;
    const Shape shape(layer.input().shape().begin(), layer.input().shape().end());
    if (shape == given.shape) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("--input-shape: the model's input ",
                                                   given.input.empty() ? "" : absl::StrCat("\"", given.input, "\" "),
                                                   "is ", ToString(shape), "; leave it out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Model> ModelOf(const ModelsOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<InputShape> shapes, ParseInputShapes(options.input_shapes));
  if (IsFile(options.name)) {
    v1::JobSpec spec;
    CAIRN_RETURN_IF_ERROR(TakeModelFile(options.name, &spec));
    for (const InputShape& given : shapes) {
      CAIRN_RETURN_IF_ERROR(given.input.empty() ? CloseShape(given.shape, spec.mutable_model())
                                                : CloseInput(given.input, given.shape, spec.mutable_model()));
    }
    CAIRN_RETURN_IF_ERROR(ExpandJob(&spec));
    for (const InputShape& given : shapes) CAIRN_RETURN_IF_ERROR(CheckShape(given, spec.model()));
    return spec.model();
  }
  v1::ReadyMade wanted;
  wanted.set_name(options.name);
  for (const InputShape& given : shapes) {
    if (!given.input.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--input-shape: ", options.name, " has one input; give its sizes alone, as 128,128,3"));
    }
    wanted.mutable_input_shape()->Assign(given.shape.begin(), given.shape.end());
  }
  if (options.classes != 0) wanted.set_classes(options.classes);
  return MakeReadyMade(wanted);
}

absl::StatusOr<Graph> GraphOf(const ModelsOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const v1::Model model, ModelOf(options));
  return Graph::Build(model);
}

std::string Count(int64_t number) { return Thousands(static_cast<uint64_t>(number)); }

Json CountsJson(const Graph& graph) {
  return {{"parameters", graph.parameters()},
          {"trainable", graph.trainable_parameters()},
          {"non_trainable", graph.parameters() - graph.trainable_parameters()}};
}

absl::Status ListModels(const Globals& globals) {
  std::vector<std::vector<std::string>> rows = {
      {"NAME", "INPUT", "CLASSES", "PARAMETERS", "TRAINABLE", "NON-TRAINABLE", "WHAT"}};
  for (const ReadyMadeInfo& info : ReadyMadeModels()) {
    CAIRN_ASSIGN_OR_RETURN(const Graph graph, GraphOf({.name = info.name}));
    const int64_t other = graph.parameters() - graph.trainable_parameters();
    if (globals.json) {
      Json json = {{"name", info.name}, {"input_shape", info.input_shape}, {"classes", info.classes}};
      json.update(CountsJson(graph));
      json["what"] = info.what;
      absl::PrintF("%s\n", json.dump());
      continue;
    }
    rows.push_back({info.name, absl::StrCat("[", absl::StrJoin(info.input_shape, ","), "]"), absl::StrCat(info.classes),
                    Count(graph.parameters()), Count(graph.trainable_parameters()), Count(other), info.what});
  }
  if (!globals.json) absl::PrintF("%s", Table(rows));
  return absl::OkStatus();
}

int64_t ParametersOf(const Graph& graph, const Node& node) {
  int64_t sum = 0;
  for (const int v : node.variables) sum += graph.variables()[static_cast<size_t>(v)].size;
  return sum;
}

// "" if the input is the previous layer, which is the usual case.
std::string InputsText(const Graph& graph, const Node& node) {
  if (node.inputs.size() == 1 && node.inputs[0] == node.id - 1) return "";
  std::vector<std::string> names;
  for (const int input : node.inputs) names.push_back(graph.nodes()[static_cast<size_t>(input)].name);
  return absl::StrJoin(names, ", ");
}

std::vector<std::string> OutputNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const int id : graph.outputs()) names.push_back(graph.nodes()[static_cast<size_t>(id)].name);
  return names;
}

Json TrainingJson(const TrainingReport& training) {
  Json json = {{"trains", !training.losses.empty()}, {"losses", training.losses}, {"data", training.data}};
  if (training.losses.empty()) json["why"] = training.why;
  return json;
}

void PrintTraining(const TrainingReport& training) {
  if (training.losses.empty()) {
    absl::PrintF("\ncannot be trained: %s\n", training.why);
    return;
  }
  absl::PrintF("\ncan be trained\n  loss  %s\n  data  %s\n", absl::StrJoin(training.losses, "\n        "),
               absl::StrJoin(training.data, "\n        "));
}

// The layers of a Keras file's model, or of an ONNX file.
absl::StatusOr<KerasReport> LayersOfFile(const std::string& path) {
  KerasReport report;
  if (absl::EndsWithIgnoreCase(path, ".onnx")) {
    CAIRN_ASSIGN_OR_RETURN(report.layers, ReportOnnxFile(path));
    return report;
  }
  v1::JobSpec spec;
  CAIRN_RETURN_IF_ERROR(TakeModelFile(path, &spec));
  absl::StatusOr<KerasReport> read = ReportKerasModel(spec.model().keras_json());
  if (!read.ok()) return Annotate(read.status(), path);
  return read;
}

// Lists every layer, then what is wrong with the model as a whole or with what it can be trained. OK: the model is
// supported.
absl::Status ReportModel(const Globals& globals, const ModelsOptions& options) {
  if (!IsFile(options.name)) {
    return absl::InvalidArgumentError(
        "--report: name a .keras, .h5, .json or .onnx file; every ready-made model is supported");
  }
  CAIRN_ASSIGN_OR_RETURN(KerasReport report, LayersOfFile(options.name));
  const absl::StatusOr<v1::Model> model = ModelOf(options);
  const absl::Status whole = model.ok() ? Graph::Build(*model).status() : model.status();
  NoteError(whole, &report.layers);
  const TrainingReport training = whole.ok() ? ReportTraining(*model) : TrainingReport();
  std::vector<std::vector<std::string>> rows = {{"LAYER", "TYPE", "SUPPORTED", "WHY NOT"}};
  Json json = {{"name", options.name}, {"supported", whole.ok()}, {"layers", Json::array()}, {"notes", report.notes}};
  size_t refused = 0;
  for (const LayerReport& layer : report.layers) {
    refused += !layer.why.empty();
    rows.push_back({layer.name, layer.type, layer.why.empty() ? "yes" : "no", layer.why});
    Json one = {{"name", layer.name}, {"type", layer.type}, {"supported", layer.why.empty()}};
    if (!layer.why.empty()) one["why"] = layer.why;
    json["layers"].push_back(std::move(one));
  }
  if (whole.ok()) {
    json["training"] = TrainingJson(training);
  } else {
    json["why"] = std::string(whole.message());
  }
  if (globals.json) {
    absl::PrintF("%s\n", json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
  } else {
    absl::PrintF("%s\n%d of %d layers are refused\n", Table(rows), refused, report.layers.size());
    for (const std::string& note : report.notes) absl::PrintF("%s\n", note);
    if (whole.ok()) PrintTraining(training);
  }
  return whole;
}

absl::Status ShowModel(const Globals& globals, const ModelsOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const v1::Model model, ModelOf(options));
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(model));
  const TrainingReport training = ReportTraining(model);
  if (globals.json) {
    Json json = {{"name", options.name}, {"input_shape", graph.input_shape()}};
    json.update(CountsJson(graph));
    for (const Node& node : graph.nodes()) {
      Json layer = {{"name", node.name},
                    {"type", KerasClassOf(node)},
                    {"output_shape", node.output},
                    {"parameters", ParametersOf(graph, node)},
                    {"inputs", Json::array()}};
      for (const int input : node.inputs) layer["inputs"].push_back(graph.nodes()[static_cast<size_t>(input)].name);
      json["layers"].push_back(std::move(layer));
    }
    json["outputs"] = OutputNames(graph);
    json["training"] = TrainingJson(training);
    absl::PrintF("%s\n", json.dump());
    return absl::OkStatus();
  }
  std::vector<std::vector<std::string>> rows = {{"LAYER", "TYPE", "OUTPUT", "PARAMETERS", "TAKES"}};
  for (const Node& node : graph.nodes()) {
    rows.push_back({node.name, KerasClassOf(node), ToString(node.output), Count(ParametersOf(graph, node)),
                    InputsText(graph, node)});
  }
  const int64_t other = graph.parameters() - graph.trainable_parameters();
  absl::PrintF("%s\nparameters      %s (%s)\ntrainable       %s\nnon-trainable   %s\n", Table(rows),
               Count(graph.parameters()), ShortBytes(static_cast<uint64_t>(graph.parameters()) * sizeof(float)),
               Count(graph.trainable_parameters()), Count(other));
  if (graph.outputs().size() > 1) absl::PrintF("outputs         %s\n", absl::StrJoin(OutputNames(graph), ", "));
  PrintTraining(training);
  return absl::OkStatus();
}

}  // namespace

int RunModels(const Globals& globals, const ModelsOptions& options) {
  const absl::Status status = options.name.empty() ? ListModels(globals)
                              : options.report     ? ReportModel(globals, options)
                                                   : ShowModel(globals, options);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cairn
