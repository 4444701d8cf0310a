#include "common/formats/keras_scopes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/formats/keras_class.h"
#include "common/formats/keras_inbound.h"
#include "common/formats/keras_order.h"
#include "common/formats/keras_states.h"
#include "common/model/call_mode.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layer_type.h"

namespace cairn {
namespace {

constexpr int kItself = SubmodelMap::kItself;

const Node& NodeAt(const Graph& graph, int id) { return graph.nodes()[static_cast<size_t>(id)]; }

int OwnerOf(const Node& node) { return node.shares < 0 ? node.id : node.shares; }

bool Has(const std::vector<int>& ascending, int id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

// In the order in which Keras visits them.
std::vector<int> VisitedInputs(const Node& node) {
  const bool attends = TakesQuery(node.kind);
  const int keywords = attends ? ReadAttentionInputs(node.layer)->keywords : 0;
  std::vector<int> inputs;
  for (const int place : KerasInputOrder(static_cast<int>(node.inputs.size()), keywords)) {
    inputs.push_back(node.inputs[static_cast<size_t>(place)]);
  }
  return inputs;
}

// The layer of which the node is an output in Keras, in the same model: its own, or the recurrent layer that gives it
// as one of several.
int GiverOf(const Graph& graph, int id) {
  const Node& node = NodeAt(graph, id);
  return KerasOutputOfSlice(graph, node) < 0 ? id : node.inputs[0];
}

// What a LayerScale of keras.applications becomes.
bool IsLayerScale(const Node& node) {
  const v1::DepthwiseConv2D& conv = node.layer.depthwise_conv2d();
  return node.kind == LayerKind::kDepthwiseConv2D && !conv.use_bias() && conv.depth_multiplier() == 1 &&
         node.window.kernel[0] == 1 && node.window.kernel[1] == 1;
}

}  // namespace

KerasScopes::KerasScopes(const Graph& graph) : graph_(graph), map_(graph) {
  for (int scope = kItself; scope < map_.count(); ++scope) {
    Scope& made = scopes_.emplace_back();
    if (scope != kItself) {
      made.nodes = map_.NodesOf(scope, 0);
      continue;
    }
    for (const Node& node : graph.nodes()) made.nodes.push_back(node.id);
  }
  for (int scope = kItself; scope < map_.count(); ++scope) {
    Scope& made = scopes_[static_cast<size_t>(scope) + 1];
    made.calls = FindCalls(scope);
    made.members = OrderOf(scope);
    made.sequential = (scope == kItself || map_.at(scope).sequential()) && IsChain(scope);
  }
}

std::vector<int> KerasScopes::CallsOf(int node) const {
  const std::vector<int>& nodes = At(map_.OfNode(node)).nodes;
  std::vector<int> calls;
  for (const int id : nodes) {
    if (OwnerOf(NodeAt(graph_, id)) == node) calls.push_back(id);
  }
  return calls;
}

std::vector<int> KerasScopes::CallsOfSubmodel(int submodel) const {
  const std::vector<int>& nodes = At(map_.ParentOf(submodel)).nodes;
  std::vector<int> calls;
  for (int call = 0; call < map_.at(submodel).calls_size(); ++call) {
    const std::vector<int> own = map_.NodesOf(submodel, call);
    if (!own.empty() && Has(nodes, own[0])) calls.push_back(call);
  }
  return calls;
}

std::vector<int> KerasScopes::OutputsOf(int scope) const {
  return scope == kItself ? graph_.outputs() : map_.Outputs(scope, 0);
}

std::string KerasScopes::NameOf(const Member& member, int scope) const {
  if (member.node >= 0) return KerasLayerName(map_.LocalName(NodeAt(graph_, member.node).name, scope));
  if (member.submodel >= 0) return KerasLayerName(map_.LocalName(map_.at(member.submodel).name(), scope));
  const v1::Submodel& submodel = map_.at(scope);
  if (!submodel.inputs().empty()) return KerasLayerName(submodel.inputs(member.input));
  return member.input == 0 ? "input" : absl::StrCat("input_", member.input);
}

std::vector<KerasScopes::Call> KerasScopes::FindCalls(int scope) const {
  std::vector<Call> calls;
  for (int i = 0; scope != kItself && i < map_.at(scope).calls(0).inputs_size(); ++i) {
    calls.push_back({.member = {.input = i}, .place = -1});
  }
  for (const int id : At(scope).nodes) {
    const Node& node = NodeAt(graph_, id);
    if (map_.OfNode(id) == scope && GiverOf(graph_, id) == id) {
      calls.push_back({.member = {.node = OwnerOf(node)}, .place = id, .inputs = VisitedInputs(node)});
    }
  }
  for (int s = scope + 1; s < map_.count(); ++s) {
    if (map_.ParentOf(s) != scope) continue;
    for (const int call : CallsOfSubmodel(s)) {
      calls.push_back({{.submodel = s}, call, map_.NodesOf(s, call).back(), map_.Inputs(s, call)});
    }
  }
  std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.place < b.place; });
  return calls;
}

// The call whose output is the node's, in the scope.
int KerasScopes::CallThatGives(int node, int scope) const {
  const std::vector<Call>& calls = At(scope).calls;
  const int giver = map_.OfNode(node) == scope ? GiverOf(graph_, node) : node;
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    bool gives = call.place == giver && call.member.node >= 0;
    if (call.member.input >= 0) gives = map_.Inputs(scope, 0)[static_cast<size_t>(call.member.input)] == node;
    if (call.member.submodel >= 0 && map_.OfNode(node) != scope) {
      const std::vector<int> outputs = map_.Outputs(call.member.submodel, call.number);
      gives = std::count(outputs.begin(), outputs.end(), node) > 0;
    }
    if (gives) return static_cast<int>(i);
  }
  CAIRN_CHECK(false, absl::StrCat("no layer gives what \"", NodeAt(graph_, node).name, "\" does"));
}

std::vector<KerasScopes::Member> KerasScopes::OrderOf(int scope) const {
  const std::vector<Call>& calls = At(scope).calls;
  std::vector<std::vector<int>> inputs;
  std::vector<int> owners, ends;
  for (size_t i = 0; i < calls.size(); ++i) {
    std::vector<int>& of_call = inputs.emplace_back();
    for (const int input : calls[i].inputs) of_call.push_back(CallThatGives(input, scope));
    const auto first = std::find_if(calls.begin(), calls.end(), [&](const Call& other) {
      const Member &a = other.member, &b = calls[i].member;
      return a.node == b.node && a.submodel == b.submodel && a.input == b.input;
    });
    owners.push_back(static_cast<int>(first - calls.begin()));
  }
  for (const int output : OutputsOf(scope)) ends.push_back(CallThatGives(output, scope));
  std::vector<Member> members;
  for (const int call : KerasLayerOrder(inputs, owners, ends)) {
    members.push_back(calls[static_cast<size_t>(call)].member);
  }
  return members;
}

bool KerasScopes::IsChain(int scope) const {
  const std::vector<Call>& calls = At(scope).calls;
  const std::vector<int> outputs = OutputsOf(scope);
  if (outputs.size() != 1 || CallThatGives(outputs[0], scope) + 1 != static_cast<int>(calls.size())) {
    return false;
  }
  for (const int id : At(scope).nodes) {
    if (map_.OfNode(id) == scope && GiverOf(graph_, id) != id) return false;  // one of several outputs
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    const Member& member = call.member;
    if (i > 0 && (call.inputs.size() != 1 || CallThatGives(call.inputs[0], scope) + 1 != static_cast<int>(i))) {
      return false;
    }
    if (member.submodel >= 0) {
      const v1::Submodel& submodel = map_.at(member.submodel);
      if (call.number > 0 || submodel.calls(0).has_training() || submodel.calls(0).outputs_size() != 1) return false;
    }
    if (member.node < 0) continue;
    const Node& node = NodeAt(graph_, member.node);
    if (node.id != call.place || SaysInference(node.id) || IsOperation(node)) return false;
  }
  return true;
}

KerasScopes::Tensor KerasScopes::TensorOf(int node, int scope) const {
  const Call& call = At(scope).calls[static_cast<size_t>(CallThatGives(node, scope))];
  const Member& member = call.member;
  Tensor tensor{.member = NameOf(member, scope)};
  if (member.node >= 0) {
    const std::vector<int> own = CallsOf(member.node);
    const int giver = map_.OfNode(node) == scope ? GiverOf(graph_, node) : node;
    tensor.call = static_cast<int>(std::find(own.begin(), own.end(), giver) - own.begin());
    if (giver != node) tensor.output = KerasOutputOfSlice(graph_, NodeAt(graph_, node));
    if (NodeAt(graph_, node).layer.top_k().indices()) tensor.output = 1;
  }
  if (member.submodel >= 0) {
    const std::vector<int> own = CallsOfSubmodel(member.submodel), outputs = map_.Outputs(member.submodel, call.number);
    tensor.call = static_cast<int>(std::find(own.begin(), own.end(), call.number) - own.begin());
    tensor.output = static_cast<int>(std::find(outputs.begin(), outputs.end(), node) - outputs.begin());
    tensor.functional = !IsSequential(member.submodel);
  }
  return tensor;
}

// Whether each call of it, or of a model that it is a part of, is called with training=False.
bool KerasScopes::AlwaysInfers(int submodel) const {
  if (submodel == kItself) return false;
  const auto& calls = map_.at(submodel).calls();
  return AlwaysInfers(map_.ParentOf(submodel)) ||
         std::all_of(calls.begin(), calls.end(), [](const v1::Submodel::Call& call) { return call.has_training(); });
}

bool KerasScopes::SaysInference(int id) const {
  const Node& node = NodeAt(graph_, id);
  const int scope = map_.OfNode(id);
  if (!InfersAlways(node) || IsOperation(node) || AlwaysInfers(scope)) return false;
  if (scope == kItself) return true;
  // It is the layer's own if it holds where the model is not called so.
  for (int call = 0; call < map_.at(scope).calls_size(); ++call) {
    if (map_.at(scope).calls(call).has_training()) continue;
    for (const int other : map_.NodesOf(scope, call)) {
      if (OwnerOf(NodeAt(graph_, other)) == OwnerOf(node) && !InfersAlways(NodeAt(graph_, other))) return false;
    }
  }
  return true;
}

std::vector<KerasScopes::Group> KerasScopes::Groups(bool layer_scales) const {
  std::vector<Group> groups;
  AddGroups(kItself, "", layer_scales, &groups);
  return groups;
}

std::string KerasScopes::ClassOf(const Member& member, bool layer_scales) const {
  if (member.submodel >= 0) return IsSequential(member.submodel) ? "Sequential" : "Functional";
  if (member.node < 0) return "InputLayer";
  const Node& node = NodeAt(graph_, member.node);
  return layer_scales && IsLayerScale(node) ? "LayerScale" : KerasClassOf(node);
}

void KerasScopes::AddGroups(int scope, const std::string& path, bool layer_scales, std::vector<Group>* groups) const {
  KerasContainer container(path);
  for (const Member& member : MembersOf(scope)) {
    const bool input = member.input >= 0 || (member.node >= 0 && NodeAt(graph_, member.node).kind == LayerKind::kInput);
    if (input && IsSequential(scope)) continue;
    if (member.node >= 0 && IsOperation(NodeAt(graph_, member.node))) continue;
    const std::string name =
        member.node >= 0 ? map_.LocalName(NodeAt(graph_, member.node).name, scope) : NameOf(member, scope);
    const std::string own = container.PathOf(ClassOf(member, layer_scales));
    groups->push_back({own, name, member.node});
    if (member.submodel >= 0) AddGroups(member.submodel, own, layer_scales, groups);
  }
}

}  // namespace cairn
