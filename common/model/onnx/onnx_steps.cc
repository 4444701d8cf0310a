#include "common/model/onnx/onnx_steps.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_arrange.h"
#include "common/model/onnx/onnx_attributes.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_operations.h"
#include "common/model/slice_range.h"

namespace cairn {
namespace {

// Of the current operator, a Gather or a Slice, on a value as x is. nullopt: it picks of several axes, or by places
// that are no constant.
absl::StatusOr<std::optional<OnnxPick>> PickOf(OnnxImporter& importer, const OnnxView& x) {
  OnnxPick pick;
  if (importer.node().op_type() == "Gather") {
    if (!importer.HasInput(1) || !importer.IsConstant(1)) return std::nullopt;
    OnnxAttributes attributes(importer.node());
    CAIRN_ASSIGN_OR_RETURN(pick.axis, x.AxisOf(attributes.Int("axis", 0)));
    CAIRN_RETURN_IF_ERROR(attributes.Finish());
    CAIRN_ASSIGN_OR_RETURN(const OnnxTensor indices, importer.ConstantOf(1, "indices"));
    if (indices.dims.size() > 1) return std::nullopt;
    CAIRN_ASSIGN_OR_RETURN(pick.places, importer.IntsOf(1, "indices"));
    pick.keeps_axis = indices.dims.size() == 1;
    const int64_t size = x.dims[static_cast<size_t>(pick.axis)];
    for (int64_t& place : pick.places) {
      if (place < -size || place >= size) return Bad("index ", place, " is not on an axis of ", size);
      place += place < 0 ? size : 0;
    }
    return pick;
  }
  CAIRN_ASSIGN_OR_RETURN(const v1::Slice slice, OnnxSliceOf(importer, x));
  int cut = 0;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    const SliceRange range = RangeOf(slice.axes(static_cast<int>(i)), x.dims[i]);
    if (range.count == x.dims[i] && range.step == 1) continue;
    ++cut;
    pick.axis = static_cast<int>(i);
  }
  if (cut > 1) return std::nullopt;
  const SliceRange range = RangeOf(slice.axes(pick.axis), x.dims[static_cast<size_t>(pick.axis)]);
  if (range.count == 0) return Bad("it leaves nothing of an axis of ", x.dims[static_cast<size_t>(pick.axis)]);
  if (range.count > kOnnxFoldedNumbersMax) return std::nullopt;
  for (int64_t i = 0; i < range.count; ++i) pick.places.push_back(range.begin + i * range.step);
  return pick;
}

bool AreAll(const std::vector<int64_t>& places, int64_t size, bool backwards) {
  if (static_cast<int64_t>(places.size()) != size) return false;
  for (int64_t i = 0; i < size; ++i) {
    if (places[static_cast<size_t>(i)] != (backwards ? size - 1 - i : i)) return false;
  }
  return true;
}

// The shape of states, as PickOf and AxisOf need it.
OnnxView ShapeOfStates(const OnnxStates& x) {
  const int64_t count = static_cast<int64_t>(x.states.size()), units = x.states[0].recurrence->units;
  OnnxView view;
  view.dims = {units};
  if (x.stacked) view.dims = {count, units};
  view.batch = x.batch;
  return view;
}

}  // namespace

absl::StatusOr<bool> OnnxStepReader::Read() {
  const onnx::NodeProto& node = importer_.node();
  const bool recurrent = IsRecurrentOperator(node.op_type());
  if (!recurrent && importer_.HasInput(0)) {
    const std::string& from = node.input(0);
    const auto steps = steps_.find(from);
    const auto states = states_.find(from);
    bool read = false;
    if (steps != steps_.end()) {
      CAIRN_ASSIGN_OR_RETURN(read, ReadSteps(OnnxSteps(steps->second)));
    } else if (states != states_.end() && node.op_type() == "Concat") {
      CAIRN_ASSIGN_OR_RETURN(read, JoinStates());
    } else if (states != states_.end()) {
      CAIRN_ASSIGN_OR_RETURN(read, ReadStates(OnnxStates(states->second)));
    }
    if (read) return true;
  }
  for (const std::string& input : node.input()) CAIRN_RETURN_IF_ERROR(Resolve(input));
  if (recurrent) CAIRN_RETURN_IF_ERROR(ReadRecurrent());
  return recurrent;
}

absl::StatusOr<bool> OnnxStepReader::ReadSteps(const OnnxSteps& x) {
  const std::string& type = importer_.node().op_type();
  OnnxSteps y = x;
  if (type == "Transpose") {
    CAIRN_ASSIGN_OR_RETURN(const OnnxOrder order, OnnxOrderOf(importer_, x.view));
    const std::optional<OnnxView> view = x.view.Transposed(order.dims);
    if (!view.has_value()) return false;
    y.view = view->WithBatchAt(order.batch);
    y.axis = InverseOrder(order.dims)[static_cast<size_t>(x.axis)];
  } else if (type == "Squeeze") {
    CAIRN_ASSIGN_OR_RETURN(const std::set<int> gone, OnnxSqueezedAxes(importer_, x.view));
    if (gone.contains(x.axis)) return false;
    y.view = OnnxWithoutAxes(x.view, gone);
    for (const int axis : gone) y.axis -= axis < x.axis;
  } else if (type == "Gather" || type == "Slice") {
    CAIRN_ASSIGN_OR_RETURN(const std::optional<OnnxPick> pick, PickOf(importer_, x.view));
    if (!pick.has_value() || pick->axis != x.axis || x.view.dims.size() != 2) return false;
    const int64_t steps = x.recurrence->steps;
    if (pick->places == std::vector<int64_t>{x.turned ? 0 : steps - 1}) {
      if (x.axis != 0) return false;
      if (x.view.batch > 1) return false;
      OnnxStates last;
      last.states = {{x.recurrence, 0}};
      last.stacked = pick->keeps_axis;
      last.batch = last.stacked ? x.view.batch : 0;
      states_[importer_.node().output(0)] = std::move(last);
      return true;
    }
    const bool backwards = AreAll(pick->places, steps, true);
    if (!pick->keeps_axis || (!backwards && !AreAll(pick->places, steps, false))) return false;
    y.turned = backwards != x.turned;
  } else if (type != "Identity") {
    return false;
  }
  steps_[importer_.node().output(0)] = std::move(y);
  return true;
}

absl::StatusOr<bool> OnnxStepReader::ReadStates(const OnnxStates& x) {
  const std::string& type = importer_.node().op_type();
  OnnxStates y = x;
  if (type == "Identity") {
    states_[importer_.node().output(0)] = std::move(y);
    return true;
  }
  if (!x.stacked) return false;
  const OnnxView shape = ShapeOfStates(x);
  if (type == "Squeeze") {
    CAIRN_ASSIGN_OR_RETURN(const std::set<int> gone, OnnxSqueezedAxes(importer_, shape));
    if (gone != std::set<int>{0}) return false;
    y.stacked = false;
  } else if (type == "Transpose") {
    CAIRN_ASSIGN_OR_RETURN(const OnnxOrder order, OnnxOrderOf(importer_, shape));
    if (order.dims[0] != 0 || order.batch > 1) return false;
    y.batch = order.batch;
  } else if (type == "Gather" || type == "Slice") {
    CAIRN_ASSIGN_OR_RETURN(const std::optional<OnnxPick> pick, PickOf(importer_, shape));
    if (!pick.has_value() || pick->axis != 0 || pick->places.empty()) return false;
    y.states.clear();
    for (const int64_t place : pick->places) y.states.push_back(x.states[static_cast<size_t>(place)]);
    y.stacked = pick->keeps_axis;
  } else {
    return false;
  }
  if (!y.stacked) y.batch = 0;
  states_[importer_.node().output(0)] = std::move(y);
  return true;
}

// A Concat of states: PyTorch joins those of all layers to h_n, and cat([h_n[-2], h_n[-1]], 1) those of two directions.
absl::StatusOr<bool> OnnxStepReader::JoinStates() {
  const OnnxStates first = states_.at(importer_.node().input(0));
  OnnxAttributes attributes(importer_.node());
  CAIRN_ASSIGN_OR_RETURN(const int axis, ShapeOfStates(first).AxisOf(attributes.Int("axis", 0)));
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (axis != 0) return false;
  OnnxStates joined = first;
  joined.states.clear();
  for (const std::string& input : importer_.node().input()) {
    const auto states = states_.find(input);
    if (states == states_.end()) return false;
    const OnnxStates& x = states->second;
    if (x.stacked != first.stacked || x.batch != first.batch) return false;
    for (const OnnxState& state : x.states) {
      if (x.stacked && state.recurrence->units != first.states[0].recurrence->units) return false;
      joined.states.push_back(state);
    }
  }
  states_[importer_.node().output(0)] = std::move(joined);
  return true;
}

// ---- layers ----

absl::Status OnnxStepReader::Resolve(const std::string& value) {
  if (!resolved_.insert(value).second) return absl::OkStatus();
  if (const auto steps = steps_.find(value); steps != steps_.end()) {
    CAIRN_ASSIGN_OR_RETURN(OnnxView view, ViewOf(steps->second));
    importer_.SetValue(value, std::move(view));
  }
  if (const auto states = states_.find(value); states != states_.end()) {
    CAIRN_ASSIGN_OR_RETURN(OnnxView view, ViewOf(states->second));
    importer_.SetValue(value, std::move(view));
  }
  return absl::OkStatus();
}

absl::StatusOr<OnnxView> OnnxStepReader::ViewOf(const OnnxSteps& x) {
  OnnxRecurrence& r = *x.recurrence;
  if (!r.sequences) return absl::InternalError("all steps are read of a layer that returns the last one");
  r.layers.steps_read = true;
  OnnxView view = x.view;
  if (!x.turned) return view;
  if (r.layers.turned < 0) {
    v1::Layer layer;
    layer.mutable_slice()->add_axes()->set_step(-1);
    CAIRN_ASSIGN_OR_RETURN(const int outputs, OutputsOf(r));
    CAIRN_ASSIGN_OR_RETURN(r.layers.turned, importer_.AddLayer(LayerKind::kSlice, layer, {outputs}));
  }
  view.layer = r.layers.turned;
  return view;
}

// Of a layer that gives its states: [output, h, c] of each direction. The outputs of all its steps, or its last cell
// state.
absl::StatusOr<int> OnnxStepReader::PartOf(const OnnxRecurrence& r, int64_t direction, bool cell) {
  v1::Layer layer;
  v1::Slice* const slice = layer.mutable_slice();
  if (r.sequences) {
    v1::Slice::Axis* const steps = slice->add_axes();
    if (cell) steps->set_begin(static_cast<int32_t>(direction == 0 ? r.steps - 1 : 0));
    if (cell) steps->set_drop(true);
  }
  const int64_t begin = (3 * direction + (cell ? 2 : 0)) * r.units;
  v1::Slice::Axis* const units = slice->add_axes();
  units->set_begin(static_cast<int32_t>(begin));
  units->set_end(static_cast<int32_t>(begin + r.units));
  return importer_.AddLayer(LayerKind::kSlice, layer, {r.layers.whole});
}

absl::StatusOr<int> OnnxStepReader::OutputsOf(OnnxRecurrence& r) {
  if (r.layers.outputs >= 0) return r.layers.outputs;
  if (!r.cells) return r.layers.outputs = r.layers.whole;
  CAIRN_ASSIGN_OR_RETURN(const int forward, PartOf(r, 0, false));
  if (r.directions == 1) return r.layers.outputs = forward;
  CAIRN_ASSIGN_OR_RETURN(const int backward, PartOf(r, 1, false));
  v1::Layer layer;
  layer.mutable_concatenate();
  CAIRN_ASSIGN_OR_RETURN(r.layers.outputs, importer_.AddLayer(LayerKind::kConcatenate, layer, {forward, backward}));
  return r.layers.outputs;
}

absl::StatusOr<int> OnnxStepReader::LayerOf(const OnnxState& state) {
  OnnxRecurrence& r = *state.recurrence;
  if (state.cell) {
    int& cell = r.layers.last_cell[state.direction];
    if (cell >= 0) return cell;
    CAIRN_ASSIGN_OR_RETURN(cell, PartOf(r, state.direction, true));
    return cell;
  }
  CAIRN_ASSIGN_OR_RETURN(const int outputs, OutputsOf(r));
  if (!r.sequences && r.directions == 1) return outputs;
  int& made = r.layers.last_state[state.direction];
  if (made >= 0) return made;
  v1::Layer layer;
  v1::Slice* const slice = layer.mutable_slice();
  if (r.sequences) {  // the last step, which is the first one of a bidirectional layer's way back
    v1::Slice::Axis* const step = slice->add_axes();
    step->set_begin(static_cast<int32_t>(state.direction == 0 ? r.steps - 1 : 0));
    step->set_drop(true);
  }
  if (r.directions == 2) {
    v1::Slice::Axis* const units = slice->add_axes();
    units->set_begin(static_cast<int32_t>(state.direction * r.units));
    units->set_end(static_cast<int32_t>((state.direction + 1) * r.units));
  }
  CAIRN_ASSIGN_OR_RETURN(made, importer_.AddLayer(LayerKind::kSlice, layer, {outputs}));
  return made;
}

absl::StatusOr<OnnxView> OnnxStepReader::ViewOf(const OnnxStates& x) {
  std::vector<int> parts;
  int64_t features = 0;
  for (size_t i = 0; i < x.states.size(); ++i) {
    const OnnxState& state = x.states[i];
    features += state.recurrence->units;
    const bool both = !state.recurrence->sequences && state.recurrence->directions == 2 && state.direction == 0 &&
                      i + 1 < x.states.size() && x.states[i + 1].recurrence == state.recurrence &&
                      x.states[i + 1].direction == 1 && !state.cell && !x.states[i + 1].cell;
    if (both) {
      CAIRN_ASSIGN_OR_RETURN(const int outputs, OutputsOf(*state.recurrence));
      parts.push_back(outputs);
      features += state.recurrence->units;
      ++i;
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const int part, LayerOf(state));
    parts.push_back(part);
  }
  int id = parts[0];
  if (parts.size() > 1) {
    v1::Layer layer;
    layer.mutable_concatenate();
    CAIRN_ASSIGN_OR_RETURN(id, importer_.AddLayer(LayerKind::kConcatenate, layer, parts));
  }
  const OnnxView view = OnnxView::Of(id, {features});
  if (!x.stacked) return view;
  return view.As(ShapeOfStates(x).dims).WithBatchAt(x.batch);
}

std::set<const onnx::NodeProto*> OnnxStepReader::LastOnly() const {
  std::set<const onnx::NodeProto*> nodes;
  for (const auto& [node, r] : recurrences_) {
    const bool read = r->layers.last_state[0] >= 0 || r->layers.last_state[1] >= 0 || r->layers.last_cell[0] >= 0 ||
                      r->layers.last_cell[1] >= 0;
    if (r->sequences && !r->layers.steps_read && read) nodes.insert(node);
  }
  return nodes;
}

}  // namespace cairn
