#include "common/model/graph_builder.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/activity.h"
#include "common/model/article.h"
#include "common/model/call_mode.h"
#include "common/model/layer_type.h"
#include "common/model/limits.h"
#include "common/model/masks.h"
#include "common/model/nearest.h"
#include "common/model/submodels.h"
#include "common/model/text_inputs.h"

namespace cairn {
namespace {

// Makes a name that was not checked printable in a message.
std::string Shown(const std::string& name) { return absl::CEscape(name.substr(0, kLayerNameBytesMax)); }

absl::Status LayerError(const std::string& name, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("layer \"", name, "\": ", message));
}

absl::Status PlaceError(int place, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("model.layers[", place, "]: ", message));
}

int64_t AlignUp(int64_t n) { return (n + kSpaceAlignment - 1) / kSpaceAlignment * kSpaceAlignment; }

}  // namespace

absl::StatusOr<Graph> GraphBuilder::Build() {
  if (model_.layers().empty()) {
    return absl::InvalidArgumentError(
        "model.layers: empty; begin with an input layer, such as { input { shape: [28, 28, 1] } }, "
        "or give --model FILE, also to a job that resumes");
  }
  if (model_.layers_size() > kLayersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.layers: ", model_.layers_size(), " layers; at most ", kLayersMax, " are allowed"));
  }
  CAIRN_RETURN_IF_ERROR(CreateNodes());
  CAIRN_RETURN_IF_ERROR(ResolveShares());
  CAIRN_RETURN_IF_ERROR(FreezeOthers());
  for (Node& node : graph_.nodes_) {
    CAIRN_RETURN_IF_ERROR(ConnectInputs(&node));
    CAIRN_RETURN_IF_ERROR(InferNode(&node));
  }
  CAIRN_RETURN_IF_ERROR(NameOutputs());
  CAIRN_RETURN_IF_ERROR(CheckAllUsed());
  CAIRN_RETURN_IF_ERROR(CheckActivityCount(graph_));
  CAIRN_RETURN_IF_ERROR(LayOutVariables());
  graph_.submodels_.assign(model_.submodels().begin(), model_.submodels().end());
  CAIRN_RETURN_IF_ERROR(CheckSubmodels(graph_));
  return std::move(graph_);
}

absl::Status GraphBuilder::CreateNodes() {
  for (const v1::Layer& layer : model_.layers()) {
    const int id = static_cast<int>(graph_.nodes_.size());
    const LayerType* const type = FindLayerType(layer.kind_case());
    const bool shares = type == nullptr && !layer.shares().empty();
    if (type == nullptr && !shares) {
      return PlaceError(
          id, absl::StrCat("layer ", layer.name().empty() ? "" : absl::StrCat("\"", Shown(layer.name()), "\" "),
                           "has no type; set one, such as conv2d { ... } or dense { ... }"));
    }
    if (id == 0 && (shares || type->kind != LayerKind::kInput)) {
      return PlaceError(0, absl::StrCat("the first layer is ", shares ? "no input" : WithArticle(type->name),
                                        "; put an input layer before it, such as { input { shape: [28, 28, 1] } }"));
    }
    Node& node = graph_.nodes_.emplace_back();
    node.id = id;
    if (!shares) node.kind = type->kind;
    node.layer = layer;
    node.trainable = !layer.has_trainable() || layer.trainable();
    if (!layer.name().empty()) CAIRN_RETURN_IF_ERROR(CheckName(id, layer.name()));
    node.name = layer.name();
  }
  NameTheNameless();
  return absl::OkStatus();
}

absl::Status GraphBuilder::CheckName(int id, const std::string& name) {
  // Names are keys in files and appear in messages and tables, so they must be text.
  const bool text = IsUtf8(name) && std::none_of(name.begin(), name.end(), absl::ascii_iscntrl);
  if (!text || name.size() > kLayerNameBytesMax) {
    return PlaceError(id, absl::StrCat("name has more than ", kLayerNameBytesMax,
                                       " bytes, or a line break or another control character, or is not UTF-8; use "
                                       "letters, digits, '_', '-' and '.'"));
  }
  for (const char* argument : kAttentionArguments) {
    if (!absl::StartsWith(name, absl::StrCat(argument, "="))) continue;
    return PlaceError(id, absl::StrCat("name \"", name, "\" begins with \"", argument,
                                       "=\", which names an input of a multi_head_attention; use another"));
  }
  const auto [other, inserted] = ids_.emplace(name, id);
  if (inserted) return absl::OkStatus();
  return PlaceError(id, absl::StrCat("layer \"", name, "\" has the name of model.layers[", other->second,
                                     "]; give each layer a name of its own or none"));
}

void GraphBuilder::NameTheNameless() {
  std::map<LayerKind, int> counters;
  for (Node& node : graph_.nodes_) {
    if (node.layer.kind_case() == v1::Layer::KIND_NOT_SET) continue;
    while (node.name.empty()) {
      const int count = counters[node.kind]++;
      std::string name = LayerTypeName(node.kind);
      if (count > 0) absl::StrAppend(&name, "_", count);
      // Otherwise the user gave the name to another layer.
      if (ids_.emplace(name, node.id).second) node.name = std::move(name);
    }
    node.layer.set_name(node.name);
  }
}

// Layers without a kind get that of the layer whose variables they share; then they can be named, too.
absl::Status GraphBuilder::ResolveShares() {
  for (Node& node : graph_.nodes_) {
    if (!node.layer.shares().empty()) CAIRN_RETURN_IF_ERROR(ResolveShare(&node));
  }
  NameTheNameless();
  for (Node& node : graph_.nodes_) {
    if (node.shares < 0) continue;
    Node& owner = graph_.nodes_[node.shares];
    if (node.layer.has_trainable() && node.trainable != owner.trainable) {
      return LayerError(node.name, absl::StrCat("trainable differs from that of \"", owner.name,
                                                "\", whose variables it shares; leave it out"));
    }
    node.trainable = owner.trainable;
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::ResolveShare(Node* node) {
  const std::string shown = node->name.empty() ? absl::StrCat("model.layers[", node->id, "]") : node->name;
  const auto found = ids_.find(node->layer.shares());
  if (found == ids_.end() || found->second >= node->id) {
    return LayerError(shown, absl::StrCat("shares: \"", Shown(node->layer.shares()),
                                          "\" is not a layer before it; name one, with its own name"));
  }
  const Node& named = graph_.nodes_[found->second];
  if (named.kind == LayerKind::kInput) return LayerError(shown, "shares: an input has no variables; leave shares out");
  v1::Layer whole = named.layer;
  const auto keep = [&](auto has, auto clear, auto copy) { has ? copy() : clear(); };
  whole.set_name(node->layer.name());
  *whole.mutable_inputs() = node->layer.inputs();
  whole.set_shares(node->layer.shares());
  keep(
      node->layer.has_trainable(), [&] { whole.clear_trainable(); },
      [&] { whole.set_trainable(node->layer.trainable()); });
  keep(
      node->layer.has_training(), [&] { whole.clear_training(); }, [&] { whole.set_training(node->layer.training()); });
  const bool given = node->layer.kind_case() != v1::Layer::KIND_NOT_SET;
  if (given && whole.SerializeAsString() != node->layer.SerializeAsString()) {
    return LayerError(shown, absl::StrCat("its fields differ from those of \"", named.name,
                                          "\", whose variables it shares; leave its type out"));
  }
  node->layer = std::move(whole);
  node->kind = named.kind;
  node->shares = named.shares >= 0 ? named.shares : named.id;
  return absl::OkStatus();
}

absl::Status GraphBuilder::NameOutputs() {
  for (Node& node : graph_.nodes_) {
    if (node.kind != LayerKind::kInput) continue;
    const int64_t begin = graph_.inputs_.empty() ? 0
                                                 : graph_.nodes_[graph_.inputs_.back()].input_offset +
                                                       NumElements(graph_.nodes_[graph_.inputs_.back()].output);
    node.input_offset = begin;
    graph_.inputs_.push_back(node.id);
  }
  for (const std::string& name : model_.outputs()) {
    const auto found = ids_.find(name);
    if (found == ids_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.outputs: \"", Shown(name), "\" is not a layer of the model; name layers of it"));
    }
    if (std::count(graph_.outputs_.begin(), graph_.outputs_.end(), found->second) > 0) {
      return absl::InvalidArgumentError(absl::StrCat("model.outputs: \"", name, "\" twice; name it once"));
    }
    graph_.outputs_.push_back(found->second);
  }
  if (graph_.outputs_.empty()) graph_.outputs_ = {graph_.nodes_.back().id};
  for (const int id : graph_.outputs_) {
    const Node& node = graph_.nodes_[id];
    if (!OfTexts(node) || node.kind != LayerKind::kInput) continue;
    return LayerError(node.name, "its texts are an output of the model; put a string_lookup or the like behind it");
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::FreezeOthers() {
  if (model_.trainable_layers().empty()) return absl::OkStatus();
  std::vector<bool> named(graph_.nodes_.size(), false);
  for (const std::string& name : model_.trainable_layers()) {
    const auto found = ids_.find(name);
    if (found == ids_.end()) {
      std::vector<std::string> names;
      for (const Node& node : graph_.nodes_) names.push_back(node.name);
      const std::string nearest = Nearest(Shown(name), names);
      return absl::InvalidArgumentError(
          absl::StrCat("model.trainable_layers: \"", Shown(name), "\" is not a layer of the model; ",
                       nearest.empty() ? absl::StrCat("the last one is \"", names.back(), "\"")
                                       : absl::StrCat("did you mean \"", nearest, "\"?")));
    }
    if (!graph_.nodes_[found->second].trainable) {
      return LayerError(name, "trainable: false, but model.trainable_layers names it; leave one of the two out");
    }
    named[found->second] = true;
  }
  for (Node& node : graph_.nodes_) {
    if (named[node.shares >= 0 ? node.shares : node.id]) continue;
    node.trainable = false;
    node.layer.set_trainable(false);
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::ConnectInputs(Node* node) {
  v1::Layer* layer = &node->layer;
  if (node->kind == LayerKind::kInput) {
    if (layer->inputs().empty()) return absl::OkStatus();
    return LayerError(node->name, "an input layer takes no inputs; leave `inputs` out");
  }
  if (layer->inputs().empty()) layer->add_inputs(graph_.nodes_[node->id - 1].name);
  const LayerType& type = TypeOf(node->kind);
  const int given = layer->inputs_size();
  if (TakesQuery(node->kind) && (given < type.inputs_min || given > type.inputs_max)) {
    return LayerError(node->name,
                      absl::StrCat("has ", given, given == 1 ? " input" : " inputs", ", but ", WithArticle(type.name),
                                   " takes a query, a value and, if it is not the value, a key; for self-attention "
                                   "name one layer twice, as inputs: "
                                   "[\"x\", \"x\"]"));
  }
  if (given > type.inputs_max) {
    return LayerError(node->name, absl::StrCat("has ", given, " inputs, but ", WithArticle(type.name), " takes ",
                                               type.inputs_max == 1 ? "one; join them by add or concatenate"
                                                                    : absl::StrCat(type.inputs_max)));
  }
  if (given < type.inputs_min) {
    return LayerError(node->name,
                      absl::StrCat(WithArticle(type.name), " joins two", type.inputs_max > 2 ? " or more" : "",
                                   " layers; name them, as inputs: [\"conv2d\", \"conv2d_1\"]"));
  }
  std::vector<std::string> names(layer->inputs().begin(), layer->inputs().end());
  if (TakesQuery(node->kind)) {
    absl::StatusOr<AttentionInputs> inputs = ReadAttentionInputs(*layer);
    if (!inputs.ok()) return LayerError(node->name, inputs.status().message());
    names = std::move(inputs->layers);
  }
  for (const std::string& name : names) {
    CAIRN_ASSIGN_OR_RETURN(const int input, FindInput(*node, name));
    node->inputs.push_back(input);
  }
  return absl::OkStatus();
}

absl::StatusOr<int> GraphBuilder::FindInput(const Node& node, const std::string& name) const {
  const auto found = ids_.find(name);
  if (found != ids_.end()) {
    if (found->second < node.id) return found->second;
    if (found->second == node.id) return LayerError(node.name, "names itself as its input; name an earlier layer");
    return LayerError(node.name, absl::StrCat("its input \"", name, "\" comes later in the list; move \"", name,
                                              "\" before this layer"));
  }
  const std::string shown = Shown(name);
  std::vector<std::string> names;
  for (int id = 0; id < node.id; ++id) names.push_back(graph_.nodes_[id].name);
  const std::string nearest = Nearest(shown, names);
  const std::string hint = nearest.empty() ? absl::StrCat("the layer before this one is \"", names.back(), "\"")
                                           : absl::StrCat("did you mean \"", nearest, "\"?");
  return LayerError(node.name, absl::StrCat("its input \"", shown, "\" is not a layer of the model; ", hint));
}

absl::Status GraphBuilder::InferNode(Node* node) {
  if (node->layer.training()) {
    return LayerError(
        node->name,
        "training: true would compute as in training when it is evaluated, too; leave it out, or set false");
  }
  std::vector<Shape> inputs;
  for (int input : node->inputs) inputs.push_back(graph_.nodes_[input].output);
  if (TakesTexts(graph_.nodes_, *node)) node->input_offset = kTakesTexts;
  if (absl::Status status = CheckTexts(graph_.nodes_, *node); !status.ok()) {
    return LayerError(node->name, status.message());
  }
  std::vector<Variable> own;
  if (absl::Status status = InferLayer(inputs, node, &own); !status.ok()) {
    return LayerError(node->name, status.message());
  }
  const absl::StatusOr<int> mask = OutputMask(graph_.nodes_, *node);
  if (!mask.ok()) return LayerError(node->name, mask.status().message());
  node->mask = *mask;
  if (node->shares >= 0) return TakeVariablesOf(graph_.nodes_[node->shares], own, node);
  for (Variable& variable : own) {
    variable.node = node->id;
    VariableKind& kind = variable.kind;
    if (!node->trainable || (InfersAlways(*node) && kind == VariableKind::kMovingAverage)) kind = VariableKind::kFrozen;
    node->variables.push_back(static_cast<int>(graph_.variables_.size()));
    graph_.variables_.push_back(std::move(variable));
  }
  return absl::OkStatus();
}

// own: the variables that it would have without sharing.
absl::Status GraphBuilder::TakeVariablesOf(const Node& owner, const std::vector<Variable>& own, Node* node) const {
  if (node->kind == LayerKind::kSpectralNormalization && !(InfersAlways(*node) && InfersAlways(owner))) {
    return LayerError(node->name,
                      absl::StrCat("shares \"", owner.name, "\", whose kernel two calls would divide twice ",
                                   "a step; call it once, or with training: false in all calls"));
  }
  for (size_t i = 0; i < own.size(); ++i) {
    const Variable& theirs = graph_.variables_[owner.variables[i]];
    if (own[i].shape != theirs.shape) {
      return LayerError(node->name, absl::StrCat("shares \"", theirs.name, "\" ", ToString(theirs.shape),
                                                 ", but for its own input that would be ", ToString(own[i].shape),
                                                 "; give both calls inputs of one shape"));
    }
    const bool moves = theirs.kind == VariableKind::kMovingAverage || InfersAlways(*node) != InfersAlways(owner);
    if (own[i].kind == VariableKind::kMovingAverage && owner.trainable && moves) {
      return LayerError(node->name,
                        absl::StrCat("shares \"", theirs.name,
                                     "\", a moving average, which two calls would update twice a step; freeze "
                                     "the layer, call it with training: false, or give each call one of its "
                                     "own"));
    }
  }
  node->variables = owner.variables;
  return absl::OkStatus();
}

absl::Status GraphBuilder::LayOutVariables() {
  int64_t offset = 0;
  std::map<absl::string_view, int> names;
  for (Variable& variable : graph_.variables_) {
    variable.offset = offset;
    const auto [other, first] = names.emplace(variable.name, variable.node);
    if (!first) {
      return LayerError(graph_.nodes_[variable.node].name,
                        absl::StrCat("its variable \"", variable.name, "\" has the name of one of layer \"",
                                     graph_.nodes_[other->second].name, "\"; give one of the two another name"));
    }
    offset += AlignUp(variable.size);  // each is at most kParametersMax: no overflow before the check
    if (offset > kParametersMax) {
      return absl::InvalidArgumentError(absl::StrCat("model: more than ", kParametersMax, " parameters at layer \"",
                                                     graph_.nodes_[variable.node].name, "\"; make it smaller"));
    }
  }
  graph_.space_size_ = offset;
  return absl::OkStatus();
}

absl::Status GraphBuilder::CheckAllUsed() const {
  std::vector<bool> used(graph_.nodes_.size(), false);
  std::string names;
  for (const int output : graph_.outputs_) {
    used[output] = true;
    absl::StrAppend(&names, names.empty() ? "\"" : ", \"", graph_.nodes_[output].name, "\"");
  }
  for (size_t id = graph_.nodes_.size(); id-- > 0;) {
    if (!used[id]) continue;
    for (int input : graph_.nodes_[id].inputs) used[input] = true;
  }
  for (const Node& node : graph_.nodes_) {
    if (used[node.id]) continue;
    return LayerError(node.name, absl::StrCat("its output does not reach the model's output ", names,
                                              "; use it as an input or remove it"));
  }
  return absl::OkStatus();
}

}  // namespace cairn
