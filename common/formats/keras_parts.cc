// Layers of Keras that become several of Cairn's: those that take one number an example without an axis, and a Softmax
// over several axes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/formats/keras_converter.h"

namespace cairn {

absl::StatusOr<KerasScalarUse> KerasConverter::ScalarsOf(const Entry& entry, const KerasCall& call, v1::Layer* layer) {
  if (layer->has_input()) {
    if (!layer->input().shape().empty()) return KerasScalarUse::kShape;
    if (!layer->input().text()) layer->mutable_input()->add_shape(1);
    return KerasScalarUse::kScalar;
  }
  const auto is_scalar = [&](const std::string& input) {
    const auto shape = shapes_.find(input);
    return shape != shapes_.end() && shape->second.empty();
  };
  const auto count = std::count_if(call.inputs.begin(), call.inputs.end(), is_scalar);
  if (count == 0) return KerasScalarUse::kShape;
  const absl::StatusOr<KerasScalarUse> use = UseOfScalars(layer, count == static_cast<int64_t>(call.inputs.size()));
  if (!use.ok()) {
    return Annotate(use.status(), absl::StrCat("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type), ")"));
  }
  if (*use != KerasScalarUse::kScalar) return use;
  // Indices of texts without an axis are indices of texts with an axis of one.
  for (v1::Layer& input : *result_.model.mutable_layers()) {
    const bool taken = std::count(call.inputs.begin(), call.inputs.end(), input.name()) > 0;
    if (taken && input.input().text() && input.input().shape().empty()) input.mutable_input()->add_shape(1);
  }
  return use;
}

std::string KerasConverter::AppendScalarPart(const Entry& entry, const std::string& name, KerasScalarUse use) {
  const auto shape = shapes_.find(name);
  if (use == KerasScalarUse::kShape || shape == shapes_.end()) return name;
  if (use == KerasScalarUse::kScalar) {
    shape->second.clear();
    return name;
  }
  v1::Layer part;
  for (size_t i = 1; i < shape->second.size(); ++i) {
    part.mutable_reshape()->add_target_shape(static_cast<int32_t>(shape->second[i]));
  }
  return AppendPart(entry, name, std::move(part));
}

absl::StatusOr<Shape> KerasConverter::ShapeOf(const Entry& entry, const std::string& input) const {
  if (const auto shape = shapes_.find(input); shape != shapes_.end()) return shape->second;
  CAIRN_RETURN_IF_ERROR(Graph::Build(result_.model).status());
  return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type), "): the shape of its input \"",
             ShownText(input), "\" is not known");
}

absl::Status KerasConverter::CheckStepJoin(const Entry& entry, const KerasCall& call) const {
  if (entry.class_before_steps != entry.type || call.inputs.size() < 2) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const Shape first, ShapeOf(entry, call.inputs[0]));
  for (const std::string& input : call.inputs) {
    CAIRN_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(entry, input));
    if (shape.size() == first.size()) continue;
    return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type),
               "): in a TimeDistributed of a model it joins inputs with different numbers of axes, ", ToString(first),
               " and ", ToString(shape), "; bring them to the same number by Reshape");
  }
  return absl::OkStatus();
}

std::string KerasConverter::AppendPart(const Entry& entry, const std::string& input, v1::Layer part) {
  part.set_name(NameOfCall(entry.name, "part"));
  part.add_inputs(input);
  std::string name = part.name();
  PushAt(std::move(part), "");
  return name;
}

absl::StatusOr<std::string> KerasConverter::AppendSoftmax(const Entry& entry, const KerasCall& call,
                                                          std::vector<int> axes) {
  const auto bad = [&](absl::string_view what) {
    return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type), "): ", what);
  };
  CAIRN_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(entry, call.inputs[0]));
  if (call.inputs.size() > 1 || !call.masks.empty()) {
    return bad("a mask of a softmax over several axes is not supported; add a large negative number where it is False");
  }
  const int rank = static_cast<int>(shape.size());
  for (int& axis : axes) {
    if (axis < 0) axis += rank + 1;
    if (axis < 1 || axis > rank) return bad("axis: one that it names is not an axis of its input after the batch");
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) return bad("axis names one twice; name it once");
  // The axes come last, become one, and go back.
  std::vector<int> order;
  for (int axis = 1; axis <= rank; ++axis) {
    if (std::count(axes.begin(), axes.end(), axis) == 0) order.push_back(axis);
  }
  const size_t kept = order.size();
  order.insert(order.end(), axes.begin(), axes.end());
  v1::Layer there, rows, softmax, columns, back;
  int64_t size = 1;
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t side = shape[static_cast<size_t>(order[i]) - 1];
    there.mutable_permute()->add_dims(order[i]);
    const auto place = std::find(order.begin(), order.end(), static_cast<int>(i) + 1);
    back.mutable_permute()->add_dims(static_cast<int>(place - order.begin()) + 1);
    columns.mutable_reshape()->add_target_shape(static_cast<int32_t>(side));
    if (i < kept) rows.mutable_reshape()->add_target_shape(static_cast<int32_t>(side));
    if (i >= kept) size *= side;
  }
  rows.mutable_reshape()->add_target_shape(static_cast<int32_t>(size));
  softmax.mutable_activation()->set_activation(v1::SOFTMAX);
  head_used_ = head_used_ || call.inputs[0] == head_;
  const bool moves = !std::is_sorted(order.begin(), order.end());
  std::string last = call.inputs[0];
  if (moves) last = AppendPart(entry, last, std::move(there));
  for (v1::Layer* part : {&rows, &softmax, &columns}) last = AppendPart(entry, last, std::move(*part));
  return moves ? AppendPart(entry, last, std::move(back)) : last;
}

}  // namespace cairn
