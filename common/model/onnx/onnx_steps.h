// Values of an ONNX graph whose steps, or directions, stand before the batch: what the operators RNN, LSTM and GRU take
// and give. They lead from a Transpose to a Transpose, and become layers when it is known which of their outputs is
// used (onnx_importer_steps.cc).
//
// Values.
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
  int made = -1;  // the layer's number; -1: none yet
  bool sequences = false;
};

struct OnnxSteps {
  enum Form {
    kSequence,      // [steps, batch, features]: of `view`
    kState,         // [1, batch, units]: of `view`
    kOutput,        // Y, [steps, directions, batch, units]
    kOutputBatch,   // [steps, batch, directions, units]
    kOutputRows,    // [steps, batch, units], of one direction
    kOutputTurned,  // the same from the last step to the first
    kLast,          // Y_h, [directions, batch, units]
    kLastBatch,     // [batch, directions, units]
  };
  Form form = kSequence;
  OnnxView view;
  std::shared_ptr<OnnxRecurrence> recurrence;  // from kOutput on
};

}  // namespace cairn
