// OnnxRecurrence: converts an ONNX operator RNN, LSTM or GRU to a layer: its attributes to the layer's message, its
// weights to variables in Keras' layout.
//
// Value types; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/onnx/onnx_tensor.h"
#include "common/model/onnx/onnx_variable.h"
#include "onnx/onnx.pb.h"

namespace cairn {

bool IsRecurrentOperator(const std::string& type);

// In ONNX's layout, for all directions. biases: for each direction those of the input, then those of the state; empty:
// none.
struct OnnxRecurrentWeights {
  OnnxTensor w, r;
  std::vector<float> biases;
};

struct OnnxRecurrence {
  LayerKind kind = LayerKind::kLSTM;
  int64_t units = 0, directions = 1;
  bool reverse = false;
  bool reset_after = false;  // GRU
  std::vector<v1::Activation> activations;
  v1::Layer layer;
  std::vector<OnnxVariable> variables;
  std::vector<int> inputs;  // layers
  int64_t steps = 0;        // of its input
  int made = -1;            // the layer's index
  bool sequences = false;   // the layer returns all steps, not only the last one
  // ---- of the layer's output ----
  bool steps_read = false;       // something reads all steps
  int turned = -1;               // the layer that gives them in the opposite order; -1: none yet
  int last_state[2] = {-1, -1};  // by direction: the layer that gives its last state; -1: none yet

  // Reads the node's attributes. Errors: INVALID_ARGUMENT, UNIMPLEMENTED; without the node's name.
  static absl::StatusOr<OnnxRecurrence> Of(const onnx::NodeProto& node);
  int64_t width() const;  // of one direction's kernels; only before TakeWeights
  // Fills in the layer and its variables. weights: must have the shapes that units, directions and features require.
  void TakeWeights(const OnnxRecurrentWeights& weights, int64_t features);
  void GiveSequences();
};

}  // namespace cairn
