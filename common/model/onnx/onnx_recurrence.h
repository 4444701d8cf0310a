// OnnxRecurrence: an operator RNN, LSTM or GRU of ONNX on its way to a layer of Keras: what its attributes say, the
// layer's message and its variables in Keras' order.
//
// Values; pure functions.
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

// As ONNX has them, of all directions; biases: those of the input, then those of the state; empty: none.
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
  int made = -1;            // the layer's number; -1: none yet
  bool sequences = false;   // the layer gives all steps, not the last one

  // What the node's attributes say. Errors: INVALID_ARGUMENT, UNIMPLEMENTED; without the node's name.
  static absl::StatusOr<OnnxRecurrence> Of(const onnx::NodeProto& node);
  int64_t width() const;  // of the kernels of one direction, before TakeWeights
  // Fills in the layer and its variables. weights: of the shapes that units, directions and features ask for.
  void TakeWeights(const OnnxRecurrentWeights& weights, int64_t features);
  void GiveSequences();
};

}  // namespace cairn
