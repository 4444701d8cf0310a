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

// The layers that an operator became, by their indices; -1: not made yet.
struct OnnxRecurrenceLayers {
  int whole = -1;                // the recurrent one
  int outputs = -1;              // gives the outputs alone: the same, or a part of it where it gives its states, too
  int turned = -1;               // gives all steps in the opposite order
  int last_state[2] = {-1, -1};  // by direction: gives its last state
  int last_cell[2] = {-1, -1};   // the same of its last cell state
  bool steps_read = false;       // something reads all steps
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
  bool sequences = false;   // the layer returns all steps, not only the last one
  bool cells = false;       // LSTM: each output is followed by its states h and c (return_cell)
  OnnxRecurrenceLayers layers;

  // Reads the node's attributes. Errors: INVALID_ARGUMENT, UNIMPLEMENTED; without the node's name.
  static absl::StatusOr<OnnxRecurrence> Of(const onnx::NodeProto& node);
  int64_t width() const;  // of one direction's kernels; only before TakeWeights
  // Fills in the layer and its variables. weights: must have the shapes that units, directions and features require.
  void TakeWeights(const OnnxRecurrentWeights& weights, int64_t features);
  void GiveSequences();
  void GiveCells();  // of an LSTM
};

}  // namespace cairn
