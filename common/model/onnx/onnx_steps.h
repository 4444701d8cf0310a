// Values of an ONNX graph whose steps, or directions, stand before the batch: what the operators RNN, LSTM and GRU take
// and give. They lead from a Transpose to a Transpose. A recurrent operator becomes a layer when it is known which of
// its outputs is used: a layer has one.
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

// Reads operators that take or give such values.
class OnnxStepReader {
 public:
  explicit OnnxStepReader(OnnxImporter& importer) : importer_(importer) {}

  // Whether the importer's operator at hand is one of them.
  bool Takes() const;
  // Reads it. Errors: INVALID_ARGUMENT, UNIMPLEMENTED; without the node's name.
  absl::Status Read();

 private:
  // The operator's output is x in another form.
  absl::Status Become(OnnxSteps x, OnnxSteps::Form form);
  // The operator's output is a layer's: all its steps, or the last one.
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
