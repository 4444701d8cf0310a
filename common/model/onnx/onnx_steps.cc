#include "common/model/onnx/onnx_steps.h"

#include <algorithm>
#include <utility>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/onnx/onnx_attributes.h"
#include "common/model/onnx/onnx_importer.h"

namespace cairn {
namespace {

absl::Status Unreadable() {
  return Lacks(
      "it rearranges a value with the steps before the batch in a way that is not supported; transpose it to "
      "[batch,steps,features] first");
}

}  // namespace

bool OnnxStepReader::Takes() const {
  const onnx::NodeProto& node = importer_.node();
  if (IsRecurrentOperator(node.op_type())) return true;
  if (!importer_.HasInput(0)) return false;
  if (values_.contains(node.input(0))) return true;
  const absl::StatusOr<OnnxView> x = importer_.ViewOf(0);
  if (!x.ok()) return false;
  if (node.op_type() == "Transpose") {
    return x->dims.size() == 2 && OnnxAttributes(node).Ints("perm") == std::vector<int64_t>{1, 0, 2};
  }
  if (node.op_type() != "Unsqueeze" || x->dims.size() != 1) return false;
  const absl::StatusOr<std::vector<int64_t>> axes = importer_.AxesGiven();
  return axes.ok() && *axes == std::vector<int64_t>{0};
}

absl::Status OnnxStepReader::Become(OnnxSteps x, OnnxSteps::Form form) {
  x.form = form;
  values_[importer_.node().output(0)] = std::move(x);
  return absl::OkStatus();
}

absl::Status OnnxStepReader::End(OnnxRecurrence* r, bool sequences) {
  if (r->made >= 0 && r->sequences != sequences) {
    return Lacks("both its sequence and its last state are used; a layer has one output");
  }
  if (r->made < 0) {
    if (sequences) r->GiveSequences();
    CAIRN_ASSIGN_OR_RETURN(r->made, importer_.AddLayer(r->kind, r->layer, r->inputs, std::move(r->variables)));
  }
  importer_.SetView(OnnxView::Of(r->made, importer_.layers().ShapeOf(r->made)));
  return absl::OkStatus();
}

absl::Status OnnxStepReader::Read() {
  const std::string& type = importer_.node().op_type();
  if (IsRecurrentOperator(type)) return ReadRecurrent();
  const auto found = values_.find(importer_.node().input(0));
  if (found == values_.end()) {  // an operator with batch-first input
    OnnxSteps x;
    CAIRN_ASSIGN_OR_RETURN(x.view, importer_.ViewOf(0));
    return Become(std::move(x), type == "Transpose" ? OnnxSteps::kSequence : OnnxSteps::kState);
  }
  const OnnxSteps x = found->second;
  if (type == "Identity") return Become(x, x.form);
  if (type == "Transpose") return ReadTranspose(x);
  if (type == "Squeeze") return ReadSqueeze(x);
  if (type == "Gather") return ReadGather(x);
  if (type == "Reshape" || type == "Flatten") return ReadReshape(x);
  return Unreadable();
}

absl::Status OnnxStepReader::ReadTranspose(const OnnxSteps& x) {
  OnnxAttributes attributes(importer_.node());
  const std::vector<int64_t> perm = attributes.Ints("perm");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  const bool swap = perm == std::vector<int64_t>{1, 0, 2};
  if (x.form == OnnxSteps::kOutput && perm == std::vector<int64_t>{0, 2, 1, 3}) {
    return Become(x, OnnxSteps::kOutputBatch);
  }
  if (x.form == OnnxSteps::kLast && swap) return Become(x, OnnxSteps::kLastBatch);
  if (x.form == OnnxSteps::kSequence && swap) {
    importer_.SetView(x.view);
    return absl::OkStatus();
  }
  const bool turned = x.form == OnnxSteps::kOutputTurned, rows = x.form == OnnxSteps::kOutputRows;
  if (!swap || !(turned || rows)) return Unreadable();
  OnnxRecurrence* const r = x.recurrence.get();
  if (r->reverse != turned && r->directions == 1) {
    return Lacks(
        "a sequence that is computed backwards keeps its own order there; Cairn's are in the order of "
        "computation, except those of a bidirectional operator");
  }
  return End(r, true);
}

absl::Status OnnxStepReader::ReadSqueeze(const OnnxSteps& x) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, importer_.AxesGiven());
  OnnxRecurrence* const r = x.recurrence.get();
  if (r == nullptr || r->directions != 1) return Unreadable();
  if (x.form == OnnxSteps::kOutput && axes == std::vector<int64_t>{1}) return Become(x, OnnxSteps::kOutputRows);
  const int64_t axis = x.form == OnnxSteps::kLast ? 0 : 1;
  if ((x.form != OnnxSteps::kLast && x.form != OnnxSteps::kLastBatch) || axes != std::vector<int64_t>{axis}) {
    return Unreadable();
  }
  return End(r, false);
}

absl::Status OnnxStepReader::ReadGather(const OnnxSteps& x) {
  const OnnxRecurrence* const r = x.recurrence.get();
  if (x.form != OnnxSteps::kOutputRows || r->directions != 1) return Unreadable();
  OnnxAttributes attributes(importer_.node());
  attributes.Only("axis", 0, "of steps alone");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(std::vector<int64_t> places, importer_.IntsOf(1, "indices"));
  for (int64_t& place : places) place += place < 0 ? r->steps : 0;
  if (places == std::vector<int64_t>{r->reverse ? 0 : r->steps - 1}) return Become(x, OnnxSteps::kLast);
  std::vector<int64_t> backwards;
  for (int64_t step = r->steps; step-- > 0;) backwards.push_back(step);
  return places == backwards ? Become(x, OnnxSteps::kOutputTurned) : Unreadable();
}

absl::Status OnnxStepReader::ReadReshape(const OnnxSteps& x) {
  const bool flatten = importer_.node().op_type() == "Flatten";
  std::vector<int64_t> target;
  if (!flatten) {
    CAIRN_ASSIGN_OR_RETURN(target, importer_.IntsOf(1, "shape"));
  }
  OnnxRecurrence* const r = x.recurrence.get();
  const int64_t joined = r == nullptr ? 0 : r->directions * r->units;
  if (x.form == OnnxSteps::kOutputBatch && target.size() == 3 && (target[2] == -1 || target[2] == joined)) {
    return Become(x, OnnxSteps::kOutputRows);
  }
  const bool row = flatten || (target.size() == 2 && (target[1] == -1 || target[1] == joined));
  return x.form == OnnxSteps::kLastBatch && row ? End(r, false) : Unreadable();
}

// ---- recurrent operators ----

absl::Status OnnxStepReader::ReadRecurrent() {
  const onnx::NodeProto& node = importer_.node();
  const auto r = std::make_shared<OnnxRecurrence>();
  CAIRN_ASSIGN_OR_RETURN(*r, OnnxRecurrence::Of(node));
  const auto sequence = importer_.HasInput(0) ? values_.find(node.input(0)) : values_.end();
  if (sequence == values_.end() || sequence->second.form != OnnxSteps::kSequence) {
    return Lacks("its input is not a sequence whose steps a Transpose brought before the batch");
  }
  const OnnxView x = sequence->second.view;
  r->steps = x.dims[0];
  CAIRN_ASSIGN_OR_RETURN(const OnnxRecurrentWeights weights, ReadWeights(*r, x.dims));
  CAIRN_RETURN_IF_ERROR(PlaceInputs(x, r.get()));
  r->TakeWeights(weights, x.dims[1]);
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty() || importer_.UsersOf(i).empty()) continue;
    if (i == 2) return Lacks("its last cell state is used; a layer has one output");
    OnnxSteps output;
    output.form = i == 0 ? OnnxSteps::kOutput : OnnxSteps::kLast;
    output.recurrence = r;
    values_[node.output(i)] = std::move(output);
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

// Sets the layer's inputs: the sequence, and the initial states unless they are zeros.
absl::Status OnnxStepReader::PlaceInputs(const OnnxView& sequence, OnnxRecurrence* r) {
  CAIRN_ASSIGN_OR_RETURN(const int from, importer_.layers().Place(sequence));
  r->inputs = {from};
  for (int i = 5; i <= 6; ++i) {
    if (!importer_.HasInput(i)) continue;
    if (importer_.IsConstant(i)) {
      CAIRN_ASSIGN_OR_RETURN(const OnnxTensor state, importer_.ConstantOf(i, "initial state"));
      if (std::all_of(state.floats.begin(), state.floats.end(), [](float f) { return f == 0; })) continue;
    }
    const auto state = values_.find(importer_.node().input(i));
    if (state == values_.end() || state->second.form != OnnxSteps::kState || r->directions != 1)
      return Lacks("its first state is neither zeros nor a layer's output");
    CAIRN_ASSIGN_OR_RETURN(const int placed, importer_.layers().Place(state->second.view));
    r->inputs.push_back(placed);
  }
  return absl::OkStatus();
}

}  // namespace cairn
