#include "common/formats/model_report.h"

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/formats/keras_call.h"
#include "common/formats/keras_dialect.h"
#include "common/formats/keras_layers.h"
#include "common/formats/keras_model.h"
#include "common/formats/keras_operation.h"
#include "common/formats/keras_step_models.h"
#include "common/formats/limits.h"
#include "common/formats/onnx_file.h"
#include "common/model/graph.h"
#include "common/model/job_check.h"
#include "common/model/model_inputs.h"
#include "common/model/text_inputs.h"

namespace cairn {
namespace {

std::string TextOf(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

// The error without the layer that it begins with, since the report names the layer.
std::string WhyOf(const absl::Status& status, const std::string& name, const std::string& type) {
  absl::string_view why = status.message();
  if (!absl::ConsumePrefix(&why, absl::StrCat("layer \"", ShownText(name), "\" (", ShownText(type), "): "))) {
    absl::ConsumePrefix(&why, absl::StrCat("layer \"", ShownText(name), "\": "));
  }
  return std::string(why);
}

class KerasReporter {
 public:
  absl::StatusOr<KerasReport> Report(const Json& root) {
    if (!root.is_object() || !root.contains("config")) {
      return absl::InvalidArgumentError("class_name or config is missing; give what model.to_json() returned");
    }
    Walk(root, "", 0);
    for (const std::string& policy : policies_) {
      report_.notes.push_back(
          absl::StrCat("dtype ", policy, ": the variables are float32; the products too, unless the job says ",
                       policy == "mixed_bfloat16" ? "compute_dtype: BFLOAT16" : "compute_dtype: FLOAT16"));
    }
    return std::move(report_);
  }

 private:
  void Walk(const Json& model, const std::string& prefix, int nesting) {
    const Json& config = model["config"];
    const Json* list = config.is_array() ? &config : nullptr;
    if (config.is_object() && config.contains("layers")) list = &config["layers"];
    if (list == nullptr || !list->is_array()) return;
    for (const Json& layer : *list) {
      if (report_.layers.size() >= kReportLayersMax) return;
      const std::string type = TextOf(layer, "class_name"), name = NameOf(layer);
      const std::string shown = absl::StrCat(prefix, ShownText(name));
      if (type.empty() || !layer.contains("config")) {
        report_.layers.push_back({shown, "?", "class_name or config is missing"});
        continue;
      }
      if (IsKerasModel(type) && nesting < kKerasNestingMax) {
        Walk(layer, absl::StrCat(shown, "/"), nesting + 1);
        continue;
      }
      NotePolicy(layer["config"]);
      report_.layers.push_back({shown, ShownText(type), WhyOfLayer(layer, type, name)});
    }
  }

  static std::string NameOf(const Json& layer) {
    const std::string name = TextOf(layer, "name");
    return name.empty() && layer.is_object() && layer.contains("config") ? TextOf(layer["config"], "name") : name;
  }

  static std::string WhyOfLayer(const Json& layer, const std::string& type, const std::string& name) {
    absl::Status status = CheckIsKerasLayer(layer, name, type);
    const std::string module = TextOf(layer, "module");
    const bool operation = IsKerasOperation(type, module);
    if (status.ok()) {
      status = operation ? CheckIsKerasOperation({name, type, module, &layer["config"], nullptr})
                         : ReadKerasLayer(type, name, layer["config"]).status();
    }
    if (!layer.contains("inbound_nodes") || !layer["inbound_nodes"].is_array()) return WhyOf(status, name, type);
    for (const Json& call : layer["inbound_nodes"]) {
      if (!status.ok()) break;
      status = operation ? ReadKerasOperationCall({name, type, module, &layer["config"], &call}, {}).status()
                         : ReadKerasCall(name, type, call, {}).status();
    }
    return WhyOf(status, name, type);
  }

  void NotePolicy(const Json& config) {
    if (!config.is_object() || !config.contains("dtype")) return;
    const Json& dtype = config["dtype"];
    const std::string name = dtype.is_string()   ? dtype.get<std::string>()
                             : dtype.is_object() ? TextOf(dtype.value("config", Json()), "name")
                                                 : "";
    if (absl::StartsWith(name, "mixed_")) policies_.insert(ShownText(name));
  }

  KerasReport report_;
  std::set<std::string> policies_;
};

// The data formats whose examples fit the model's input, according to what each loader provides.
std::vector<std::string> DataFor(const Graph& graph) {
  if (HasTexts(graph)) {
    std::vector<std::string> data = {"CSV with columns of texts besides the label", "TFRECORD of bytes features"};
    if (graph.inputs().size() == 1) data.push_back("TEXT_FOLDER of .txt files");
    return data;
  }
  const Shape input = ModelInputShape(graph);
  std::vector<std::string> data;
  const std::string shape = ToString(input);
  const bool picture = input.size() == 3 && (input[2] == 1 || input[2] == 3);
  if (picture) data.push_back(absl::StrCat("IMAGE_FOLDER of pictures, resized to ", shape));
  if (picture && input[2] == 1) data.push_back(absl::StrCat("IDX of ", shape));
  if (input == Shape{32, 32, 3}) data.push_back(absl::StrCat("CIFAR10 of ", shape));
  if (input.size() == 1) data.push_back(absl::StrCat("CSV of ", input[0], " columns besides the label"));
  data.push_back(absl::StrCat("TFRECORD of ", NumElements(input), " numbers", picture ? ", or pictures" : ""));
  return data;
}

// The data formats that can have more than one label per example.
std::vector<std::string> DataWithTargets(const Graph& graph) {
  const Shape input = ModelInputShape(graph), output = graph.output().output;
  if (HasTexts(graph))
    return {"CSV of texts, and data.targets { columns: ... }", "TFRECORD, and data.targets { feature: ... }"};
  std::vector<std::string> data = {
      absl::StrCat("TFRECORD of ", NumElements(input), " numbers, and data.targets { feature: ... }")};
  if (input.size() == 3 && output.size() == 3)
    data.push_back("IMAGE_FOLDER, and data.targets { pictures: ... }, a folder of masks");
  if (input.size() == 1 && output.size() == 1) data.push_back("CSV, and data.targets { columns: ... }");
  if (input == output) {
    for (const std::string& format : DataFor(graph))
      data.push_back(absl::StrCat(format, ", and data.targets { input_itself: true }"));
  }
  return data;
}

// Of a model with several inputs, some of them texts, a job says which columns they take.
void NameColumns(const Graph& graph, v1::Data* data) {
  for (const int id : graph.inputs()) {
    const Node& input = graph.nodes()[static_cast<size_t>(id)];
    v1::InputSource& source = *data->add_inputs();
    source.set_input(input.name);
    for (int64_t i = 0; i < NumElements(input.output); ++i) source.add_columns(absl::StrCat(input.name, i));
  }
}

// For TFRECORD, whose inputs are features.
void NameFeatures(v1::Data* data) {
  for (v1::InputSource& input : *data->mutable_inputs()) {
    if (input.columns().empty()) continue;
    input.set_feature(input.input());
    input.clear_columns();
  }
}

// The losses that a job with this model accepts, and its data. targets: of the output's shape, or with one class per
// position.
void AddLosses(v1::JobSpec spec, bool targets, TrainingReport* report) {
  const google::protobuf::EnumDescriptor* const kinds = v1::Loss::Kind_descriptor();
  if (targets) {
    spec.mutable_data()->set_format(v1::Data::TFRECORD);
    NameFeatures(spec.mutable_data());
    spec.mutable_data()->add_targets()->set_feature("y");
  }
  for (int i = 0; i < kinds->value_count(); ++i) {
    if (kinds->value(i)->number() == v1::Loss::LOSS_UNSPECIFIED) continue;
    spec.mutable_loss()->set_kind(static_cast<v1::Loss::Kind>(kinds->value(i)->number()));
    const absl::StatusOr<CheckedJob> job = CheckJob(spec);
    if (job.ok()) {
      report->losses.push_back(kinds->value(i)->name());
      if (report->data.empty()) report->data = targets ? DataWithTargets(job->graph) : DataFor(job->graph);
    } else if (report->why.empty()) {
      report->why = std::string(job.status().message());
    }
  }
}

// For several outputs: what each one accepts.
void AddLossesOfOutputs(v1::JobSpec spec, const Graph& graph, TrainingReport* report) {
  const google::protobuf::EnumDescriptor* const kinds = v1::Loss::Kind_descriptor();
  spec.mutable_data()->set_format(v1::Data::TFRECORD);
  NameFeatures(spec.mutable_data());
  for (const int id : graph.outputs()) {
    const std::string& name = graph.nodes()[static_cast<size_t>(id)].name;
    spec.clear_outputs();
    spec.add_outputs()->set_output(name);
    spec.mutable_data()->clear_targets();
    spec.mutable_data()->add_targets()->set_output(name);
    spec.mutable_data()->mutable_targets(0)->set_feature("y");
    for (int i = 0; i < kinds->value_count(); ++i) {
      if (kinds->value(i)->number() == v1::Loss::LOSS_UNSPECIFIED) continue;
      spec.mutable_outputs(0)->mutable_loss()->set_kind(static_cast<v1::Loss::Kind>(kinds->value(i)->number()));
      const absl::Status checked = CheckJob(spec).status();
      if (checked.ok()) report->losses.push_back(absl::StrCat(kinds->value(i)->name(), " of output \"", name, "\""));
      if (!checked.ok() && report->why.empty()) report->why = std::string(checked.message());
    }
  }
  if (report->losses.empty()) return;
  const std::string inputs = graph.inputs().size() == 1 ? "" : "data.inputs for each input and ";
  report->data = {absl::StrCat("CSV, and ", inputs, "data.targets { output: ... columns: ... } for each output"),
                  absl::StrCat("TFRECORD, and ", inputs, "data.targets { output: ... feature: ... } for each output")};
  if (graph.inputs().size() > 1) return;
  for (const std::string& format : DataFor(graph)) {
    report->data.push_back(absl::StrCat(format, ", where outputs take its label or the input itself"));
  }
}

}  // namespace

absl::StatusOr<KerasReport> ReportKerasModel(absl::string_view text) {
  CAIRN_ASSIGN_OR_RETURN(Json root, ParseBoundedJson(text, kKerasJsonBytesMax));
  if (root.is_string()) {
    CAIRN_ASSIGN_OR_RETURN(root, ParseBoundedJson(root.get<std::string>(), kKerasJsonBytesMax));
  }
  return KerasReporter().Report(WithStepsInModels(WithoutUnaskedArguments(WithOldNamesApart(std::move(root)))));
}

absl::StatusOr<std::vector<LayerReport>> ReportOnnxFile(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<OnnxOperatorReport> operators, ReportOnnxOperators(path));
  std::vector<LayerReport> report;
  for (const OnnxOperatorReport& one : operators) {
    report.push_back({ShownText(one.name), ShownText(one.type), std::string(one.status.message())});
  }
  return report;
}

void NoteError(const absl::Status& whole, std::vector<LayerReport>* layers) {
  if (whole.ok()) return;
  for (const LayerReport& layer : *layers) {
    if (!layer.why.empty()) return;
  }
  const std::string message(whole.message());
  for (LayerReport& layer : *layers) {
    const std::string named = absl::StrCat("layer \"", layer.name.substr(layer.name.rfind('/') + 1), "\"");
    const size_t at = message.find(named);
    if (at == std::string::npos) continue;
    absl::string_view why = absl::string_view(message).substr(at + named.size());
    absl::ConsumePrefix(&why, absl::StrCat(" (", layer.type, ")"));
    absl::ConsumePrefix(&why, ": ");
    layer.why = std::string(why);
    return;
  }
}

TrainingReport ReportTraining(const v1::Model& model) {
  TrainingReport report;
  v1::JobSpec spec;
  *spec.mutable_model() = model;
  spec.mutable_data()->set_path("/data");
  spec.mutable_optimizer()->mutable_adam();
  spec.set_batch_size(32);
  spec.set_epochs(1);
  const absl::StatusOr<Graph> graph = Graph::Build(model);
  if (graph.ok() && HasTexts(*graph)) NameColumns(*graph, spec.mutable_data());
  if (graph.ok() && graph->outputs().size() > 1) {
    AddLossesOfOutputs(spec, *graph, &report);
    if (!report.losses.empty()) report.why.clear();
    return report;
  }
  AddLosses(spec, /*targets=*/false, &report);
  if (report.losses.empty()) AddLosses(spec, /*targets=*/true, &report);
  if (!report.losses.empty()) report.why.clear();
  return report;
}

}  // namespace cairn
