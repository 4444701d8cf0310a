#include "common/model/activity.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/check.h"
#include "common/base/decimal.h"
#include "common/model/call_mode.h"
#include "common/model/limits.h"
#include "common/model/variable_fields.h"

namespace cairn {
namespace {

constexpr char kField[] = "activity_regularizer";

// Renames the inputs of a layer: "x", or "key=x" of an attention.
void RenameInputs(const std::map<std::string, std::string>& names, v1::Layer* layer) {
  for (std::string& input : *layer->mutable_inputs()) {
    if (const auto found = names.find(input); found != names.end()) {
      input = found->second;
      continue;
    }
    for (const char* argument : kAttentionArguments) {
      const std::string prefix = absl::StrCat(argument, "=");
      if (!absl::StartsWith(input, prefix)) continue;
      if (const auto found = names.find(input.substr(prefix.size())); found != names.end()) {
        input = absl::StrCat(prefix, found->second);
      }
      break;
    }
  }
}

// Its penalty is a layer of its own.
void ClearActivityRegularizer(v1::Layer* layer) {
  const google::protobuf::Reflection& reflection = *layer->GetReflection();
  const google::protobuf::FieldDescriptor* const kind =
      reflection.GetOneofFieldDescriptor(*layer, v1::Layer::descriptor()->FindOneofByName("kind"));
  if (kind == nullptr) return;
  google::protobuf::Message* const fields = reflection.MutableMessage(layer, kind);
  const google::protobuf::FieldDescriptor* const field = fields->GetDescriptor()->FindFieldByName(kField);
  if (field != nullptr) fields->GetReflection()->ClearField(fields, field);
}

}  // namespace

ActivityFactors ActivityRegularizerOf(const Node& node) {
  v1::Layer layer = node.layer;
  for (const VariableField& field : VariableFieldsOf(&layer, kField, {})) {
    const auto& regularizer = *static_cast<const v1::Regularizer*>(field.message);
    return {Decimal(regularizer.l1()), Decimal(regularizer.l2())};
  }
  return {};
}

ActivityFactors ActivityFactorsOf(const Node& node) {
  const v1::ActivityRegularization& layer = node.layer.activity_regularization();
  return {Decimal(layer.l1()), Decimal(layer.l2())};
}

absl::Status CheckActivityRegularizer(v1::Layer* layer) {
  for (const VariableField& field : VariableFieldsOf(layer, kField, {})) {
    const auto& regularizer = *static_cast<const v1::Regularizer*>(field.message);
    if (field.name != kField) {
      return Bad(field.name,
                 ": of a layer within another one it is not supported; put an activity_regularization "
                 "layer after the outer one");
    }
    if (regularizer.orthogonal_factor() != 0 || regularizer.orthogonal_columns()) {
      return Bad(field.name, ".orthogonal_factor is for matrices of variables; use l1 or l2");
    }
    for (const auto& [name, factor] : {std::pair("l1", regularizer.l1()), std::pair("l2", regularizer.l2())}) {
      if (factor >= 0 && std::isfinite(factor)) continue;
      return Bad(field.name, ".", name, " ", factor, " is not a number from 0; use one such as 0.0001");
    }
    if (regularizer.l1() == 0 && regularizer.l2() == 0) {
      return Bad(field.name, ": neither l1 nor l2 is above 0; give one, as { l2: 0.0001 }, or leave it out");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckActivityCount(const Graph& graph) {
  size_t layers = graph.nodes().size();
  for (const Node& node : graph.nodes()) layers += ActivityRegularizerOf(node).none() ? 0 : 1;
  if (layers <= static_cast<size_t>(kLayersMax)) return absl::OkStatus();
  return Bad("model.layers: ", layers, " layers, each activity_regularizer counted as one; at most ", kLayersMax,
             " are allowed");
}

std::shared_ptr<const Graph> WithActivityLayers(std::shared_ptr<const Graph> graph) {
  std::set<std::string> taken;
  for (const Node& node : graph->nodes()) taken.insert(node.name);
  std::map<std::string, std::string> renamed;  // from the layer to its penalty
  v1::Model model;
  for (const Node& node : graph->nodes()) {
    v1::Layer* const layer = model.add_layers();
    *layer = node.layer;
    layer->clear_submodel();                    // a penalty would be in none
    if (node.shares >= 0) layer->clear_kind();  // it is that of the named layer
    ClearActivityRegularizer(layer);
    RenameInputs(renamed, layer);
    const ActivityFactors factors = ActivityRegularizerOf(node);
    if (factors.none()) continue;
    std::string name = absl::StrCat(kField, "_", node.id);
    while (!taken.insert(name).second) name += "_";
    v1::Layer* const penalty = model.add_layers();
    penalty->set_name(name);
    penalty->add_inputs(node.name);
    penalty->mutable_activity_regularization()->set_l1(static_cast<float>(factors.l1));
    penalty->mutable_activity_regularization()->set_l2(static_cast<float>(factors.l2));
    renamed[node.name] = name;
  }
  if (renamed.empty()) return graph;
  for (const int output : graph->outputs()) {
    const std::string& name = graph->nodes()[output].name;
    const auto found = renamed.find(name);
    model.add_outputs(found == renamed.end() ? name : found->second);
  }
  absl::StatusOr<Graph> built = Graph::Build(model);
  CAIRN_CHECK(built.ok() && built->space_size() == graph->space_size(), "a graph with layers that change nothing");
  return std::make_shared<const Graph>(*std::move(built));
}

}  // namespace cairn
