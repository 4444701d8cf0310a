// KerasScopes: the models in Keras' files of a graph. Each is a scope: the model itself, or a submodel in it
// (Model.submodels). It has layers and submodels, in Keras' order, and names for tensors.
//
// Immutable; any thread. The graph must outlive it.
#pragma once

#include <string>
#include <vector>

#include "common/model/graph.h"
#include "common/model/submodels.h"

namespace cairn {

class KerasScopes {
 public:
  // One of: a layer of the scope (its first call), a submodel, an input of a submodel.
  struct Member {
    int node = -1, submodel = -1, input = -1;
  };
  // keras_history: the member's name, its call, the number of the output.
  struct Tensor {
    std::string member;
    int call = 0, output = 0;
    bool functional = false;  // the member is a submodel that is no Sequential
  };
  // A group of variables in .weights.h5.
  struct Group {
    std::string path, name;
    int node = -1;  // -1: a submodel or an input of one, without variables of its own
  };

  explicit KerasScopes(const Graph& graph);

  const Graph& graph() const { return graph_; }
  const SubmodelMap& map() const { return map_; }
  // scope: an index in graph.submodels(), or SubmodelMap::kItself.
  const std::vector<Member>& MembersOf(int scope) const { return At(scope).members; }
  bool IsSequential(int scope) const { return At(scope).sequential; }
  std::string NameOf(const Member& member, int scope) const;
  // The nodes that are calls of the layer, and the submodel's calls, in the scope's first call.
  std::vector<int> CallsOf(int node) const;
  std::vector<int> CallsOfSubmodel(int submodel) const;
  Tensor TensorOf(int node, int scope) const;
  std::vector<int> OutputsOf(int scope) const;
  // Whether the layer's own call says training=False; if its model's does, that is said there.
  bool SaysInference(int node) const;
  // Those that Keras 3 makes, in its order. layer_scales: a depthwise kernel of one pixel was a LayerScale there.
  std::vector<Group> Groups(bool layer_scales = false) const;

 private:
  // A call of a member.
  struct Call {
    Member member;
    int number = 0;                // of the submodel's call
    int place = 0;                 // the id of its last output
    std::vector<int> inputs = {};  // ids
  };
  struct Scope {
    std::vector<int> nodes;   // of its first call, ascending
    std::vector<Call> calls;  // inputs before their users
    std::vector<Member> members;
    bool sequential = false;
  };

  const Scope& At(int scope) const { return scopes_[static_cast<size_t>(scope) + 1]; }
  std::vector<Call> FindCalls(int scope) const;
  int CallThatGives(int node, int scope) const;  // the place in the scope's calls
  std::vector<Member> OrderOf(int scope) const;
  bool IsChain(int scope) const;
  bool AlwaysInfers(int submodel) const;
  std::string ClassOf(const Member& member, bool layer_scales) const;
  void AddGroups(int scope, const std::string& path, bool layer_scales, std::vector<Group>* groups) const;

  const Graph& graph_;
  const SubmodelMap map_;
  std::vector<Scope> scopes_;
};

}  // namespace cairn
