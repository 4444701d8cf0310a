// SubmodelMap: the models inside a model (Model.submodels), and what belongs to each of their calls.
//
// Immutable; any thread. The graph must outlive it. Invariants, of a graph that CheckSubmodels accepts:
//   1. A call's nodes are those from which its outputs are computed, back to its inputs. All of them are of the
//      submodel or of one inside it; its inputs have smaller ids.
//   2. Every layer of a submodel is in one of its calls. The calls are alike: each one's layers are those of the first
//      call, in the same order, with the same variables.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

class SubmodelMap {
 public:
  static constexpr int kItself = -1;  // the model that is no part of another

  explicit SubmodelMap(const Graph& graph);

  int count() const { return static_cast<int>(graph_.submodels().size()); }
  const v1::Submodel& at(int submodel) const { return graph_.submodels()[static_cast<size_t>(submodel)]; }
  // The one whose part it is; kItself: the model.
  int ParentOf(int submodel) const { return parents_[static_cast<size_t>(submodel)]; }
  int OfNode(int node) const { return of_node_[static_cast<size_t>(node)]; }
  bool Within(int submodel, int other) const;  // whether it is `other` or inside it
  // Ids, as the call names them.
  std::vector<int> Inputs(int submodel, int call) const;
  std::vector<int> Outputs(int submodel, int call) const;
  // Ascending ids. Of a graph that is not checked yet: also nodes that are of no such submodel.
  std::vector<int> NodesOf(int submodel, int call) const;
  // The name that a layer or submodel has in the model whose part it is.
  std::string LocalName(absl::string_view name, int parent) const;

  // -1: there is none of this name.
  int FindNode(const std::string& name) const;
  int FindSubmodel(const std::string& name) const;

 private:
  const Graph& graph_;
  absl::flat_hash_map<std::string, int> nodes_, submodels_;
  std::vector<int> parents_, of_node_;
};

// Errors: INVALID_ARGUMENT names the submodel and what is wrong with it.
absl::Status CheckSubmodels(const Graph& graph);

}  // namespace cairn
