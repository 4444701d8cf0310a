#include "common/model/submodels.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

std::string Shown(const std::string& name) { return absl::CEscape(name.substr(0, kLayerNameBytesMax)); }

// Checks one graph's submodels.
class SubmodelCheck {
 public:
  explicit SubmodelCheck(const Graph& graph) : graph_(graph), map_(graph) {}

  absl::Status Run() const {
    if (graph_.submodels().size() > kLayersMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("model.submodels: ", graph_.submodels().size(), " of them; at most ", kLayersMax));
    }
    for (const Node& node : graph_.nodes()) {
      const std::string& name = node.layer.submodel();
      if (!name.empty() && map_.FindSubmodel(name) < 0) {
        return absl::InvalidArgumentError(absl::StrCat("layer \"", node.name, "\": submodel: \"", Shown(name),
                                                       "\" is not in model.submodels; leave it out"));
      }
    }
    int calls = 0;
    for (int s = 0; s < map_.count(); ++s) CAIRN_RETURN_IF_ERROR(CheckNames(s));
    for (int s = 0; s < map_.count(); ++s) {
      calls += map_.at(s).calls_size();
      if (calls > kLayersMax) return Bad(s, "more than ", kLayersMax, " calls in all; use a smaller model");
      for (int call = 0; call < map_.at(s).calls_size(); ++call) {
        CAIRN_RETURN_IF_ERROR(CheckCall(s, call));
        if (call > 0 && !IsAsFirst(s, call)) {
          return Bad(s, "calls[", call, "]: its layers are not those of its first call; let each share the other's");
        }
      }
    }
    for (int s = 0; s < map_.count(); ++s) CAIRN_RETURN_IF_ERROR(CheckNodes(s));
    return absl::OkStatus();
  }

 private:
  template <typename... Args>
  absl::Status Bad(int submodel, const Args&... args) const {
    return absl::InvalidArgumentError(
        absl::StrCat("model.submodels[", submodel, "] \"", Shown(map_.at(submodel).name()), "\": ", args...));
  }

  absl::Status CheckNames(int s) const {
    const v1::Submodel& submodel = map_.at(s);
    const std::string& name = submodel.name();
    const bool text = IsUtf8(name) && std::none_of(name.begin(), name.end(), absl::ascii_iscntrl);
    if (name.empty() || !text || name.size() > kLayerNameBytesMax) {
      return Bad(s, "name is empty, too long or not text; give it one such as \"encoder\"");
    }
    if (map_.FindSubmodel(name) != s || map_.FindNode(name) >= 0) {
      return Bad(s, "another layer or submodel has this name; give each one of its own");
    }
    if (!submodel.submodel().empty() && (map_.ParentOf(s) < 0 || map_.ParentOf(s) >= s)) {
      return Bad(s, "submodel: \"", Shown(submodel.submodel()), "\" is not one before it; name one, or leave it out");
    }
    if (submodel.calls().empty()) return Bad(s, "calls: empty; give its inputs and outputs");
    return absl::OkStatus();
  }

  absl::Status CheckCall(int s, int number) const {
    const v1::Submodel& submodel = map_.at(s);
    const v1::Submodel::Call &call = submodel.calls(number), &first = submodel.calls(0);
    if (call.inputs().empty() || call.outputs().empty()) {
      return Bad(s, "calls[", number, "]: inputs or outputs are missing; name layers");
    }
    if (call.inputs_size() != first.inputs_size() || call.outputs_size() != first.outputs_size() ||
        (!submodel.inputs().empty() && submodel.inputs_size() != call.inputs_size())) {
      return Bad(s, "calls[", number, "]: ", call.inputs_size(), " inputs and ", call.outputs_size(),
                 " outputs, unlike its first call or its inputs; give each call as many");
    }
    if (call.training()) return Bad(s, "calls[", number, "]: training: true is not supported; leave it out");
    for (const auto* names : {&call.inputs(), &call.outputs()}) {
      for (const std::string& name : *names) {
        if (map_.FindNode(name) >= 0) continue;
        return Bad(s, "calls[", number, "]: \"", Shown(name), "\" is not a layer of the model; name layers");
      }
    }
    const std::vector<int> inputs = map_.Inputs(s, number);
    const int last = *std::max_element(inputs.begin(), inputs.end());
    for (const int node : map_.NodesOf(s, number)) {
      const std::string& name = graph_.nodes()[static_cast<size_t>(node)].name;
      if (!map_.Within(map_.OfNode(node), s)) {
        return Bad(s, "calls[", number, "]: its outputs need layer \"", name,
                   "\", which is no part of it; name that among its inputs");
      }
      if (node < last) return Bad(s, "calls[", number, "]: layer \"", name, "\" is before one of its inputs");
    }
    return absl::OkStatus();
  }

  // What a layer is, whichever call it is in.
  static std::string Kind(const Node& node) {
    v1::Layer layer = node.layer;
    layer.clear_name();
    layer.clear_inputs();
    layer.clear_shares();
    layer.clear_training();
    return layer.SerializeAsString();
  }

  // A node by its place in the call: a negative number for an input.
  static int PlaceOf(int node, const std::vector<int>& nodes, const std::vector<int>& inputs) {
    const auto input = std::find(inputs.begin(), inputs.end(), node);
    if (input != inputs.end()) return -1 - static_cast<int>(input - inputs.begin());
    return static_cast<int>(std::lower_bound(nodes.begin(), nodes.end(), node) - nodes.begin());
  }

  bool IsAsFirst(int s, int call) const {
    const std::vector<int> nodes = map_.NodesOf(s, call), first = map_.NodesOf(s, 0);
    const std::vector<int> inputs = map_.Inputs(s, call), first_inputs = map_.Inputs(s, 0);
    const std::vector<int> outputs = map_.Outputs(s, call), first_outputs = map_.Outputs(s, 0);
    const auto same = [&](int node, int other) {
      return PlaceOf(node, nodes, inputs) == PlaceOf(other, first, first_inputs);
    };
    bool all = nodes.size() == first.size();
    for (size_t i = 0; all && i < outputs.size(); ++i) all = same(outputs[i], first_outputs[i]);
    for (size_t i = 0; all && i < nodes.size(); ++i) {
      const Node &node = graph_.nodes()[static_cast<size_t>(nodes[i])],
                 &other = graph_.nodes()[static_cast<size_t>(first[i])];
      const int owner = other.shares < 0 ? other.id : other.shares;
      all = node.inputs.size() == other.inputs.size() && Kind(node) == Kind(other) &&
            (other.variables.empty() || node.shares == owner);
      for (size_t k = 0; all && k < node.inputs.size(); ++k) all = same(node.inputs[k], other.inputs[k]);
    }
    return all;
  }

  absl::Status CheckNodes(int s) const {
    std::set<int> in_calls;
    for (int call = 0; call < map_.at(s).calls_size(); ++call) {
      for (const int node : map_.NodesOf(s, call)) in_calls.insert(node);
    }
    for (const Node& node : graph_.nodes()) {
      if (node.shares >= 0 && map_.OfNode(node.id) != map_.OfNode(node.shares)) {
        return absl::InvalidArgumentError(absl::StrCat(
            "layer \"", node.name, "\": submodel differs from that of the layer whose variables it shares"));
      }
      if (map_.OfNode(node.id) != s) continue;
      if (!in_calls.contains(node.id)) return Bad(s, "layer \"", node.name, "\" is in none of its calls");
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  const SubmodelMap map_;
};

}  // namespace

SubmodelMap::SubmodelMap(const Graph& graph) : graph_(graph) {
  for (int s = 0; s < count(); ++s) submodels_.emplace(at(s).name(), s);
  for (const v1::Submodel& submodel : graph.submodels()) parents_.push_back(FindSubmodel(submodel.submodel()));
  for (const Node& node : graph.nodes()) {
    nodes_.emplace(node.name, node.id);
    of_node_.push_back(FindSubmodel(node.layer.submodel()));
  }
}

int SubmodelMap::FindNode(const std::string& name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? -1 : found->second;
}

int SubmodelMap::FindSubmodel(const std::string& name) const {
  const auto found = submodels_.find(name);
  return found == submodels_.end() ? -1 : found->second;
}

bool SubmodelMap::Within(int submodel, int other) const {
  while (submodel > other) submodel = ParentOf(submodel);  // a part comes after the whole
  return submodel == other;
}

std::vector<int> SubmodelMap::Inputs(int submodel, int call) const {
  std::vector<int> ids;
  for (const std::string& name : at(submodel).calls(call).inputs()) ids.push_back(FindNode(name));
  return ids;
}

std::vector<int> SubmodelMap::Outputs(int submodel, int call) const {
  std::vector<int> ids;
  for (const std::string& name : at(submodel).calls(call).outputs()) ids.push_back(FindNode(name));
  return ids;
}

std::vector<int> SubmodelMap::NodesOf(int submodel, int call) const {
  const std::vector<int> inputs = Inputs(submodel, call);
  std::vector<int> open = Outputs(submodel, call);
  std::set<int> met;
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (std::count(inputs.begin(), inputs.end(), node) > 0 || !met.insert(node).second) continue;
    const std::vector<int>& takes = graph_.nodes()[static_cast<size_t>(node)].inputs;
    open.insert(open.end(), takes.begin(), takes.end());
  }
  return {met.begin(), met.end()};
}

std::string SubmodelMap::LocalName(absl::string_view name, int parent) const {
  if (parent == kItself) return std::string(name);
  const std::string prefix = absl::StrCat(at(parent).name(), "/");
  return std::string(absl::StartsWith(name, prefix) && name.size() > prefix.size() ? name.substr(prefix.size()) : name);
}

absl::Status CheckSubmodels(const Graph& graph) {
  bool any = !graph.submodels().empty();
  for (const Node& node : graph.nodes()) any = any || !node.layer.submodel().empty();
  return any ? SubmodelCheck(graph).Run() : absl::OkStatus();
}

}  // namespace cairn
