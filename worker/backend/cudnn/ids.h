// Where the ids of an Embedding come from: on a GPU from an input of the model, whose numbers are checked on the host.
//
// Pure functions; any thread.
#pragma once

#include <vector>

#include "common/model/graph.h"
#include "common/model/inner_node.h"
#include "worker/backend/backend.h"

namespace cairn::cudnn {

// The Embedding that the node is, or that is within it; kind is another one: it is none.
inline Node EmbeddingOf(const Node& node) {
  const bool outer = node.kind == LayerKind::kTimeDistributed || node.kind == LayerKind::kSpectralNormalization;
  return outer ? EmbeddingOf(InnerNode(node)) : node;
}
// Whether the node looks numbers up in a table by ids.
inline bool ReadsIds(const Node& node) { return EmbeddingOf(node).kind == LayerKind::kEmbedding; }

// The input whose numbers the node reads, as they are; null: they come from elsewhere.
inline const Node* IdInput(const Graph& graph, const Node& node) {
  const Node* from = &graph.nodes()[node.inputs[0]];
  while (from->kind == LayerKind::kFlatten || from->kind == LayerKind::kReshape) from = &graph.nodes()[from->inputs[0]];
  return from->kind == LayerKind::kInput ? from : nullptr;
}

// An Embedding and where its ids are within an example of the batch.
struct IdReader {
  Node embedding;
  int64_t begin = 0, count = 0;
};
std::vector<IdReader> IdReadersOf(const Graph& graph);
// size: numbers of an example. Errors: INVALID_ARGUMENT for an id that an Embedding does not have.
absl::Status CheckIds(const std::vector<IdReader>& readers, int64_t size, const Batch& batch);

}  // namespace cairn::cudnn
