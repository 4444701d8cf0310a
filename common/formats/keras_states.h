// Recurrent layers of Keras that give several outputs: return_state, and Bidirectional with merge_mode=None. Each
// output that a Functional model takes becomes a layer: a part of what the recurrent layer gives (return_cell), or
// a merge of two parts.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/model/graph.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

bool HasKerasStates(const std::string& type, const Json& config);
// The config of the same layer with one output.
Json WithoutKerasStates(const std::string& type, const Json& config);

struct KerasStatePlan {
  bool merges = true;  // the first output is merged (Bidirectional), or there is one direction; else it is two
  v1::Bidirectional::MergeMode mode = v1::Bidirectional::CONCAT;
  // A mask of the input would give other states than in Keras.
  bool needs_no_mask = false;
};
// Makes the layer give what the outputs of its calls are made of. config: with the options. takes_states: whether a
// call takes an output other than the first.
KerasStatePlan PlanKerasStates(const Json& config, bool takes_states, v1::Layer* layer);

// The layers of one output, each after those that it takes: parts of layer `name`, then perhaps a merge of them; of the
// whole output none. Without names. nullopt: there is no such output.
std::optional<std::vector<v1::Layer>> KerasStateLayers(const KerasStatePlan& plan, const v1::Layer& layer,
                                                       const std::string& name, int output);

// The number of the output of a recurrent layer that is this Slice, as it is written; -1: it is another layer.
int KerasOutputOfSlice(const Graph& graph, const Node& node);
// Errors: UNIMPLEMENTED: what takes the states of a layer is none of its outputs in Keras.
absl::Status CheckKerasStates(const Graph& graph);

}  // namespace cairn
