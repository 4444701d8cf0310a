// The fields of a layer that refer to one of its variables, found by name: "kernel_constraint" refers to
// "dense/kernel", "recurrent_regularizer" to "lstm/lstm_cell/recurrent_kernel". Includes the fields of layers inside a
// layer.
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
  std::string name;                              // "kernel_constraint"; "layer.kernel_constraint" for an inner layer
  google::protobuf::Message* message = nullptr;  // the field's value; part of the layer
  int variable = -1;                             // its index in `variables`; -1: the layer has no such variable
};

// Returns the fields that are set and whose names end with `suffix` ("_constraint"). variables: those of this layer, in
// order.
std::vector<VariableField> VariableFieldsOf(v1::Layer* layer, absl::string_view suffix,
                                            absl::Span<const Variable> variables);

// The nodes, by id, that have variables of their own within the numbers [begin, end) of the parameter space, in order.
// Takes a time of their number, whatever the size of the graph.
std::vector<int> NodesWithin(const Graph& graph, int64_t begin, int64_t end);

}  // namespace cairn
