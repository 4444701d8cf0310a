// An example of a model with several inputs: the numbers of all inputs concatenated, in the order of Graph::inputs().
//
// Pure functions; any thread.
#pragma once

#include "common/model/graph.h"

namespace cairn {

// The shape of a whole example: that of the only input, or [total numbers of all inputs].
inline Shape ModelInputShape(const Graph& graph) {
  if (graph.inputs().size() == 1) return graph.input_shape();
  const Node& last = graph.nodes()[static_cast<size_t>(graph.inputs().back())];
  return {last.input_offset + NumElements(last.output)};
}

inline int64_t ModelInputSize(const Graph& graph) { return NumElements(ModelInputShape(graph)); }

// How many numbers all outputs of one example have, concatenated in the order of Graph::outputs().
inline int64_t ModelOutputSize(const Graph& graph) {
  int64_t size = 0;
  for (const int id : graph.outputs()) size += NumElements(graph.nodes()[static_cast<size_t>(id)].output);
  return size;
}

}  // namespace cairn
