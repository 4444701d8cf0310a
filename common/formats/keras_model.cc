#include "common/formats/keras_model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/formats/keras_call.h"
#include "common/formats/keras_dialect.h"
#include "common/formats/keras_layers.h"
#include "common/formats/keras_order.h"
#include "common/formats/limits.h"
#include "common/model/call_mode.h"
#include "common/model/graph.h"
#include "common/model/keras/keras_shape.h"

namespace cairn {
namespace {

std::string TextOf(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

// A layer's entry in the list of its model.
struct Entry {
  const Json* json = nullptr;
  std::string name, type;
  const Json* config = nullptr;
  std::string path;
};

class Converter {
 public:
  absl::StatusOr<KerasModel> Convert(const Json& root) {
    const std::string type = TextOf(root, "class_name");
    if (!root.is_object() || type.empty() || !root.contains("config")) {
      return Bad("class_name or config is missing; give what model.to_json() returned");
    }
    if (!IsKerasModel(type)) {
      return Bad("class_name: \"", ShownText(type),
                 "\" is neither Sequential nor Functional; a subclassed model has no description of its layers");
    }
    if (root["config"].is_object()) result_.model.set_name(TextOf(root["config"], "name"));
    CAIRN_RETURN_IF_ERROR(ConvertModel(root, "", std::nullopt, 0).status());
    CAIRN_RETURN_IF_ERROR(CheckAxes());
    return std::move(result_);
  }

 private:
  // Appends the layers of a model that takes `input`; none: of the whole one, which has an input layer of its own.
  // Returns the name of its last layer.
  absl::StatusOr<std::string> ConvertModel(const Json& model, const std::string& path,
                                           const std::optional<std::string>& input, int nesting) {
    if (nesting > kKerasNestingMax) return Bad("models inside models, more than ", kKerasNestingMax, " deep");
    const Json& config = model["config"];
    const Json* list = config.is_array() ? &config : nullptr;  // the oldest Sequential
    if (config.is_object() && config.contains("layers")) list = &config["layers"];
    if (list == nullptr || !list->is_array() || list->empty()) return Bad("config.layers: missing or empty");
    if (list->size() > static_cast<size_t>(kLayersMax)) return Bad("config.layers: more than ", kLayersMax, " layers");
    const bool sequential = TextOf(model, "class_name") == "Sequential";
    CAIRN_ASSIGN_OR_RETURN(std::vector<Entry> entries, ReadEntries(*list));
    const bool frozen = config.is_object() && config.value("trainable", Json(true)) == false;
    frozen_ += frozen;  // the layers of a frozen model are frozen, whatever they say
    absl::StatusOr<std::string> last = sequential ? ConvertSequential(model, entries, path, input, nesting)
                                                  : ConvertFunctional(config, entries, path, input, nesting);
    frozen_ -= frozen;
    return last;
  }

  static absl::StatusOr<std::vector<Entry>> ReadEntries(const Json& list) {
    std::vector<Entry> entries;
    for (const Json& item : list) {
      Entry entry;
      entry.json = &item;
      entry.type = TextOf(item, "class_name");
      if (entry.type.empty() || !item.contains("config")) {
        return Bad("config.layers[", entries.size(), "]: class_name or config is missing");
      }
      entry.config = &item["config"];
      entry.name = TextOf(item, "name");
      if (entry.name.empty()) entry.name = TextOf(*entry.config, "name");
      if (entry.name.empty()) entry.name = absl::StrCat(KerasSnakeCase(entry.type), "_", entries.size());
      CAIRN_RETURN_IF_ERROR(CheckIsKerasLayer(*entry.json, entry.name, entry.type));
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  absl::StatusOr<std::string> ConvertSequential(const Json& model, std::vector<Entry>& entries, const std::string& path,
                                                const std::optional<std::string>& input, int nesting) {
    KerasContainer container(path);
    std::string current = input.value_or("");
    for (Entry& entry : entries) {
      KerasCall call;
      if (entry.type == "InputLayer") {
        if (input.has_value()) continue;
        if (!current.empty()) {
          return Bad("layer \"", ShownText(entry.name), "\": a second InputLayer; a model has one input");
        }
      } else {
        entry.path = container.PathOf(entry.type);
        if (current.empty()) {
          CAIRN_RETURN_IF_ERROR(AppendImpliedInput(model, entry));
          current = head_;
        }
        call.inputs = {current};
      }
      CAIRN_ASSIGN_OR_RETURN(current, Append(entry, call, nesting));
    }
    return current;
  }

  // A Sequential model may say its input's shape in its first layer (Keras 2) or in what it was built with (Keras 3).
  absl::Status AppendImpliedInput(const Json& model, const Entry& first) {
    const Json* shape = nullptr;
    const auto look = [&](const Json& in, const char* key) {
      if (shape == nullptr && in.is_object() && in.contains(key) && in[key].is_array()) shape = &in[key];
    };
    const Json* config = first.config;
    // The first layer of a model that is the first layer.
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

  absl::StatusOr<std::string> ConvertFunctional(const Json& config, std::vector<Entry>& entries,
                                                const std::string& path, const std::optional<std::string>& input,
                                                int nesting) {
    CAIRN_ASSIGN_OR_RETURN(const std::string input_name, OnlyTensor(config, "input_layers", "input"));
    CAIRN_ASSIGN_OR_RETURN(const std::string output_name, OnlyTensor(config, "output_layers", "output"));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<KerasCall> calls, ReadCalls(entries));
    std::vector<std::string> layers;
    for (const Entry& entry : entries) layers.push_back(entry.name);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderCalls(layers, calls));
    NameContainers(calls, order, output_name, path, entries);
    std::map<std::string, std::string> names;  // of a layer's output: another's where the layer itself leaves none
    for (const size_t i : order) {
      const Entry& entry = entries[i];
      if (entry.type == "InputLayer" && entry.name != input_name) {
        return Bad("layer \"", ShownText(entry.name), "\": a second InputLayer; a model has one input");
      }
      if (entry.type == "InputLayer" && input.has_value()) {
        names[entry.name] = *input;
        continue;
      }
      KerasCall call = calls[i];
      for (std::string& name : call.inputs) {
        CAIRN_RETURN_IF_ERROR(CheckNotBeforeAugmentation(entry, name));
        name = names.at(name);
      }
      CAIRN_ASSIGN_OR_RETURN(names[entry.name], Append(entry, call, nesting));
    }
    const auto output = names.find(output_name);
    if (output == names.end())
      return Bad("config.output_layers: \"", ShownText(output_name), "\" is not a layer of the model");
    if (!result_.model.layers().empty() && output->second != result_.model.layers().rbegin()->name() &&
        !input.has_value()) {
      return Bad("config.output_layers: \"", ShownText(output_name), "\" is the output, but \"",
                 ShownText(result_.model.layers().rbegin()->name()),
                 "\" takes something of the model too; remove what does not lead to the output");
    }
    return output->second;
  }

  // The name in [["input_1", 0, 0]] or ["input_1", 0, 0].
  static absl::StatusOr<std::string> OnlyTensor(const Json& config, const char* key, const char* what) {
    if (!config.contains(key)) return Bad("config.", key, ": missing");
    const Json* list = &config[key];
    if (list->is_object() && list->size() == 1) list = &list->begin().value();  // {"name": ["dense", 0, 0]}
    if (list->is_array() && list->size() == 1 && (*list)[0].is_array()) list = &(*list)[0];
    if (list->is_array() && list->size() == 3 && (*list)[0].is_string()) return (*list)[0].get<std::string>();
    if ((list->is_array() || list->is_object()) && list->size() > 1) {
      return Bad("config.", key, ": the model has ", list->size(), " ", what,
                 "s; Cairn trains models with one input and one output");
    }
    return Bad("config.", key, ": ", ShownJson(*list), " names no layer");
  }

  static absl::StatusOr<std::vector<KerasCall>> ReadCalls(const std::vector<Entry>& entries) {
    std::set<std::string> models;
    for (const Entry& entry : entries) {
      if (IsKerasModel(entry.type)) models.insert(entry.name);
    }
    std::vector<KerasCall> calls;
    for (const Entry& entry : entries) {
      const Json none = Json::array();
      const Json& nodes = entry.json->contains("inbound_nodes") ? (*entry.json)["inbound_nodes"] : none;
      CAIRN_ASSIGN_OR_RETURN(KerasCall call, ReadKerasCall(entry.name, entry.type, nodes, models));
      calls.push_back(std::move(call));
    }
    return calls;
  }

  // order: of OrderCalls.
  static void NameContainers(const std::vector<KerasCall>& calls, const std::vector<size_t>& order,
                             const std::string& output, const std::string& path, std::vector<Entry>& entries) {
    std::map<std::string, int> numbers;
    std::vector<std::vector<int>> inputs;
    for (const size_t i : order) {
      const KerasCall& call = calls[i];
      std::vector<int>& of_layer = inputs.emplace_back();
      for (const int place : KerasInputOrder(static_cast<int>(call.inputs.size()), call.keyword_inputs)) {
        of_layer.push_back(numbers.at(call.inputs[static_cast<size_t>(place)]));
      }
      numbers.emplace(entries[i].name, static_cast<int>(numbers.size()));
    }
    const auto last = numbers.find(output);
    if (last == numbers.end()) return;  // refused later
    KerasContainer container(path);
    for (const int number : KerasLayerOrder(inputs, last->second)) {
      Entry& entry = entries[order[static_cast<size_t>(number)]];
      entry.path = container.PathOf(entry.type);
    }
  }

  // Returns the name of the layer whose output stands for this one's.
  absl::StatusOr<std::string> Append(const Entry& entry, const KerasCall& call, int nesting) {
    if (IsKerasModel(entry.type)) {
      if (call.inputs.size() != 1)
        return Bad("layer \"", ShownText(entry.name), "\": a model inside a model takes one input");
      const std::string before = call.inputs[0];
      inference_ += call.inference;  // the layers of a model that is called so are, too
      const absl::StatusOr<std::string> last = ConvertModel(*entry.json, entry.path, before, nesting + 1);
      inference_ -= call.inference;
      if (last.ok() && *last == head_) head_keras_ = entry.name;
      return last;
    }
    CAIRN_ASSIGN_OR_RETURN(KerasLayer read, ReadKerasLayer(entry.type, entry.name, *entry.config));
    const bool inference = inference_ > 0 || call.inference;
    if (const auto* augmentation = std::get_if<v1::Augmentation>(&read.value)) {
      if (inference && !augmentation->has_random_crop()) return call.inputs[0];  // it does nothing
      return Augment(entry, call, *augmentation, read.moves_pixels_only, inference);
    }
    v1::Layer& layer = std::get<v1::Layer>(read.value);
    SetInputs(call, &layer);
    if (call.causal) {
      if (layer.has_attention()) layer.mutable_attention()->set_use_causal_mask(true);
      if (layer.has_additive_attention()) layer.mutable_additive_attention()->set_use_causal_mask(true);
      if (layer.has_multi_head_attention()) layer.mutable_multi_head_attention()->set_use_causal_mask(true);
    }
    if (inference && !layer.has_input()) layer.set_training(false);
    if (read.axis >= 0) axes_.push_back({static_cast<int>(result_.model.layers_size()), read.axis, entry.type});
    const bool extends_head = layer.has_rescaling() && call.inputs == std::vector<std::string>{head_};
    if (extends_head) rescaled_ = true;
    if (!extends_head && !layer.has_input() && std::count(call.inputs.begin(), call.inputs.end(), head_) > 0)
      head_used_ = true;
    const std::string name = layer.name();
    if (extends_head || layer.has_input()) head_ = head_keras_ = name;
    if (layer.has_input()) layer.clear_inputs();
    if (frozen_ > 0) layer.set_trainable(false);
    PushAt(std::move(layer), entry.path);
    return name;
  }

  static void SetInputs(const KerasCall& call, v1::Layer* layer) {
    const size_t positional = call.inputs.size() - static_cast<size_t>(call.keyword_inputs);
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      layer->add_inputs(i < positional ? call.inputs[i] : absl::StrCat(kAttentionArguments[i], "=", call.inputs[i]));
    }
  }

  absl::StatusOr<std::string> Augment(const Entry& entry, const KerasCall& call, const v1::Augmentation& augmentation,
                                      bool moves_pixels_only, bool inference) {
    CAIRN_RETURN_IF_ERROR(CheckHead(entry, call, moves_pixels_only));
    bool changes = true;
    if (augmentation.has_random_crop()) {
      CAIRN_ASSIGN_OR_RETURN(changes, Crop(entry, augmentation.random_crop(), inference));
    }
    if (changes) *result_.data.add_augmentation() = augmentation;
    head_keras_ = entry.name;
    return head_;
  }

  // What a RandomCrop leaves is the model's input from now on; the examples keep their size. False: it leaves all of
  // it.
  absl::StatusOr<bool> Crop(const Entry& entry, const v1::RandomCrop& crop, bool inference) {
    const auto bad = [&](const auto&... what) {
      return Bad("layer \"", ShownText(entry.name), "\" (RandomCrop): ", what...);
    };
    if (inference) return bad("it is called with training=false; leave that out, or crop the data before");
    auto& shape = *result_.model.mutable_layers(0)->mutable_input()->mutable_shape();
    if (shape.size() != 3) return bad("its input is not a picture; give it [height, width, channels]");
    if (crop.height() < 1 || crop.width() < 1 || crop.height() > shape[0] || crop.width() > shape[1]) {
      return bad(crop.height(), " x ", crop.width(), " is not part of its input, ", shape[0], " x ", shape[1],
                 "; give it a height and a width within that");
    }
    if (crop.height() == shape[0] && crop.width() == shape[1]) return false;
    if (result_.data.image_height() > 0) return bad("a second one that makes pictures smaller; leave one of them out");
    result_.data.set_image_height(shape[0]);
    result_.data.set_image_width(shape[1]);
    shape[0] = crop.height();
    shape[1] = crop.width();
    return true;
  }

  void Push(v1::Layer layer, const std::string& path) {
    head_ = head_keras_ = layer.name();
    PushAt(std::move(layer), path);
  }
  void PushAt(v1::Layer layer, const std::string& path) {
    *result_.model.add_layers() = std::move(layer);
    result_.weight_paths.push_back(path);
  }

  absl::Status CheckHead(const Entry& entry, const KerasCall& call, bool moves_pixels_only) const {
    if (head_used_ || call.inputs != std::vector<std::string>{head_}) {
      return Bad(
          "layer \"", ShownText(entry.name), "\" (", ShownText(entry.type),
          "): an augmentation is supported right after the input alone; move it there, or use data.augmentation");
    }
    if (rescaled_ && !moves_pixels_only) {
      return Bad(
          "layer \"", ShownText(entry.name), "\" (", ShownText(entry.type),
          "): it stands behind a Rescaling, but augmentation works on the data as it is; move it before the Rescaling");
    }
    return absl::OkStatus();
  }

  // A layer that takes what was there before an augmentation sees something else than in Keras.
  absl::Status CheckNotBeforeAugmentation(const Entry& entry, const std::string& input) const {
    if (result_.data.augmentation().empty() || input != head_ || head_keras_ == head_) return absl::OkStatus();
    return Bad("layer \"", ShownText(entry.name), "\": it takes \"", ShownText(input), "\" as it is before \"",
               ShownText(head_keras_), "\"; let every layer take the augmented one");
  }

  absl::Status CheckAxes() const {
    if (axes_.empty()) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(result_.model));
    for (const NamedAxis& named : axes_) {
      const Node& node = graph.nodes()[static_cast<size_t>(named.layer)];
      const int last = static_cast<int>(graph.nodes()[static_cast<size_t>(node.inputs[0])].output.size());
      if (named.axis == last) continue;
      return Bad("layer \"", node.name, "\" (", ShownText(named.type), "): axis: ", named.axis,
                 " is not supported; only the last axis is, -1");
    }
    return absl::OkStatus();
  }

  struct NamedAxis {
    int layer, axis;
    std::string type;
  };

  KerasModel result_;
  std::vector<NamedAxis> axes_;
  std::string head_;        // the layer whose output is still the data: the input, or a Rescaling of it
  std::string head_keras_;  // what Keras calls that output: the last augmentation
  int frozen_ = 0;          // models around the layer at hand that are not trained
  int inference_ = 0;       // that are called with training=False
  bool rescaled_ = false;
  bool head_used_ = false;  // by a layer that is not part of the head
};

}  // namespace

absl::StatusOr<KerasModel> ReadKerasModel(absl::string_view text) {
  CAIRN_ASSIGN_OR_RETURN(Json root, ParseBoundedJson(text, kKerasJsonBytesMax));
  if (root.is_string()) {  // json.dump(model.to_json(), file): JSON in JSON
    CAIRN_ASSIGN_OR_RETURN(root, ParseBoundedJson(root.get<std::string>(), kKerasJsonBytesMax));
  }
  return Converter().Convert(WithoutUnaskedArguments(WithOldNamesApart(std::move(root))));
}

}  // namespace cairn
