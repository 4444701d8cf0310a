// The order of a model's layers in Keras 3 (model.layers), and the names of their groups in .weights.h5. For a
// Functional model:
//
//   depth   of a layer: the longest path to an output, counted in calls; of a shared layer the largest of its calls
//   order   layers by decreasing depth; those of equal depth in the order of a depth-first search from the output. It
//           visits the inputs of a call in the order of its arguments: positional ones, then keywords by name
//
// (keras/src/ops/function.py, map_graph; keras/src/ops/symbolic_arguments.py; keras/src/saving/saving_lib.py.) Free
// functions; any thread. KerasContainer is not thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cairn {

// The indices of a call's inputs, in the order in which Keras visits them. The last `keyword_inputs` of them are
// keyword arguments of a MultiHeadAttention (kAttentionArguments).
std::vector<int> KerasInputOrder(int inputs, int keyword_inputs);

// calls[i]: the calls whose outputs call i uses, in the order of KerasInputOrder; each is less than i. owners[i]: the
// first call of the same layer. Returns layers by their first calls, without those that do not lead to `outputs`, as
// in Keras.
std::vector<int> KerasLayerOrder(const std::vector<std::vector<int>>& calls, const std::vector<int>& owners,
                                 const std::vector<int>& outputs);

// Keras' own rule: "Conv2D" to "conv2d", "LeakyReLU" to "leaky_re_lu".
std::string KerasSnakeCase(absl::string_view class_name);

// Names the groups of a model's layers by class and count; asked for in the order of model.layers.
class KerasContainer {
 public:
  // path: of the model's own group; empty: the file's root.
  explicit KerasContainer(absl::string_view path = "");
  // "layers/conv2d", then "layers/conv2d_1".
  std::string PathOf(absl::string_view class_name);

 private:
  const std::string prefix_;
  std::map<std::string, int> used_;
};

}  // namespace cairn
