// Outputs of the operators RNN, LSTM and GRU, as long as it is open which layer gives them. Y, [steps, directions,
// batch, units], Y_h and Y_c, [directions, batch, units], are outputs of an operator; a layer has one. Here are values
// that are all steps of one direction, in either order, or last states of directions, also of several operators, as
// PyTorch joins those of its layers to h_n. An operator that only moves, picks or joins them gives another such value.
// Any other one reads the value of a layer, an OnnxView, which has the batch where the operator expects it.
//
// A layer returns all steps if something reads Y, otherwise its last states. Those of the former are cut from its
// output. If something reads Y_c, the layer's outputs are followed by its states, and outputs and cell states are cut
// from that.
//
// Used once, on one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/model/onnx/onnx_recurrence.h"
#include "common/model/onnx/onnx_view.h"

namespace cairn {

class OnnxImporter;

// All steps of an operator with one direction: a view of its layer's output [steps, units].
struct OnnxSteps {
  std::shared_ptr<OnnxRecurrence> recurrence;
  OnnxView view;
  int axis = 0;         // of view.dims: the steps
  bool turned = false;  // the layer has them in the opposite order
};

struct OnnxState {
  std::shared_ptr<OnnxRecurrence> recurrence;
  int64_t direction = 0;
  bool cell = false;  // of an LSTM, the cell state
};

// Last states. stacked: [states, batch, units], or [batch, states, units] if batch is 0; otherwise
// [batch, states * units].
struct OnnxStates {
  std::vector<OnnxState> states;
  bool stacked = true;
  int batch = 1;
};

// What a Gather with constant indices or a Slice picks of one axis.
struct OnnxPick {
  int axis = 0;                 // of dims
  std::vector<int64_t> places;  // 0 or larger
  bool keeps_axis = true;       // false: one place without an axis of its own
};

// Reads the recurrent operators, and those that only move, pick or join their outputs.
class OnnxStepReader {
 public:
  OnnxStepReader(OnnxImporter& importer, std::set<const onnx::NodeProto*> last_only)
      : importer_(importer), last_only_(std::move(last_only)) {}

  // Reads the importer's current operator if it is one of them. Otherwise returns false; its inputs then are views or
  // constants. Errors: INVALID_ARGUMENT, UNIMPLEMENTED; without the node's name.
  absl::StatusOr<bool> Read();
  // Makes the value a view of a layer's output if it is one of those kept here.
  absl::Status Resolve(const std::string& value);
  // The operators whose layer returns all steps, although only their last states are read.
  std::set<const onnx::NodeProto*> LastOnly() const;

 private:
  absl::StatusOr<bool> ReadSteps(const OnnxSteps& x);
  absl::StatusOr<bool> ReadStates(const OnnxStates& x);
  absl::StatusOr<bool> JoinStates();
  absl::Status ReadRecurrent();
  absl::StatusOr<OnnxRecurrentWeights> ReadWeights(const OnnxRecurrence& r, const Shape& sequence) const;
  absl::Status PlaceInputs(const OnnxView& sequence, OnnxRecurrence* r);
  absl::StatusOr<std::vector<int>> PlaceStates(int input, const OnnxRecurrence& r);
  // A layer that gives these numbers for each example, from the sequence that layer `from` gives.
  absl::StatusOr<int> ConstantLayer(std::vector<float> numbers, int from);

  // ---- layers ----
  absl::StatusOr<OnnxView> ViewOf(const OnnxSteps& x);
  absl::StatusOr<OnnxView> ViewOf(const OnnxStates& x);
  absl::StatusOr<int> LayerOf(const OnnxState& state);  // [units]
  absl::StatusOr<int> OutputsOf(OnnxRecurrence& r);     // OnnxRecurrenceLayers::outputs
  absl::StatusOr<int> PartOf(const OnnxRecurrence& r, int64_t direction, bool cell);

  OnnxImporter& importer_;
  const std::set<const onnx::NodeProto*> last_only_;
  std::map<const onnx::NodeProto*, std::shared_ptr<OnnxRecurrence>> recurrences_;
  std::map<std::string, OnnxSteps> steps_;  // by value
  std::map<std::string, OnnxStates> states_;
  std::set<std::string> resolved_;
};

}  // namespace cairn
