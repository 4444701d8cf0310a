// Values of an ONNX graph in which the step or direction axis precedes the batch axis: the inputs and outputs of the
// operators RNN, LSTM and GRU. They occur between two Transpose operators. The operator becomes a layer once it is
// known which of its outputs is used (onnx_importer_steps.cc).
//
// Value types.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/v1/model.pb.h"
#include "common/model/graph.h"
#include "common/model/onnx/onnx_variable.h"
#include "common/model/onnx/onnx_view.h"

namespace cairn {

// A recurrent operator that is not a layer yet.
struct OnnxRecurrence {
  LayerKind kind = LayerKind::kLSTM;
  v1::Layer layer;
  std::vector<int> inputs;
  std::vector<OnnxVariable> variables;
  int64_t steps = 0, units = 0, directions = 1;
  bool reverse = false;
  int made = -1;  // the layer's index; -1: not created yet
  bool sequences = false;
};

struct OnnxSteps {
  enum Form {
    kSequence,      // [steps, batch, features], a transposition of `view`
    kState,         // [1, batch, units], a transposition of `view`
    kOutput,        // Y, [steps, directions, batch, units]
    kOutputBatch,   // [steps, batch, directions, units]
    kOutputRows,    // [steps, batch, units], for one direction
    kOutputTurned,  // the same with the steps reversed
    kLast,          // Y_h, [directions, batch, units]
    kLastBatch,     // [batch, directions, units]
  };
  Form form = kSequence;
  OnnxView view;
  std::shared_ptr<OnnxRecurrence> recurrence;  // from kOutput on
};

}  // namespace cairn
