#include "common/formats/keras_submodels.h"

#include "absl/strings/str_cat.h"
#include "common/model/graph.h"

namespace cairn {
namespace {

// The names of the model's input layers, in the order in which it takes them.
std::vector<std::string> InputNames(const Json& model) {
  std::vector<std::string> names;
  const Json& config = model["config"];
  if (!config.is_object()) return names;
  const auto take = [&](const Json& tensor) {
    if (tensor.is_array() && !tensor.empty() && tensor[0].is_string()) names.push_back(tensor[0].get<std::string>());
  };
  if (config.contains("input_layers")) {
    take(config["input_layers"]);
    if (names.empty() && config["input_layers"].is_structured()) {
      for (const Json& tensor : config["input_layers"]) take(tensor);
    }
    return names;
  }
  if (!config.contains("layers") || !config["layers"].is_array() || config["layers"].empty()) return names;
  const Json& first = config["layers"][0];
  if (!first.is_object() || !first.contains("class_name") || first["class_name"] != "InputLayer") return names;
  const Json& of_first = first.contains("config") ? first["config"] : first;
  if (of_first.is_object() && of_first.contains("name") && of_first["name"].is_string()) {
    names.push_back(of_first["name"].get<std::string>());
  }
  return names;
}

}  // namespace

std::string KerasSubmodels::NameApart(const Json* entry, const std::string& name) {
  if (within_.empty()) return name;
  const auto [named, first] = apart_.emplace(entry, name);
  if (!first) return named->second;
  if (taken_.contains(name)) named->second = absl::StrCat(current(), "/", name);
  while (!taken_.insert(named->second).second) named->second += "_";
  return named->second;
}

void KerasSubmodels::Enter(const Json& entry, const std::string& name, const KerasCall& call) {
  const auto [known, first] = by_entry_.emplace(&entry, submodels_.size());
  if (first) {
    v1::Submodel& submodel = submodels_.emplace_back();
    submodel.set_name(name);
    submodel.set_submodel(current());
    submodel.set_sequential(entry["class_name"] == "Sequential");
    for (const std::string& input : InputNames(entry)) submodel.add_inputs(input);
  }
  v1::Submodel::Call& made = *submodels_[known->second].add_calls();
  for (const std::string& input : call.inputs) made.add_inputs(input);
  if (call.inference) made.set_training(false);
  within_.push_back(known->second);
}

void KerasSubmodels::Leave(const std::vector<std::string>& outputs) {
  v1::Submodel& submodel = submodels_[within_.back()];
  v1::Submodel::Call& call = *submodel.mutable_calls(submodel.calls_size() - 1);
  for (const std::string& output : outputs) call.add_outputs(output);
  within_.pop_back();
}

void KerasSubmodels::Finish(v1::Model* model) const {
  std::set<std::string> used;
  for (const v1::Layer& layer : model->layers()) used.insert(layer.submodel());
  for (size_t i = submodels_.size(); i-- > 0;) {
    if (used.contains(submodels_[i].name())) used.insert(submodels_[i].submodel());
  }
  for (const v1::Submodel& submodel : submodels_) {  // one of augmentations has no layers
    if (used.contains(submodel.name())) *model->add_submodels() = submodel;
  }
  if (model->submodels().empty() || Graph::Build(*model).ok()) return;
  model->clear_submodels();
  for (v1::Layer& layer : *model->mutable_layers()) layer.clear_submodel();
}

}  // namespace cairn
