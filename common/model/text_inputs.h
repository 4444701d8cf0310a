// Texts in a model: inputs of texts (InputLayer.text), and the layers that take them: StringLookup, TextVectorization,
// Hashing and HashedCrossing. Texts go no further: these layers give numbers, which the data pipeline computes.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT says what is wrong; the caller adds the layer's name.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Node::input_offset of a layer that takes texts.
inline constexpr int64_t kTakesTexts = -1;

// Whether it is an input of texts, or takes one.
inline bool OfTexts(const Node& node) {
  return node.kind == LayerKind::kInput ? node.layer.input().text() : node.input_offset == kTakesTexts;
}

// The same before the graph is built. nodes: those before it are complete.
bool TakesTexts(const std::vector<Node>& nodes, const Node& node);

// A layer that takes texts is one of those above, and takes the model's inputs alone; StringLookup and
// TextVectorization take nothing else.
absl::Status CheckTexts(const std::vector<Node>& nodes, const Node& node);

// Whether the graph has inputs of texts.
bool HasTexts(const Graph& graph);

// What backends compute: inputs of texts are gone, and the layers that take them are inputs of their numbers, which the
// data pipeline makes (common/data/text_dataset.h). The variables are the same. A copy if there are no texts.
Graph ComputedGraph(const Graph& graph);

}  // namespace cairn
