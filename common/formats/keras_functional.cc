// Functional models: layers are called by name, each any number of times.
#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/formats/keras_converter.h"
#include "common/formats/keras_masks.h"
#include "common/formats/keras_operation.h"
#include "common/formats/keras_order.h"
#include "common/formats/limits.h"
#include "common/model/layer_type.h"

namespace cairn {
namespace {

// ["input_1", 0, 0]
bool IsTensor(const Json& value) {
  return value.is_array() && value.size() >= 3 && value[0].is_string() && value[1].is_number_integer() &&
         value[2].is_number_integer();
}

// The smallest and the largest call index of a layer.
struct CallNumbers {
  int smallest = std::numeric_limits<int>::max(), largest = 0;
};

// Finds calls of the layers in `numbers` anywhere in the value. The recursion is bounded, since the parser limits the
// depth.
void FindCalls(const Json& value, std::map<std::string, CallNumbers>* numbers) {
  if (IsTensor(value)) {
    const auto found = numbers->find(value[0].get<std::string>());
    if (found != numbers->end()) {
      found->second.smallest = std::min(found->second.smallest, value[1].get<int>());
      found->second.largest = std::max(found->second.largest, value[1].get<int>());
    }
  }
  if (!value.is_structured()) return;
  for (const Json& item : value) FindCalls(item, numbers);
}

// The names in [["input_1", 0, 0], ...], ["input_1", 0, 0] or {"name": ["dense", 0, 0]}.
absl::StatusOr<std::vector<std::string>> Tensors(const Json& config, const char* key, const KerasFirstCalls& firsts) {
  if (!config.contains(key)) return Bad("config.", key, ": missing");
  const Json& given = config[key];
  std::vector<const Json*> tensors;
  if (IsTensor(given)) {
    tensors.push_back(&given);
  } else if (given.is_structured()) {
    for (const Json& item : given) tensors.push_back(&item);
  }
  std::vector<std::string> names;
  for (const Json* tensor : tensors) {
    const bool one_in_list = tensor->is_array() && tensor->size() == 1 && IsTensor((*tensor)[0]);
    const Json& history = one_in_list ? (*tensor)[0] : *tensor;
    if (!IsTensor(history) || KerasOutputNumber(history) < 0) {
      return Bad("config.", key, ": ", ShownJson(history), " names no layer's output");
    }
    const std::string layer = history[0].get<std::string>();
    const auto first = firsts.find(layer);
    const int call = history[1].get<int>() - (first == firsts.end() ? 0 : first->second);
    names.push_back(KerasTensorName(layer, call, KerasOutputNumber(history)));
  }
  if (names.empty()) return Bad("config.", key, ": ", ShownJson(given), " names no layer");
  return names;
}

}  // namespace

absl::StatusOr<KerasConverter::Calls> KerasConverter::ReadCalls(const std::vector<Entry>& entries,
                                                                const KerasFirstCalls& firsts) {
  Calls all;
  std::set<std::string> names;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (!names.insert(entry.name).second) {
      return Bad("layer \"", ShownText(entry.name), "\": two layers have this name");
    }
    const Json none = Json::array();
    const Json& nodes = entry.json->contains("inbound_nodes") ? (*entry.json)["inbound_nodes"] : none;
    if (!nodes.is_array()) {
      return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type),
                 "): its inbound_nodes are not a list");
    }
    if (nodes.empty()) {
      if (entry.type != "InputLayer") {
        return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type), "): it takes no input");
      }
      all.entries.push_back(i);
      all.names.push_back(entry.name);
      all.calls.emplace_back();
    }
    if (all.calls.size() + nodes.size() > static_cast<size_t>(kKerasCallsMax)) {
      return Bad("config.layers: more than ", kKerasCallsMax, " calls of layers; use a smaller model");
    }
    for (size_t n = 0; n < nodes.size(); ++n) {
      const KerasOperationEntry operation{entry.name, entry.type, entry.module, entry.config, &nodes[n]};
      CAIRN_ASSIGN_OR_RETURN(KerasCall call, IsKerasOperation(entry.type, entry.module)
                                                 ? ReadKerasOperationCall(operation, firsts)
                                                 : ReadKerasCall(entry.name, entry.type, nodes[n], firsts));
      all.entries.push_back(i);
      all.names.push_back(KerasTensorName(entry.name, static_cast<int>(n)));
      all.calls.push_back(std::move(call));
    }
  }
  CAIRN_ASSIGN_OR_RETURN(all.order, OrderCalls(all.names, all.calls));
  return all;
}

// Operations are skipped: they have no weights, and Keras does not count them among the layers.
void KerasConverter::NameContainers(const Calls& calls, const Names& outputs, const std::string& path,
                                    std::vector<Entry>& entries) {
  std::map<std::string, int> numbers;
  std::map<size_t, int> first_of;  // by entry
  std::vector<std::vector<int>> inputs;
  std::vector<int> owners, ends;
  for (const size_t i : calls.order) {
    const KerasCall& call = calls.calls[i];
    const int number = static_cast<int>(inputs.size());
    std::vector<int>& of_call = inputs.emplace_back();
    for (const int place : KerasInputOrder(static_cast<int>(call.inputs.size()), call.keyword_inputs)) {
      of_call.push_back(numbers.at(KerasCallOf(call.inputs[static_cast<size_t>(place)])));
    }
    for (const KerasMask& mask : call.masks) of_call.push_back(numbers.at(KerasCallOf(mask.tensor)));
    numbers.emplace(calls.names[i], number);
    owners.push_back(first_of.emplace(calls.entries[i], number).first->second);
  }
  for (const std::string& output : outputs) {
    const auto found = numbers.find(KerasCallOf(output));
    if (found == numbers.end()) return;  // rejected later
    ends.push_back(found->second);
  }
  KerasContainer container(path);
  for (const int number : KerasLayerOrder(inputs, owners, ends)) {
    Entry& entry = entries[calls.entries[calls.order[static_cast<size_t>(number)]]];
    if (!IsKerasOperation(entry.type, entry.module)) entry.path = PathOf(entry, container);
  }
}

absl::Status KerasConverter::AppendInputs(const std::vector<Entry>& entries, const Names& input_names,
                                          std::map<std::string, std::string>* names) {
  for (const std::string& name : input_names) {
    const auto entry = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
    if (entry == entries.end() || entry->type != "InputLayer") {
      return Bad("config.input_layers: \"", ShownTensor(name), "\" is not an InputLayer of the model");
    }
    CAIRN_ASSIGN_OR_RETURN(const Names made, Append(*entry, KerasCall(), 0));
    (*names)[name] = made[0];
  }
  if (input_names.size() > 1) head_used_ = true;  // the data does not say to which input an augmentation would apply
  return absl::OkStatus();
}

// Records the masks of a call. Its inputs have the names of the converted layers.
absl::Status KerasConverter::NoteMasks(const Entry& entry, const KerasCall& call,
                                       const std::map<std::string, std::string>& names, KerasMasks* masks) {
  for (const KerasMask& mask : call.masks) {
    const std::optional<KerasMaskOrigin> origin = masks->OriginOf(mask.tensor);
    if (!origin.has_value()) {
      return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type), "): it is called with a tensor as ",
                 mask.argument, ", which is not the mask that Keras makes of one Embedding or Masking layer; leave it ",
                 "out, or mask by one of those");
    }
    NamedMask& named =
        masks_.emplace_back(NamedMask{entry.name, entry.type, mask.argument, call.inputs[mask.input], {}});
    for (const std::string& maker : origin->makers) {
      if (const auto made = names.find(maker); made != names.end()) named.makers.insert(made->second);
    }
  }
  return absl::OkStatus();
}

// A nested model has a call of its own, which Keras 2 counts everywhere, and Keras 3 only for a Functional in
// output_layers.
void KerasConverter::FindFirstCalls(const Json& config, const std::vector<Entry>& entries, KerasFirstCalls* in_nodes,
                                    KerasFirstCalls* in_outputs) {
  std::map<std::string, CallNumbers> of_nodes;
  for (const Entry& entry : entries) {
    if (IsKerasModel(entry.type)) of_nodes.emplace(entry.name, CallNumbers());
  }
  std::map<std::string, CallNumbers> of_outputs = of_nodes;
  for (const Entry& entry : entries) {
    if (entry.json->contains("inbound_nodes")) FindCalls((*entry.json)["inbound_nodes"], &of_nodes);
  }
  if (config.contains("output_layers")) FindCalls(config["output_layers"], &of_outputs);
  for (const Entry& entry : entries) {
    const auto found = of_nodes.find(entry.name);
    if (found == of_nodes.end() || !entry.json->contains("inbound_nodes")) continue;
    const Json& nodes = (*entry.json)["inbound_nodes"];
    const int calls = static_cast<int>(nodes.size());
    const CallNumbers& in_output = of_outputs.at(entry.name);
    const bool keras3 = nodes.is_array() && !nodes.empty() && nodes[0].is_object();
    const bool counted = found->second.largest == calls;
    const bool counted_in_outputs =
        keras3 && entry.type == "Functional" ? in_output.smallest > 0 : in_output.largest == calls;
    if (counted) (*in_nodes)[entry.name] = 1;
    if (counted || counted_in_outputs) (*in_outputs)[entry.name] = 1;
    if (counted_in_outputs && !keras3) (*in_nodes)[entry.name] = 1;
  }
}

absl::StatusOr<KerasConverter::Names> KerasConverter::AppendStates(const Entry& entry, const KerasCall& call,
                                                                   const KerasStatePlan& plan) {
  const v1::Layer layer = *result_.model.layers().rbegin();
  if (plan.needs_no_mask) unmasked_.push_back(layer.name());
  // Defaults, as of the layer behind a Bidirectional's, are those of a checked layer.
  Node node;
  node.kind = FindLayerType(layer.kind_case())->kind;
  node.name = layer.name();
  node.layer = layer;
  std::vector<Shape> shapes;
  for (const std::string& input : layer.inputs()) {
    CAIRN_ASSIGN_OR_RETURN(Shape shape, ShapeOf(entry, input));
    shapes.push_back(std::move(shape));
  }
  std::vector<Variable> variables;
  const absl::Status inferred = InferLayer(shapes, &node, &variables);
  if (!inferred.ok()) return Annotate(inferred, absl::StrCat("layer \"", ShownText(entry.name), "\""));
  Names made;
  for (const int output : call.outputs) {
    std::optional<std::vector<v1::Layer>> parts = KerasStateLayers(plan, node.layer, layer.name(), output);
    if (!parts.has_value()) {
      return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type), "): it has no output ", output);
    }
    std::string last = layer.name();
    Names before;
    for (v1::Layer& part : *parts) {
      part.set_name(NameOfCall(entry.name, "part"));
      if (part.inputs().empty()) {
        for (const std::string& input : before) part.add_inputs(input);
      }
      last = part.name();
      before.push_back(last);
      PushAt(std::move(part), "");
    }
    made.push_back(last);
  }
  return made;
}

// names: by tensor, the layer whose output it is.
absl::StatusOr<std::string> KerasConverter::MadeOf(const Entry& user, const std::string& tensor,
                                                   const std::map<std::string, std::string>& names) {
  if (const auto made = names.find(tensor); made != names.end()) return made->second;
  if (names.contains(KerasCallOf(tensor))) {
    return Bad("layer \"", ShownText(user.name), "\" (", ShownText(user.type), "): it takes a second output of \"",
               ShownTensor(KerasCallOf(tensor)), "\"; a layer has one output");
  }
  return Bad("layer \"", ShownText(user.name), "\" (", ShownText(user.type), "): its input \"", ShownTensor(tensor),
             "\" is a mask, which a layer takes as mask=... alone");
}

bool KerasConverter::HasSeveralOutputs(const Entry& entry) {
  if (IsKerasOperation(entry.type, entry.module)) return IsKerasSplit(entry.type, *entry.config);
  return HasKerasStates(entry.type, *entry.config);
}

namespace {

// Which outputs the model takes of each of its calls.
struct TakenOutputs {
  std::map<std::string, std::set<int>> of_calls;  // by the call's name
  std::set<size_t> with_states;                   // entries of which an output other than the first is taken
};
template <typename Calls>
TakenOutputs OutputsTaken(const Calls& calls, const std::vector<std::string>& output_names) {
  TakenOutputs taken;
  const auto take = [&](const std::string& tensor) {
    taken.of_calls[KerasCallOf(tensor)].insert(KerasOutputOf(tensor));
  };
  for (const KerasCall& call : calls.calls) std::for_each(call.inputs.begin(), call.inputs.end(), take);
  std::for_each(output_names.begin(), output_names.end(), take);
  for (size_t i = 0; i < calls.names.size(); ++i) {
    const auto found = taken.of_calls.find(calls.names[i]);
    if (found != taken.of_calls.end() && *found->second.rbegin() > 0) taken.with_states.insert(calls.entries[i]);
  }
  return taken;
}

// The layers that make the model's outputs.
absl::StatusOr<std::vector<std::string>> LayersOfOutputs(const std::vector<std::string>& output_names,
                                                         const std::map<std::string, std::string>& names) {
  std::vector<std::string> outputs;
  for (const std::string& name : output_names) {
    const auto output = names.find(name);
    if (output == names.end()) {
      return Bad("config.output_layers: \"", ShownTensor(name), "\" is not a layer of the model");
    }
    outputs.push_back(output->second);
  }
  return outputs;
}

}  // namespace

absl::StatusOr<KerasConverter::Names> KerasConverter::ConvertFunctional(const Json& config, std::vector<Entry>& entries,
                                                                        const std::string& path,
                                                                        const std::optional<Names>& inputs,
                                                                        int nesting) {
  KerasFirstCalls firsts, of_outputs;
  FindFirstCalls(config, entries, &firsts, &of_outputs);
  CAIRN_ASSIGN_OR_RETURN(const Names input_names, Tensors(config, "input_layers", firsts));
  CAIRN_ASSIGN_OR_RETURN(const Names output_names, Tensors(config, "output_layers", of_outputs));
  CAIRN_ASSIGN_OR_RETURN(const Calls calls, ReadCalls(entries, firsts));
  NameContainers(calls, output_names, path, entries);
  std::map<std::string, std::string> names;  // the layer whose output represents that of a layer without an equivalent
  if (!inputs.has_value()) {
    CAIRN_RETURN_IF_ERROR(AppendInputs(entries, input_names, &names));
  } else if (inputs->size() != input_names.size()) {
    return Bad("config.input_layers: the model has ", input_names.size(), " inputs, but it is called with ",
               inputs->size());
  }
  for (size_t i = 0; inputs.has_value() && i < inputs->size(); ++i) names[input_names[i]] = (*inputs)[i];
  KerasMasks masks(config);
  const TakenOutputs taken = OutputsTaken(calls, output_names);
  std::vector<size_t> numbers;  // of each call among those of its entry
  std::map<size_t, size_t> counts;
  for (const size_t entry : calls.entries) numbers.push_back(counts[entry]++);
  for (const size_t i : calls.order) {
    Entry entry = entries[calls.entries[i]];
    if (masks.IsMaskOnly(entry.name)) continue;
    if (entry.type == "InputLayer") {
      if (names.contains(entry.name)) continue;
      return Bad("layer \"", ShownText(entry.name), "\": an InputLayer that config.input_layers does not name");
    }
    if (entry.json->contains("inbound_nodes") && IsKerasOperation(entry.type, entry.module)) {
      entry.call = &(*entry.json)["inbound_nodes"][numbers[i]];
    }
    KerasCall call = calls.calls[i];
    if (const auto found = taken.of_calls.find(calls.names[i]); found != taken.of_calls.end()) {
      call.outputs.assign(found->second.begin(), found->second.end());
    }
    call.takes_states = taken.with_states.contains(calls.entries[i]);
    for (std::string& name : call.inputs) {
      CAIRN_RETURN_IF_ERROR(CheckNotBeforeAugmentation(entry, name));
      CAIRN_ASSIGN_OR_RETURN(name, MadeOf(entry, name, names));
    }
    CAIRN_RETURN_IF_ERROR(NoteMasks(entry, call, names, &masks));
    CAIRN_ASSIGN_OR_RETURN(const Names made, Append(entry, call, nesting));
    const bool several = HasSeveralOutputs(entry);
    for (size_t k = 0; k < made.size(); ++k) {
      names[KerasTensorName(calls.names[i], 0, several ? call.outputs[k] : static_cast<int>(k))] = made[k];
    }
  }
  CAIRN_ASSIGN_OR_RETURN(Names outputs, LayersOfOutputs(output_names, names));
  if (outputs.size() == 1 && !result_.model.layers().empty() && !inputs.has_value() &&
      outputs[0] != result_.model.layers().rbegin()->name()) {
    return Bad("config.output_layers: \"", ShownTensor(output_names[0]), "\" is the output, but \"",
               ShownText(result_.model.layers().rbegin()->name()),
               "\" takes something of the model too; remove what does not lead to the output");
  }
  return outputs;
}

}  // namespace cairn
