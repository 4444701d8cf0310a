// The fields of a layer that are about one of its variables, found by their names: "kernel_constraint" is about
// "dense/kernel", "recurrent_regularizer" about "lstm/lstm_cell/recurrent_kernel". Of the layers within a layer, too.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/model/graph.h"

namespace cairn {

struct VariableField {
  std::string name;                              // "kernel_constraint"; "layer.kernel_constraint" of a layer within
  google::protobuf::Message* message = nullptr;  // what it holds; part of the layer
  int variable = -1;                             // the variable's place in `variables`; -1: the layer has none such
};

// Those that are set and whose names end with `suffix` ("_constraint"). variables: the layer's own, in their order.
std::vector<VariableField> VariableFieldsOf(v1::Layer* layer, absl::string_view suffix,
                                            absl::Span<const Variable> variables);

// The nodes, by id, that have variables of their own within the numbers [begin, end) of the parameter space, in order.
// Takes a time of their number, whatever the size of the graph.
std::vector<int> NodesWithin(const Graph& graph, int64_t begin, int64_t end);

}  // namespace cairn
