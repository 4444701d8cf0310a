// Values of an ONNX graph in which the step or direction axis precedes the batch axis: the inputs and outputs of the
// operators RNN, LSTM and GRU. They occur between two Transpose operators. The operator becomes a layer once it is
// known which of its outputs is used.
//
// Used once, on one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/model/onnx/onnx_recurrence.h"
#include "common/model/onnx/onnx_view.h"

namespace cairn {

class OnnxImporter;

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

// Reads the operators that take or return such values.
class OnnxStepReader {
 public:
  explicit OnnxStepReader(OnnxImporter& importer) : importer_(importer) {}

  // Whether the importer's current operator is one of them.
  bool Takes() const;
  // Reads it. Errors: INVALID_ARGUMENT, UNIMPLEMENTED; without the node's name.
  absl::Status Read();

 private:
  // The operator's output is x in another form.
  absl::Status Become(OnnxSteps x, OnnxSteps::Form form);
  // Creates the layer, whose output becomes the operator's. It returns either the sequence or the last state, not both.
  absl::Status End(OnnxRecurrence* r, bool sequences);

  absl::Status ReadTranspose(const OnnxSteps& x);
  absl::Status ReadSqueeze(const OnnxSteps& x);
  absl::Status ReadGather(const OnnxSteps& x);
  absl::Status ReadReshape(const OnnxSteps& x);  // Flatten too
  absl::Status ReadRecurrent();
  absl::StatusOr<OnnxRecurrentWeights> ReadWeights(const OnnxRecurrence& r, const Shape& sequence) const;
  absl::Status PlaceInputs(const OnnxView& sequence, OnnxRecurrence* r);

  OnnxImporter& importer_;
  std::map<std::string, OnnxSteps> values_;
};

}  // namespace cairn
