// External: all variables of a model that a program computes (docs/programs.md). They have the user's names.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/example_key.h"
#include "common/model/external_check.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

constexpr float kMomentumDefault = 0.99f;  // as BatchNormalization's

std::string Where(int place) { return absl::StrCat("variables[", place, "]."); }

absl::Status CheckProgram(const v1::External& external) {
  for (const auto& [field, text] :
       {std::pair("program", &external.program()), std::pair("version", &external.version())}) {
    if (IsProgramName(*text)) continue;
    return Bad(field, ": \"", text->substr(0, kProgramNameBytesMax), "\" is not 1 to ", kProgramNameBytesMax,
               " letters, digits, '-', '_' and '.'; give it as the workers' program has it");
  }
  if (external.config().size() > kProgramConfigBytesMax) {
    return Bad("config: longer than ", kProgramConfigBytesMax, " bytes; let it name a file");
  }
  return absl::OkStatus();
}

absl::Status CheckFigures(const v1::External& external) {
  if (external.figures_size() > kMetricsMax) {
    return Bad("figures: ", external.figures_size(), " of them; at most ", kMetricsMax, " are allowed");
  }
  std::set<std::string> seen;
  for (int i = 0; i < external.figures_size(); ++i) {
    const std::string& name = external.figures(i);
    if (!IsProgramName(name) || name == "loss" || name.rfind("val_", 0) == 0) {
      return Bad("figures[", i, "]: \"", name.substr(0, kProgramNameBytesMax),
                 "\": it may have letters, digits, '-', '_' and '.', and is neither \"loss\" nor begins with val_; ",
                 "choose another");
    }
    if (!seen.insert(name).second) return Bad("figures[", i, "]: \"", name, "\" twice; name it once");
  }
  return absl::OkStatus();
}

absl::Status CheckName(int place, const std::string& name, std::set<std::string>* seen) {
  const bool text = IsUtf8(name) && std::none_of(name.begin(), name.end(), absl::ascii_iscntrl);
  if (name.empty() || !text || name.size() > kLayerNameBytesMax || name == "__metadata__") {
    return Bad(Where(place), "name: it has 1 to ", kLayerNameBytesMax,
               " bytes of text, no control characters, and is not \"__metadata__\"; choose another");
  }
  if (!seen->insert(name).second) return Bad(Where(place), "name: \"", name, "\" twice; name each variable once");
  return absl::OkStatus();
}

absl::StatusOr<Shape> ReadShape(int place, const v1::ExternalVariable& variable) {
  Shape shape(variable.shape().begin(), variable.shape().end());
  if (shape.size() > kVariableAxesMax) {
    return Bad(Where(place), "shape: more than ", kVariableAxesMax, " axes; join some");
  }
  for (const int64_t side : shape) {
    if (side < 1) return Bad(Where(place), "shape: ", ToString(shape), " has a side below 1; leave the variable out");
  }
  return shape;
}

absl::Status ResolveKind(int place, v1::ExternalVariable* variable) {
  if (!v1::ExternalVariable::Kind_IsValid(variable->kind())) {
    return Bad(Where(place), "kind: ", static_cast<int>(variable->kind()),
               " is not known; use TRAINABLE, MOVING_AVERAGE or FROZEN");
  }
  if (variable->kind() == v1::ExternalVariable::KIND_UNSPECIFIED) variable->set_kind(v1::ExternalVariable::TRAINABLE);
  const bool average = variable->kind() == v1::ExternalVariable::MOVING_AVERAGE;
  if (variable->has_momentum() && !average) {
    return Bad(Where(place), "momentum: only for kind MOVING_AVERAGE; leave it out, or set that kind");
  }
  if (average && !variable->has_momentum()) variable->set_momentum(kMomentumDefault);
  if (average && !(variable->momentum() >= 0 && variable->momentum() < 1)) {
    return Bad(Where(place), "momentum: ", variable->momentum(), " is outside [0, 1); use 0.99, say");
  }
  if (variable->has_regularizer() && variable->kind() != v1::ExternalVariable::TRAINABLE) {
    return Bad(Where(place), "regularizer: only for kind TRAINABLE; leave it out");
  }
  if (variable->regularizer().orthogonal_factor() != 0 || variable->regularizer().orthogonal_columns()) {
    return Bad(Where(place), "regularizer: l1 and l2 are for variables of programs; leave orthogonal_factor out");
  }
  return absl::OkStatus();
}

absl::Status Add(const Node& node, int place, v1::ExternalVariable* from, std::vector<Variable>* variables) {
  CAIRN_RETURN_IF_ERROR(ResolveKind(place, from));
  CAIRN_ASSIGN_OR_RETURN(Shape shape, ReadShape(place, *from));
  const bool matrix = from->kind() == v1::ExternalVariable::TRAINABLE && shape.size() > 1;
  CAIRN_RETURN_IF_ERROR(ResolveInitializer(absl::StrCat(Where(place), "initializer").c_str(),
                                           matrix ? v1::Initializer::GLOROT_UNIFORM : v1::Initializer::ZEROS,
                                           from->mutable_initializer()));
  CAIRN_RETURN_IF_ERROR(
      AddVariable(node, absl::StrCat(Where(place), "shape").c_str(), std::move(shape), from->initializer(), variables));
  Variable& variable = variables->back();
  variable.name = from->name();
  switch (from->kind()) {
    case v1::ExternalVariable::MOVING_AVERAGE:
      variable.kind = VariableKind::kMovingAverage;
      variable.momentum = from->momentum();
      break;
    case v1::ExternalVariable::FROZEN: variable.kind = VariableKind::kFrozen; break;
    default: variable.kind = VariableKind::kTrainable;
  }
  return Regularize(absl::StrCat(Where(place), "regularizer").c_str(), from->has_regularizer(), from->regularizer(),
                    variables);
}

absl::Status InferExternal(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::External* external = node->layer.mutable_external();
  CAIRN_RETURN_IF_ERROR(CheckProgram(*external));
  CAIRN_RETURN_IF_ERROR(CheckFigures(*external));
  const Shape input = external->input_shape().empty()
                          ? Shape{kExampleKeyBytes}
                          : Shape(external->input_shape().begin(), external->input_shape().end());
  if (inputs[0] != input) {
    return Bad("its input is ", ToString(inputs[0]), ", its input_shape ", ToString(input),
               "; give it as model.external");
  }
  if (external->variables().empty()) return Bad("variables: none; name those that the program computes with");
  if (external->variables_size() > kProgramVariablesMax) {
    return Bad("variables: ", external->variables_size(), " of them; at most ", kProgramVariablesMax, " are allowed");
  }
  std::set<std::string> names;
  for (int i = 0; i < external->variables_size(); ++i) {
    v1::ExternalVariable* variable = external->mutable_variables(i);
    CAIRN_RETURN_IF_ERROR(CheckName(i, variable->name(), &names));
    CAIRN_RETURN_IF_ERROR(Add(*node, i, variable, variables));
  }
  node->output = {1};
  if (external->output_shape().empty()) return absl::OkStatus();
  node->output.assign(external->output_shape().begin(), external->output_shape().end());
  for (const int64_t side : node->output) {
    if (side < 1) return Bad("output_shape: ", ToString(node->output), " has a side below 1; give that of one example");
  }
  return absl::OkStatus();
}

}  // namespace

constinit const LayerType kExternalLayer = {
    .kind = LayerKind::kExternal,
    .field = v1::Layer::kExternal,
    .name = "external",
    .infer = InferExternal,
    // Files of Keras and ONNX are refused before they are begun (CheckHasLayers).
    .keras_class = [](const Node&) { return "External"; },
    .write_onnx = [](const Node& node,
                     OnnxWriter& w) { w.SetOutput(node, w.In(node, 0, Channels::kLast), Channels::kLast); },
};

}  // namespace cairn::layers
