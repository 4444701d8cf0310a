#include "common/formats/keras_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/formats/keras_converter.h"
#include "common/formats/keras_dialect.h"
#include "common/formats/keras_layers.h"
#include "common/formats/keras_operation.h"
#include "common/formats/keras_step_models.h"
#include "common/formats/limits.h"
#include "common/model/call_mode.h"
#include "common/model/keras/keras_shape.h"
#include "common/model/layer_type.h"

namespace cairn {
namespace {

std::string TextOf(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

// A Softmax along an axis other than the last becomes the operation of that name.
void UseOperationAlongAxis(const Shape& input, v1::Layer* layer) {
  const v1::ActivationLayer& activation = layer->activation();
  if (activation.activation() != v1::SOFTMAX || activation.axis_size() != 1) return;
  const int32_t rank = static_cast<int32_t>(input.size());
  const int32_t axis = activation.axis(0) < 0 ? activation.axis(0) + rank + 1 : activation.axis(0);
  if (axis < 1 || axis >= rank) return;
  v1::Operation* const operation = layer->mutable_operation();
  operation->set_kind(v1::Operation::SOFTMAX);
  operation->add_axis(axis);
}

}  // namespace

absl::StatusOr<KerasModel> KerasConverter::Convert(const Json& root) {
  const std::string type = TextOf(root, "class_name");
  if (!root.is_object() || type.empty() || !root.contains("config")) {
    return Bad("class_name or config is missing; give what model.to_json() returned");
  }
  if (!IsKerasModel(type)) {
    return Bad("class_name: \"", ShownText(type),
               "\" is neither Sequential nor Functional; a subclassed model has no description of its layers; build "
               "it of layers, or train it as a program of your own (docs/programs.md)");
  }
  if (root["config"].is_object()) result_.model.set_name(TextOf(root["config"], "name"));
  CAIRN_ASSIGN_OR_RETURN(const Names outputs, ConvertModel(root, "", std::nullopt, 0));
  for (size_t i = 0; outputs.size() > 1 && i < outputs.size(); ++i) result_.model.add_outputs(outputs[i]);
  submodels_.Finish(&result_.model);
  CAIRN_RETURN_IF_ERROR(CheckGraph());
  return std::move(result_);
}

absl::StatusOr<KerasConverter::Names> KerasConverter::ConvertModel(const Json& model, const std::string& path,
                                                                   const std::optional<Names>& inputs, int nesting) {
  if (nesting > kKerasNestingMax) return Bad("models inside models, more than ", kKerasNestingMax, " deep");
  const Json& config = model["config"];
  const Json* list = config.is_array() ? &config : nullptr;  // the oldest form of a Sequential
  if (config.is_object() && config.contains("layers")) list = &config["layers"];
  if (list == nullptr || !list->is_array() || list->empty()) return Bad("config.layers: missing or empty");
  if (list->size() > static_cast<size_t>(kLayersMax)) return Bad("config.layers: more than ", kLayersMax, " layers");
  const bool sequential = TextOf(model, "class_name") == "Sequential";
  CAIRN_ASSIGN_OR_RETURN(std::vector<Entry> entries, ReadEntries(*list));
  for (const Entry& entry : entries) {
    if (nesting == 0) submodels_.Reserve(entry.name);
    part_names_.given.insert(entry.name);
  }
  const bool frozen = config.is_object() && config.value("trainable", Json(true)) == false;
  frozen_ += frozen;  // all layers of a frozen model are frozen
  absl::StatusOr<Names> last = sequential ? ConvertSequential(model, entries, path, inputs, nesting)
                                          : ConvertFunctional(config, entries, path, inputs, nesting);
  frozen_ -= frozen;
  return last;
}

absl::StatusOr<std::vector<KerasConverter::Entry>> KerasConverter::ReadEntries(const Json& list) {
  std::vector<Entry> entries;
  for (const Json& item : list) {
    Entry entry;
    entry.json = &item;
    entry.type = TextOf(item, "class_name");
    entry.module = TextOf(item, "module");
    if (entry.type.empty() || !item.contains("config")) {
      return Bad("config.layers[", entries.size(), "]: class_name or config is missing");
    }
    entry.config = &item["config"];
    entry.name = TextOf(item, "name");
    if (entry.name.empty()) entry.name = TextOf(*entry.config, "name");
    if (entry.name.empty()) entry.name = absl::StrCat(KerasSnakeCase(entry.type), "_", entries.size());
    entry.class_before_steps = TextOf(item, kClassBeforeSteps);
    CAIRN_RETURN_IF_ERROR(CheckIsKerasLayer(item, entry.name, entry.type));
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::string KerasConverter::PathOf(const Entry& entry, KerasContainer& container) {
  if (entry.class_before_steps.empty()) return container.PathOf(entry.type);
  return absl::StrCat(container.PathOf(entry.class_before_steps), IsKerasModel(entry.type) ? "/layer" : "/");
}

absl::StatusOr<KerasConverter::Names> KerasConverter::ConvertSequential(const Json& model, std::vector<Entry>& entries,
                                                                        const std::string& path,
                                                                        const std::optional<Names>& inputs,
                                                                        int nesting) {
  if (inputs.has_value() && inputs->size() != 1) return Bad("a Sequential takes one input, but it is called with more");
  KerasContainer container(path);
  std::string current = inputs.has_value() ? (*inputs)[0] : "";
  for (Entry& entry : entries) {
    KerasCall call;
    if (entry.type == "InputLayer") {
      if (inputs.has_value()) continue;
      if (!current.empty()) {
        return Bad("layer \"", ShownText(entry.name), "\": a second InputLayer; a Sequential has one input");
      }
    } else {
      entry.path = PathOf(entry, container);
      if (current.empty()) {
        CAIRN_RETURN_IF_ERROR(AppendImpliedInput(model, entry));
        current = head_;
      }
      call.inputs = {current};
    }
    if (HasSeveralOutputs(entry)) {
      return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type),
                 "): it gives several outputs, but the next layer of a Sequential takes one; leave return_state out",
                 entry.type == "Bidirectional" ? ", and give a merge_mode" : "");
    }
    CAIRN_ASSIGN_OR_RETURN(const Names made, Append(entry, call, nesting));
    if (made.size() != 1) {
      return Bad("layer \"", ShownText(entry.name), "\": it gives ", made.size(), " outputs, but the next layer of a ",
                 "Sequential takes one");
    }
    current = made[0];
  }
  return Names{current};
}

// A Sequential model may give the shape of its input in its first layer (Keras 2) or in its build config (Keras 3).
absl::Status KerasConverter::AppendImpliedInput(const Json& model, const Entry& first) {
  const Json* shape = nullptr;
  const auto look = [&](const Json& in, const char* key) {
    if (shape == nullptr && in.is_object() && in.contains(key) && in[key].is_array()) shape = &in[key];
  };
  const Json* config = first.config;
  // The first layer of a nested model that is the first layer.
  const Json* nested = first.json;
  for (int depth = 0; depth < kKerasNestingMax && IsKerasModel(TextOf(*nested, "class_name")); ++depth) {
    const Json& layers = (*nested)["config"].is_object() && (*nested)["config"].contains("layers")
                             ? (*nested)["config"]["layers"]
                             : *nested;
    if (!layers.is_array() || layers.empty() || !layers[0].is_object() || !layers[0].contains("config")) break;
    nested = &layers[0];
    config = &(*nested)["config"];
  }
  look(*config, "batch_input_shape");
  look(*config, "batch_shape");
  look(model["config"], "build_input_shape");
  if (model.contains("build_config")) look(model["build_config"], "input_shape");
  if (shape == nullptr) {
    return Bad("layer \"", ShownText(first.name),
               "\": the model has no input shape; begin it with keras.Input(shape=...)");
  }
  const absl::StatusOr<v1::InputLayer> input = ReadBatchShape(*shape);
  if (!input.ok()) return Annotate(input.status(), absl::StrCat("layer \"", ShownText(first.name), "\""));
  v1::Layer layer;
  layer.set_name("input_layer");
  *layer.mutable_input() = *input;
  Push(std::move(layer), "");
  return absl::OkStatus();
}

absl::StatusOr<KerasConverter::Names> KerasConverter::AppendModel(const Entry& entry, const KerasCall& call,
                                                                  int nesting) {
  inference_ += call.inference;  // training=False applies to all layers of a nested model
  submodels_.Enter(*entry.json, entry.name, call);
  absl::StatusOr<Names> last = ConvertModel(*entry.json, entry.path, call.inputs, nesting + 1);
  inference_ -= call.inference;
  if (!last.ok()) return last;
  submodels_.Leave(*last);
  if (*last == Names{head_}) head_keras_ = entry.name;
  return last;
}

absl::StatusOr<std::string> KerasConverter::AppendOperation(const Entry& entry, const KerasCall& call, int output) {
  if (entry.call == nullptr) {
    return Bad("layer \"", ShownText(entry.name), "\": ", ShownText(entry.type),
               " is an operation on tensors (as x + y), which only a Functional model has");
  }
  std::vector<Shape> shapes;
  for (const std::string& input : call.inputs) {
    CAIRN_ASSIGN_OR_RETURN(Shape shape, ShapeOf(entry, input));
    shapes.push_back(std::move(shape));
  }
  CAIRN_ASSIGN_OR_RETURN(
      KerasOperationLayers made,
      ReadKerasOperation({entry.name, entry.type, entry.module, entry.config, entry.call}, shapes, output));
  v1::Layer& layer = made.layer;
  if (layer.operation().kind() == v1::Operation::SOFTMAX && layer.operation().axis_size() > 1) {
    return AppendSoftmax(entry, call, {layer.operation().axis().begin(), layer.operation().axis().end()});
  }
  CAIRN_ASSIGN_OR_RETURN(const KerasScalarUse use, ScalarsOf(entry, call, &layer));
  for (const std::string& input : call.inputs) layer.add_inputs(input);
  if (!made_.emplace(entry.json, entry.name).second) layer.set_name(NameOfCall(entry.name));
  head_used_ = head_used_ || std::count(call.inputs.begin(), call.inputs.end(), head_) > 0;
  const std::string name = layer.name();
  PushAt(std::move(layer), "");
  std::string last = AppendScalarPart(entry, name, use);
  for (v1::Layer& part : made.then) last = AppendPart(entry, last, std::move(part));
  return last;
}

namespace {

void UseCausalMask(v1::Layer* layer) {
  if (layer->has_attention()) layer->mutable_attention()->set_use_causal_mask(true);
  if (layer->has_additive_attention()) layer->mutable_additive_attention()->set_use_causal_mask(true);
  if (layer->has_multi_head_attention()) layer->mutable_multi_head_attention()->set_use_causal_mask(true);
  if (layer->has_group_query_attention()) layer->mutable_group_query_attention()->set_use_causal_mask(true);
}

}  // namespace

absl::StatusOr<KerasConverter::Names> KerasConverter::Append(const Entry& given, const KerasCall& call, int nesting) {
  Entry entry = given;
  entry.name = submodels_.NameApart(given.json, given.name);
  if (result_.model.layers_size() >= kLayersMax || ++appended_ > kKerasCallsMax) {
    return Bad("layer \"", ShownText(entry.name),
               "\": with what the models inside the model do in each of their calls there are ", "more than ",
               kLayersMax, " layers, or ", kKerasCallsMax, " calls; use a smaller model");
  }
  if (IsKerasModel(entry.type)) return AppendModel(entry, call, nesting);
  CAIRN_RETURN_IF_ERROR(CheckStepJoin(entry, call));
  if (IsKerasOperation(entry.type, entry.module)) return AppendOutputs(entry, call);
  const bool states = HasKerasStates(entry.type, *entry.config);
  const Json plain = states ? WithoutKerasStates(entry.type, *entry.config) : Json();
  CAIRN_ASSIGN_OR_RETURN(KerasLayer read, ReadKerasLayer(entry.type, entry.name, states ? plain : *entry.config));
  const bool inference = inference_ > 0 || call.inference;
  if (const auto* augmentation = std::get_if<v1::Augmentation>(&read.value)) {
    if (inference && !augmentation->has_random_crop()) return Names{call.inputs[0]};  // it has no effect
    CAIRN_ASSIGN_OR_RETURN(std::string head, Augment(entry, call, *augmentation, read.moves_pixels_only, inference));
    return Names{std::move(head)};
  }
  v1::Layer& layer = std::get<v1::Layer>(read.value);
  if (entry.type == "CustomScaleLayer") return AppendScaledSum(entry, call, std::move(layer));
  if (entry.type == "LayerScale") CAIRN_RETURN_IF_ERROR(CheckLayerScale(entry, call));
  SetInputs(call, &layer);
  CAIRN_ASSIGN_OR_RETURN(const KerasScalarUse use, ScalarsOf(entry, call, &layer));
  if (layer.activation().activation() == v1::SOFTMAX && layer.activation().axis_size() > 1) {
    const auto& axes = layer.activation().axis();
    CAIRN_ASSIGN_OR_RETURN(std::string softmax, AppendSoftmax(entry, call, {axes.begin(), axes.end()}));
    return Names{std::move(softmax)};
  }
  KerasStatePlan plan;
  if (states) plan = PlanKerasStates(*entry.config, call.takes_states, &layer);
  if (layer.has_activation()) {
    if (const auto shape = shapes_.find(call.inputs[0]); shape != shapes_.end())
      UseOperationAlongAxis(shape->second, &layer);
  }
  if (call.causal) UseCausalMask(&layer);
  if (inference && !layer.has_input()) layer.set_training(false);
  if (read.axis >= 0) axes_.push_back({static_cast<int>(result_.model.layers_size()), read.axis, entry.type});
  const auto [made, first] = made_.emplace(entry.json, layer.name());
  if (!first) {
    layer.set_shares(made->second);
    layer.set_name(NameOfCall(made->second));
  }
  const bool extends_head = layer.has_rescaling() && call.inputs == Names{head_};
  if (extends_head) rescaled_ = true;
  if (!extends_head && !layer.has_input() && std::count(call.inputs.begin(), call.inputs.end(), head_) > 0)
    head_used_ = true;
  const std::string name = layer.name();
  if (extends_head || layer.has_input()) head_ = head_keras_ = name;
  if (layer.has_input()) layer.clear_inputs();
  if (frozen_ > 0) layer.set_trainable(false);
  PushAt(std::move(layer), first ? entry.path : "");
  if (states) return AppendStates(entry, call, plan);
  return Names{AppendScalarPart(entry, name, use)};
}

absl::StatusOr<KerasConverter::Names> KerasConverter::AppendOutputs(const Entry& entry, const KerasCall& call) {
  Names made;
  for (const int output : HasSeveralOutputs(entry) ? call.outputs : std::vector<int>{0}) {
    CAIRN_ASSIGN_OR_RETURN(std::string name, AppendOperation(entry, call, output));
    made.push_back(std::move(name));
  }
  return made;
}

void KerasConverter::SetInputs(const KerasCall& call, v1::Layer* layer) {
  const size_t positional = call.inputs.size() - static_cast<size_t>(call.keyword_inputs);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    layer->add_inputs(i < positional ? call.inputs[i] : absl::StrCat(kAttentionArguments[i], "=", call.inputs[i]));
  }
}

std::string KerasConverter::NameOfCall(const std::string& layer, const char* part) {
  std::string name;
  do {
    name = absl::StrCat(layer, ".", part, ++part_names_.repeats[layer]);
  } while (part_names_.given.contains(name) ||
           std::any_of(result_.model.layers().begin(), result_.model.layers().end(),
                       [&](const v1::Layer& other) { return other.name() == name; }));
  return name;
}

void KerasConverter::Push(v1::Layer layer, const std::string& path) {
  head_ = head_keras_ = layer.name();
  PushAt(std::move(layer), path);
}

void KerasConverter::PushAt(v1::Layer layer, const std::string& path) {
  NoteShape(layer);
  layer.set_submodel(submodels_.current());
  *result_.model.add_layers() = std::move(layer);
  result_.weight_paths.push_back(path);
}

// Errors in the layer are reported by Graph::Build.
void KerasConverter::NoteShape(const v1::Layer& layer) {
  const LayerType* const type = FindLayerType(layer.kind_case());
  if (type == nullptr) return;
  Node node;
  node.kind = type->kind;
  node.name = layer.name();
  node.layer = layer;
  Names inputs(layer.inputs().begin(), layer.inputs().end());
  if (TakesQuery(node.kind)) {
    absl::StatusOr<AttentionInputs> read = ReadAttentionInputs(layer);
    if (!read.ok()) return;
    inputs = std::move(read->layers);
  }
  std::vector<Shape> shapes;
  for (const std::string& input : inputs) {
    const auto shape = shapes_.find(input);
    if (shape == shapes_.end()) return;
    shapes.push_back(shape->second.empty() ? Shape{1} : shape->second);
  }
  const int count = static_cast<int>(shapes.size());
  if (count < type->inputs_min || count > type->inputs_max) return;
  std::vector<Variable> variables;
  if (InferLayer(shapes, &node, &variables).ok()) shapes_[layer.name()] = node.output;
}

// Checks that Cairn's own masks are those of the file.
absl::Status KerasConverter::CheckMasks(const Graph& graph) const {
  std::map<std::string, const Node*> nodes;
  for (const Node& node : graph.nodes()) nodes.emplace(node.name, &node);
  for (const std::string& name : unmasked_) {
    const Node& node = *nodes.at(name);
    if (graph.nodes()[static_cast<size_t>(node.inputs[0])].mask < 0) continue;
    return Bad("layer \"", ShownText(name),
               "\": steps of its input are masked, and its outputs are taken apart, which is ",
               "supported of LSTM and ConvLSTM alone; use those, or no mask");
  }
  for (const NamedMask& named : masks_) {
    const auto input = nodes.find(named.input);
    const int mask = input == nodes.end() ? -1 : input->second->mask;
    const std::string maker = mask < 0 ? "" : graph.nodes()[static_cast<size_t>(mask)].name;
    if (mask < 0 ? named.makers.empty() : named.makers.contains(maker)) continue;
    return Bad("layer \"", ShownText(named.layer), "\" (", ShownText(named.type), "): its ", named.argument,
               " is not that of its input \"", ShownText(named.input), "\", ",
               mask < 0 ? "which has none" : absl::StrCat("which is made by \"", ShownText(maker), "\""),
               "; leave it out");
  }
  return absl::OkStatus();
}

absl::Status KerasConverter::CheckGraph() const {
  if (axes_.empty() && masks_.empty() && unmasked_.empty()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(result_.model));
  for (const NamedAxis& named : axes_) {
    const Node& node = graph.nodes()[static_cast<size_t>(named.layer)];
    const int last = static_cast<int>(graph.nodes()[static_cast<size_t>(node.inputs[0])].output.size());
    if (named.axis == last) continue;
    return Bad("layer \"", node.name, "\" (", ShownText(named.type), "): axis: ", named.axis,
               " is not supported; only the last axis is, -1");
  }
  return CheckMasks(graph);
}

absl::StatusOr<KerasModel> ReadKerasModel(absl::string_view text) {
  CAIRN_ASSIGN_OR_RETURN(Json root, ParseBoundedJson(text, kKerasJsonBytesMax));
  if (root.is_string()) {  // json.dump(model.to_json(), file) writes JSON inside JSON
    CAIRN_ASSIGN_OR_RETURN(root, ParseBoundedJson(root.get<std::string>(), kKerasJsonBytesMax));
  }
  const Json model = WithStepsInModels(WithoutUnaskedArguments(WithOldNamesApart(std::move(root))));
  return KerasConverter().Convert(model);
}

}  // namespace cairn
