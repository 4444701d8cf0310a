// What an example is to a model with several inputs: all inputs' numbers laid end to end, in the order of
// Graph::inputs().
//
// Pure functions; any thread.
#pragma once

#include "common/model/graph.h"

namespace cairn {

// Of a whole example: the input's shape, or [numbers] of all of them.
inline Shape ModelInputShape(const Graph& graph) {
  if (graph.inputs().size() == 1) return graph.input_shape();
  const Node& last = graph.nodes()[static_cast<size_t>(graph.inputs().back())];
  return {last.input_offset + NumElements(last.output)};
}

inline int64_t ModelInputSize(const Graph& graph) { return NumElements(ModelInputShape(graph)); }

// Numbers of all outputs of one example, laid end to end in the order of Graph::outputs().
inline int64_t ModelOutputSize(const Graph& graph) {
  int64_t size = 0;
  for (const int id : graph.outputs()) size += NumElements(graph.nodes()[static_cast<size_t>(id)].output);
  return size;
}

}  // namespace cairn
