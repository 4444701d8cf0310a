#include "common/formats/keras_model.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/formats/keras_call.h"
#include "common/formats/keras_config.h"
#include "common/formats/keras_layers.h"
#include "common/model/graph.h"

namespace cairn {
namespace {

constexpr int kNestingMax = 8;  // models in models

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

std::string TextOf(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
}

bool IsModel(const std::string& type) { return type == "Sequential" || type == "Functional" || type == "Model"; }

// A layer's entry in the list of its model.
struct Entry {
  const Json* json = nullptr;
  std::string name, type;
  const Json* config = nullptr;
  std::string path;
};

absl::Status CheckIsKeras(const Entry& entry) {
  const std::string module = TextOf(*entry.json, "module"), registered = TextOf(*entry.json, "registered_name");
  if (absl::StartsWith(module, "keras.src.ops") || absl::StartsWith(module, "keras.ops")) {
    return Bad("layer \"", ShownText(entry.name), "\": ", ShownText(entry.type),
               " is an operation on tensors (as x + y), no layer; use a layer, such as keras.layers.Add");
  }
  const bool custom = (!module.empty() && !absl::StartsWith(module, "keras")) || absl::StrContains(registered, '>');
  if (!custom) return absl::OkStatus();
  return Bad("layer \"", ShownText(entry.name), "\": ", ShownText(registered.empty() ? entry.type : registered),
             " is a class of your own; use layers of Keras alone");
}

class Converter {
 public:
  absl::StatusOr<KerasModel> Convert(const Json& root) {
    const std::string type = TextOf(root, "class_name");
    if (!root.is_object() || type.empty() || !root.contains("config")) {
      return Bad("class_name or config is missing; give what model.to_json() returned");
    }
    if (!IsModel(type)) {
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
    if (nesting > kNestingMax) return Bad("models inside models, more than ", kNestingMax, " deep");
    const Json& config = model["config"];
    const Json* list = config.is_array() ? &config : nullptr;  // the oldest Sequential
    if (config.is_object() && config.contains("layers")) list = &config["layers"];
    if (list == nullptr || !list->is_array() || list->empty()) return Bad("config.layers: missing or empty");
    if (list->size() > static_cast<size_t>(kLayersMax)) return Bad("config.layers: more than ", kLayersMax, " layers");
    const bool sequential = TextOf(model, "class_name") == "Sequential";
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Entry> entries, ReadEntries(*list, path, sequential));
    const bool frozen = config.is_object() && config.value("trainable", Json(true)) == false;
    frozen_ += frozen;  // the layers of a frozen model are frozen, whatever they say
    absl::StatusOr<std::string> last = sequential ? ConvertSequential(model, entries, input, nesting)
                                                  : ConvertFunctional(config, entries, input, nesting);
    frozen_ -= frozen;
    return last;
  }

  static absl::StatusOr<std::vector<Entry>> ReadEntries(const Json& list, const std::string& path, bool sequential) {
    std::vector<Entry> entries;
    std::map<std::string, int> used;  // Keras' containers: named by class, counted
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
      CAIRN_RETURN_IF_ERROR(CheckIsKeras(entry));
      if (!(sequential && entry.type == "InputLayer")) {
        const std::string snake = KerasSnakeCase(entry.type);
        const int count = used[snake]++;
        entry.path = absl::StrCat(path.empty() ? "" : path + "/", "layers/", snake, count == 0 ? "" : absl::StrCat("_", count));
      }
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  absl::StatusOr<std::string> ConvertSequential(const Json& model, const std::vector<Entry>& entries,
                                                const std::optional<std::string>& input, int nesting) {
    std::string current = input.value_or("");
    for (const Entry& entry : entries) {
      if (entry.type == "InputLayer") {
        if (input.has_value()) continue;
        if (!current.empty()) return Bad("layer \"", ShownText(entry.name), "\": a second InputLayer; a model has one input");
      } else if (current.empty()) {
        CAIRN_RETURN_IF_ERROR(AppendImpliedInput(model, entry));
        current = head_;
      }
      KerasCall call;
      if (entry.type != "InputLayer") call.inputs = {current};
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
    for (int depth = 0; depth < kNestingMax && IsModel(TextOf(*nested, "class_name")); ++depth) {
      const Json& layers = (*nested)["config"].is_object() && (*nested)["config"].contains("layers") ? (*nested)["config"]["layers"] : *nested;
      if (!layers.is_array() || layers.empty() || !layers[0].is_object() || !layers[0].contains("config")) break;
      nested = &layers[0];
      config = &(*nested)["config"];
    }
    look(*config, "batch_input_shape");
    look(*config, "batch_shape");
    look(model["config"], "build_input_shape");
    if (model.contains("build_config")) look(model["build_config"], "input_shape");
    if (shape == nullptr) {
      return Bad("layer \"", ShownText(first.name), "\": the model has no input shape; begin it with keras.Input(shape=...)");
    }
    const absl::StatusOr<v1::InputLayer> input = ReadBatchShape(*shape);
    if (!input.ok()) return Annotate(input.status(), absl::StrCat("layer \"", ShownText(first.name), "\""));
    v1::Layer layer;
    layer.set_name("input_layer");
    *layer.mutable_input() = *input;
    Push(std::move(layer), "");
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ConvertFunctional(const Json& config, const std::vector<Entry>& entries,
                                                const std::optional<std::string>& input, int nesting) {
    CAIRN_ASSIGN_OR_RETURN(const std::string input_name, OnlyTensor(config, "input_layers", "input"));
    CAIRN_ASSIGN_OR_RETURN(const std::string output_name, OnlyTensor(config, "output_layers", "output"));
    std::vector<KerasCall> calls;
    for (const Entry& entry : entries) {
      const Json none = Json::array();
      const Json& nodes = entry.json->contains("inbound_nodes") ? (*entry.json)["inbound_nodes"] : none;
      CAIRN_ASSIGN_OR_RETURN(KerasCall call, ReadKerasCall(entry.name, entry.type, nodes));
      calls.push_back(std::move(call));
    }
    CAIRN_ASSIGN_OR_RETURN(const std::vector<size_t> order, TopologicalOrder(entries, calls));
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
    if (output == names.end()) return Bad("config.output_layers: \"", ShownText(output_name), "\" is no layer of the model");
    if (!result_.model.layers().empty() && output->second != result_.model.layers().rbegin()->name() && !input.has_value()) {
      return Bad("config.output_layers: \"", ShownText(output_name), "\" is the output, but \"",
                 ShownText(result_.model.layers().rbegin()->name()), "\" takes something of the model too; remove what does not lead to the output");
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
      return Bad("config.", key, ": the model has ", list->size(), " ", what, "s; Cairn trains models with one input and one output");
    }
    return Bad("config.", key, ": ", ShownJson(*list), " names no layer");
  }

  // Keras lists layers so already; a file may not.
  static absl::StatusOr<std::vector<size_t>> TopologicalOrder(const std::vector<Entry>& entries, const std::vector<KerasCall>& calls) {
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (!places.emplace(entries[i].name, i).second) return Bad("layer \"", ShownText(entries[i].name), "\": two layers have this name");
    }
    std::vector<size_t> open(entries.size());
    std::vector<std::vector<size_t>> users(entries.size());
    std::set<size_t> ready;
    for (size_t i = 0; i < entries.size(); ++i) {
      open[i] = calls[i].inputs.size();
      for (const std::string& input : calls[i].inputs) {
        const auto it = places.find(input);
        if (it == places.end()) return Bad("layer \"", ShownText(entries[i].name), "\": its input \"", ShownText(input), "\" is no layer of the model");
        users[it->second].push_back(i);
      }
      if (open[i] == 0) ready.insert(i);
    }
    std::vector<size_t> order;
    while (!ready.empty()) {
      const size_t next = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(next);
      for (const size_t user : users[next]) {
        if (--open[user] == 0) ready.insert(user);
      }
    }
    if (order.size() == entries.size()) return order;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (open[i] > 0) return Bad("layer \"", ShownText(entries[i].name), "\": its inputs lead back to itself");
    }
    return Bad("config.layers: the layers form a circle");
  }

  // Returns the name of the layer whose output stands for this one's.
  absl::StatusOr<std::string> Append(const Entry& entry, const KerasCall& call, int nesting) {
    if (IsModel(entry.type)) {
      if (call.inputs.size() != 1) return Bad("layer \"", ShownText(entry.name), "\": a model inside a model takes one input");
      const std::string before = call.inputs[0];
      CAIRN_ASSIGN_OR_RETURN(const std::string last, ConvertModel(*entry.json, entry.path, before, nesting + 1));
      if (last == head_) head_keras_ = entry.name;
      return last;
    }
    CAIRN_ASSIGN_OR_RETURN(KerasLayer read, ReadKerasLayer(entry.type, entry.name, *entry.config));
    if (auto* augmentation = std::get_if<v1::Augmentation>(&read.value)) {
      CAIRN_RETURN_IF_ERROR(CheckHead(entry, call, read.moves_pixels_only));
      result_.augmentation.push_back(std::move(*augmentation));
      head_keras_ = entry.name;
      return head_;
    }
    v1::Layer& layer = std::get<v1::Layer>(read.value);
    layer.mutable_inputs()->Assign(call.inputs.begin(), call.inputs.end());
    if (call.causal) layer.mutable_multi_head_attention()->set_use_causal_mask(true);
    if (read.axis >= 0) axes_.push_back({static_cast<int>(result_.model.layers_size()), read.axis, entry.type});
    const bool extends_head = layer.has_rescaling() && call.inputs == std::vector<std::string>{head_};
    if (extends_head) rescaled_ = true;
    if (!extends_head && !layer.has_input() && std::count(call.inputs.begin(), call.inputs.end(), head_) > 0) head_used_ = true;
    const std::string name = layer.name();
    if (extends_head || layer.has_input()) head_ = head_keras_ = name;
    if (layer.has_input()) layer.clear_inputs();
    if (frozen_ > 0) layer.set_trainable(false);
    PushAt(std::move(layer), entry.path);
    return name;
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
      return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type),
                 "): an augmentation is supported right after the input alone; move it there, or use data.augmentation");
    }
    if (rescaled_ && !moves_pixels_only) {
      return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type),
                 "): it stands behind a Rescaling, but augmentation works on the data as it is; move it before the Rescaling");
    }
    return absl::OkStatus();
  }

  // A layer that takes what was there before an augmentation sees something else than in Keras.
  absl::Status CheckNotBeforeAugmentation(const Entry& entry, const std::string& input) const {
    if (result_.augmentation.empty() || input != head_ || head_keras_ == head_) return absl::OkStatus();
    return Bad("layer \"", ShownText(entry.name), "\": it takes \"", ShownText(input), "\" as it is before \"", ShownText(head_keras_),
               "\"; let every layer take the augmented one");
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
  bool rescaled_ = false;
  bool head_used_ = false;  // by a layer that is not part of the head
};

}  // namespace

absl::StatusOr<KerasModel> ReadKerasModel(absl::string_view text) {
  CAIRN_ASSIGN_OR_RETURN(const Json root, ParseBoundedJson(text, kKerasJsonBytesMax));
  return Converter().Convert(root);
}

std::string KerasSnakeCase(absl::string_view class_name) {
  std::string words;  // 'WordWord' to 'Word_Word'
  const auto upper = [&](size_t i) { return i < class_name.size() && absl::ascii_isupper(class_name[i]); };
  const auto lower = [&](size_t i) { return i < class_name.size() && absl::ascii_islower(class_name[i]); };
  for (size_t i = 0; i < class_name.size(); ++i) {
    if (!absl::ascii_isalnum(class_name[i]) && class_name[i] != '_') continue;
    words += class_name[i];
    if (!upper(i + 1) || !lower(i + 2)) continue;
    words += '_';
    words += class_name[++i];
    while (lower(i + 1)) words += class_name[++i];
  }
  std::string snake;  // 'rE' to 'r_e'
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && absl::ascii_islower(words[i - 1]) && absl::ascii_isupper(words[i])) snake += '_';
    snake += absl::ascii_tolower(words[i]);
  }
  return snake;
}

}  // namespace cairn
