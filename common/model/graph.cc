#include "common/model/graph.h"

#include "common/model/graph_builder.h"

namespace cairn {

absl::StatusOr<Graph> Graph::Build(const v1::Model& model) { return GraphBuilder(model).Build(); }

int64_t Graph::parameters() const {
  int64_t sum = 0;
  for (const Variable& variable : variables_) sum += variable.size;
  return sum;
}

int64_t Graph::trainable_parameters() const {
  int64_t sum = 0;
  for (const Variable& variable : variables_) {
    if (variable.kind == VariableKind::kTrainable) sum += variable.size;
  }
  return sum;
}

}  // namespace cairn
