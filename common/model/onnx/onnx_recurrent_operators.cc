// The operators RNN, LSTM and GRU as layers: their weights, and their first states. Those that are constant, and not
// zeros, are given by layers that are not trained.
#include <algorithm>
#include <utility>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_steps.h"

namespace cairn {

absl::Status OnnxStepReader::ReadRecurrent() {
  const onnx::NodeProto& node = importer_.node();
  const auto r = std::make_shared<OnnxRecurrence>();
  CAIRN_ASSIGN_OR_RETURN(*r, OnnxRecurrence::Of(node));
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer_.LaidViewOf(0));
  if (x.dims.size() != 2 || x.batch != 1) {
    return Lacks("its input ", ToString(x.dims), " with the batch on axis ", x.batch,
                 " is not [steps,batch,features]; a Transpose has to bring the steps before the batch");
  }
  r->steps = x.dims[0];
  CAIRN_ASSIGN_OR_RETURN(const OnnxRecurrentWeights weights, ReadWeights(*r, x.dims));
  CAIRN_RETURN_IF_ERROR(PlaceInputs(x, r.get()));
  r->TakeWeights(weights, x.dims[1]);
  const auto used = [&](int i) {
    return node.output_size() > i && !node.output(i).empty() && !importer_.UsersOf(i).empty();
  };
  if (used(2) && node.op_type() != "LSTM") return Bad("its output 2 is used, and only an LSTM has one");
  if (used(2)) r->GiveCells();
  if (used(0) && !last_only_.contains(&node)) r->GiveSequences();
  CAIRN_ASSIGN_OR_RETURN(r->layers.whole, importer_.AddLayer(r->kind, r->layer, r->inputs, std::move(r->variables)));
  recurrences_[&node] = r;
  if (used(0)) {
    CAIRN_ASSIGN_OR_RETURN(const int outputs, OutputsOf(*r));
    const OnnxView y = OnnxView::Of(outputs, {r->steps, r->directions * r->units})
                           .As({r->steps, r->directions, r->units})
                           .WithBatchAt(2);
    if (r->directions == 1) steps_[node.output(0)] = {r, y, 0, r->reverse};
    if (r->directions == 2) {
      r->layers.steps_read = true;
      importer_.SetValue(node.output(0), y);
    }
  }
  for (const int output : {1, 2}) {
    if (!used(output)) continue;
    OnnxStates last;
    for (int64_t d = 0; d < r->directions; ++d) last.states.push_back({r, d, output == 2});
    states_[node.output(output)] = std::move(last);
  }
  return absl::OkStatus();
}

// sequence: [steps, features].
absl::StatusOr<OnnxRecurrentWeights> OnnxStepReader::ReadWeights(const OnnxRecurrence& r, const Shape& sequence) const {
  OnnxRecurrentWeights weights;
  CAIRN_ASSIGN_OR_RETURN(weights.w, importer_.ConstantOf(1, "W"));
  CAIRN_ASSIGN_OR_RETURN(weights.r, importer_.ConstantOf(2, "R"));
  if (r.units < 1 || weights.w.whole || weights.r.whole ||
      weights.w.dims != Shape{r.directions, r.width(), sequence[1]} ||
      weights.r.dims != Shape{r.directions, r.width(), r.units}) {
    return Bad("W ", ToString(weights.w.dims), " and R ", ToString(weights.r.dims), " do not fit hidden_size ", r.units,
               " on ", ToString(sequence));
  }
  if (importer_.HasInput(3)) {
    CAIRN_ASSIGN_OR_RETURN(weights.biases, importer_.FloatsOf(3, "B", r.directions * 2 * r.width()));
  }
  if (importer_.HasInput(4)) return Lacks("sequence_lens; give sequences of one length");
  if (importer_.HasInput(7)) return Lacks("P, weights of peepholes");
  return weights;
}

// Sets the layer's inputs: the sequence, and the initial states unless all are zeros: h, and c of an LSTM, of each
// direction.
absl::Status OnnxStepReader::PlaceInputs(const OnnxView& sequence, OnnxRecurrence* r) {
  CAIRN_ASSIGN_OR_RETURN(const int from, importer_.layers().Place(sequence));
  r->inputs = {from};
  const size_t count = r->kind == LayerKind::kLSTM ? 2 : 1, directions = static_cast<size_t>(r->directions);
  std::vector<std::vector<int>> states;
  for (size_t i = 0; i < count; ++i) {
    CAIRN_ASSIGN_OR_RETURN(states.emplace_back(), PlaceStates(static_cast<int>(5 + i), *r));
  }
  if (std::all_of(states.begin(), states.end(), [](const auto& of_input) { return of_input.empty(); })) {
    return absl::OkStatus();
  }
  for (size_t d = 0; d < directions; ++d) {
    for (size_t i = 0; i < count; ++i) {
      if (states[i].empty()) {
        CAIRN_ASSIGN_OR_RETURN(const int zeros,
                               ConstantLayer(std::vector<float>(static_cast<size_t>(r->units), 0.0f), from));
        r->inputs.push_back(zeros);
      } else {
        r->inputs.push_back(states[i][d]);
      }
    }
  }
  return absl::OkStatus();
}

// The layers that give the initial states in this input, by direction; none: they are zeros. r.inputs has the sequence.
absl::StatusOr<std::vector<int>> OnnxStepReader::PlaceStates(int input, const OnnxRecurrence& r) {
  std::vector<int> states;
  if (!importer_.HasInput(input)) return states;
  if (!importer_.IsConstant(input)) {
    if (r.directions != 1) return Lacks("first states of two directions that are computed; give constant ones");
    CAIRN_ASSIGN_OR_RETURN(const OnnxView state, importer_.LaidViewOf(input));
    if (state.dims != Shape{1, r.units} || state.batch != 1) {
      return Lacks("its first state is neither constant nor one layer's [1,batch,", r.units, "], but ",
                   ToString(state.dims), " with the batch on axis ", state.batch);
    }
    CAIRN_ASSIGN_OR_RETURN(const int placed, importer_.layers().Place(state.As({r.units})));
    return std::vector<int>{placed};
  }
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor state, importer_.ConstantOf(input, "initial state"));
  if (std::all_of(state.floats.begin(), state.floats.end(), [](float f) { return f == 0; })) return states;
  if (state.dims.size() != 3 || state.dims[0] != r.directions || state.dims[1] < 1 || state.dims[2] != r.units) {
    return Bad("its first state ", ToString(state.dims), " is not [", r.directions, ",batch,", r.units, "]");
  }
  const int64_t examples = state.dims[1];
  for (int64_t d = 0; d < r.directions; ++d) {
    const auto first = state.floats.begin() + d * examples * r.units;
    for (int64_t e = 1; e < examples; ++e) {
      if (std::equal(first, first + r.units, first + e * r.units)) continue;
      return Lacks("its first state is a constant that differs from example to example; give one for all of them");
    }
    CAIRN_ASSIGN_OR_RETURN(const int made, ConstantLayer(std::vector<float>(first, first + r.units), r.inputs[0]));
    states.push_back(made);
  }
  return states;
}

// A dense layer that is not trained, whose kernel is 0, on a step of the sequence.
absl::StatusOr<int> OnnxStepReader::ConstantLayer(std::vector<float> numbers, int from) {
  v1::Layer first;
  first.mutable_slice()->add_axes()->set_drop(true);
  const int64_t features = importer_.layers().ShapeOf(from).back(), units = static_cast<int64_t>(numbers.size());
  CAIRN_ASSIGN_OR_RETURN(const int step, importer_.AddLayer(LayerKind::kSlice, first, {from}));
  v1::Layer layer;
  layer.set_trainable(false);
  layer.mutable_dense()->set_units(static_cast<int32_t>(units));
  std::vector<float> zeros(static_cast<size_t>(features * units), 0.0f);
  return importer_.AddLayer(LayerKind::kDense, layer, {step},
                            {{"kernel", {features, units}, std::move(zeros)}, {"bias", {units}, std::move(numbers)}});
}

}  // namespace cairn
