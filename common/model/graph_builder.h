// GraphBuilder: the passes of Graph::Build. First the names (an input may be named before its layer is reached), then
// layer by layer the inputs, shapes and variables, then the layout of the parameter space and the check that every
// layer is used. A layer that shares another layer's variables has the kind and fields of that layer.
//
// Used once, on one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

class GraphBuilder {
 public:
  explicit GraphBuilder(const v1::Model& model) : model_(model) {}
  absl::StatusOr<Graph> Build();

  // ComputedGraph (text_inputs.h) of a graph with texts.
  static Graph WithoutTexts(const Graph& graph);

 private:
  absl::Status CreateNodes();  // kinds and names
  absl::Status ResolveShares();
  absl::Status ResolveShare(Node* node);
  absl::Status NameOutputs();
  absl::Status CheckName(int id, const std::string& name);
  void NameTheNameless();       // by Keras' scheme; layers whose kind is not known yet are skipped
  absl::Status FreezeOthers();  // all but model.trainable_layers
  absl::Status ConnectInputs(Node* node);
  absl::StatusOr<int> FindInput(const Node& node, const std::string& name) const;
  absl::Status InferNode(Node* node);
  absl::Status TakeVariablesOf(const Node& owner, const std::vector<Variable>& own, Node* node) const;
  absl::Status LayOutVariables();
  absl::Status CheckAllUsed() const;

  const v1::Model& model_;
  Graph graph_;
  absl::flat_hash_map<std::string, int> ids_;
};

}  // namespace cairn
