// Values, layers, and the operators that only move numbers.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/base/limits.h"
#include "common/model/layer_type.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"

namespace cairn {
absl::StatusOr<OnnxView> OnnxImporter::ViewOf(int input) const {
  if (!HasInput(input)) return Bad("its input ", input, " is missing");
  const auto it = views_.find(node_->input(input));
  if (it == views_.end()) return Lacks("its input ", input, " is a constant; it must be the output of a layer here");
  return it->second;
}

bool OnnxImporter::IsConstant(int input) const {
  return graph_.constants.contains(node_->input(input)) || folded_.contains(node_->input(input));
}

absl::StatusOr<OnnxTensor> OnnxImporter::ConstantOf(int input, const char* what) const {
  if (!HasInput(input)) return Bad("its ", what, " (input ", input, ") is missing");
  if (const auto it = folded_.find(node_->input(input)); it != folded_.end()) return it->second;
  const auto it = graph_.constants.find(node_->input(input));
  if (it == graph_.constants.end())
    return Lacks("its ", what, " (input ", input, ") is computed; it must be a constant");
  return ReadOnnxTensor(*it->second);
}

absl::StatusOr<std::vector<float>> OnnxImporter::FloatsOf(int input, const char* what, int64_t count) const {
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor tensor, ConstantOf(input, what));
  if (tensor.whole) tensor.floats.assign(tensor.ints.begin(), tensor.ints.end());
  if (static_cast<int64_t>(tensor.floats.size()) != count)
    return Bad("its ", what, " has ", tensor.floats.size(), " numbers; ", count, " are needed");
  return std::move(tensor.floats);
}

absl::StatusOr<std::vector<int64_t>> OnnxImporter::IntsOf(int input, const char* what) const {
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor tensor, ConstantOf(input, what));
  if (!tensor.whole) return Bad("its ", what, " are not whole numbers");
  return std::move(tensor.ints);
}

// "layer1.0.conv1" of weights "layer1.0.conv1.weight", as PyTorch has them; "conv1" of "conv1/kernel"; else the node's
// name.
absl::StatusOr<int> OnnxImporter::AddLayer(LayerKind kind, v1::Layer layer, const std::vector<int>& inputs,
                                           std::vector<OnnxVariable> variables, int weight_input) {
  std::string name;
  if (weight_input >= 0 && HasInput(weight_input)) {
    const std::string& weight = node_->input(weight_input);
    const size_t end = weight.find_last_of("./");
    if (end != std::string::npos &&
        (absl::EndsWith(weight, ".weight") || absl::EndsWith(weight, "/kernel") || absl::EndsWith(weight, "/gamma"))) {
      name = weight.substr(0, end);
    }
  }
  return layers_.Add(kind, std::move(layer), inputs, std::move(variables), name);
}

// ---- operators ----

absl::Status OnnxImporter::Transpose() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  std::vector<int64_t> perm = attributes.Ints("perm");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool permutation = perm.size() == x.dims.size() + 1;
  for (size_t i = 0; permutation && i < sorted.size(); ++i) permutation = sorted[i] == static_cast<int64_t>(i);
  if (!permutation)
    return Bad("perm [", absl::StrJoin(perm, ","), "] is not an order of the ", x.dims.size() + 1,
               " axes of its input");
  if (perm[0] != 0) return Lacks("it moves the batch, axis 0");
  std::vector<int> order;
  for (size_t i = 1; i < perm.size(); ++i) order.push_back(static_cast<int>(perm[i]) - 1);
  CAIRN_ASSIGN_OR_RETURN(OnnxView transposed, layers_.TransposedView(x, order));
  SetView(std::move(transposed));
  return absl::OkStatus();
}

// target: batch included; -1 once for what is left, 0 as it was.
absl::Status OnnxImporter::SetDims(const OnnxView& view, const std::vector<int64_t>& target, bool zero_copies) {
  const auto misfit = [&] {
    return Lacks("[", absl::StrJoin(target, ","), "] does not fit its input ", ToString(view.dims),
                 " without moving the batch");
  };
  if (target.size() > kOnnxAxesMax)
    return Lacks("a shape of ", target.size(), " dimensions; at most ", kOnnxAxesMax, " are read");
  if (target.empty()) return misfit();
  const int64_t numbers = NumElements(view.dims);
  int64_t known = 1;
  int free = -1;
  cairn::Shape dims;
  for (size_t i = 1; i < target.size(); ++i) {
    int64_t dim = target[i];
    if (dim == 0 && zero_copies && i <= view.dims.size()) dim = view.dims[i - 1];
    if (dim == -1 && free < 0) {
      free = static_cast<int>(i) - 1;
      dim = 1;
    }
    if (dim <= 0 || __builtin_mul_overflow(known, dim, &known) || known > numbers) return misfit();
    dims.push_back(dim);
  }
  // The batch: as it was, or the -1; a number is the size with which the model was exported.
  const bool batch_is_free = target[0] == -1;
  if (target[0] < -1 || (target[0] == 0 && !zero_copies) || (batch_is_free && free >= 0) || numbers % known != 0)
    return misfit();
  if (free >= 0) {
    dims[static_cast<size_t>(free)] = numbers / known;
  } else if (known != numbers) {
    return misfit();
  }
  SetView(view.As(std::move(dims)));
  return absl::OkStatus();
}

absl::Status OnnxImporter::Reshape() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  const bool zero_copies = attributes.Int("allowzero", 0) == 0;
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> target, IntsOf(1, "shape"));
  return SetDims(x, target, zero_copies);
}

absl::Status OnnxImporter::Flatten() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  OnnxAttributes attributes(*node_);
  attributes.Only("axis", 1, "Cairn keeps the batch, axis 0, apart from all others");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  SetView(x.As({NumElements(x.dims)}));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> OnnxImporter::AxesGiven() const {
  OnnxAttributes attributes(*node_);
  std::vector<int64_t> axes = attributes.Ints("axes");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (HasInput(1)) return IntsOf(1, "axes");
  return axes;
}

absl::Status OnnxImporter::Squeeze() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, AxesGiven());
  if (axes.empty()) return Lacks("it names no axes; a batch of one would go too");
  std::set<int> gone;
  for (const int64_t given : axes) {
    CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(given));
    if (x.dims[static_cast<size_t>(axis)] != 1)
      return Bad("axis ", given, " is of ", x.dims[static_cast<size_t>(axis)], ", not 1");
    gone.insert(axis);
  }
  cairn::Shape dims;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (!gone.contains(static_cast<int>(i))) dims.push_back(x.dims[i]);
  }
  SetView(x.As(std::move(dims)));
  return absl::OkStatus();
}

absl::Status OnnxImporter::Unsqueeze() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, AxesGiven());
  const int64_t rank = static_cast<int64_t>(x.dims.size() + axes.size()) + 1;
  if (rank > static_cast<int64_t>(kOnnxAxesMax))
    return Lacks("a shape of ", rank, " dimensions; at most ", kOnnxAxesMax, " are read");
  std::set<int64_t> ones;
  for (const int64_t axis : axes) {
    const int64_t from_front = axis < 0 ? axis + rank : axis;
    if (from_front <= 0 || from_front >= rank || !ones.insert(from_front).second)
      return Bad("axis ", axis, " of a value of ", rank, " dimensions");
  }
  cairn::Shape dims;
  size_t from = 0;
  for (int64_t i = 1; i < rank; ++i) dims.push_back(ones.contains(i) ? 1 : x.dims[from++]);
  SetView(x.As(std::move(dims)));
  return absl::OkStatus();
}

// For a Reshape that follows: the batch counts as 0, which leaves it as it is.
absl::Status OnnxImporter::ShapeOf() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(*node_).Finish());
  OnnxTensor shape;
  shape.whole = true;
  shape.dims = {static_cast<int64_t>(x.dims.size()) + 1};
  shape.ints = {0};
  shape.ints.insert(shape.ints.end(), x.dims.begin(), x.dims.end());
  folded_[node_->output(0)] = std::move(shape);
  return absl::OkStatus();
}

// A Gather or Concat of floats along axis 1 of [1, rows, ...]: a recurrent operator's weights in another order.
absl::StatusOr<OnnxTensor> OnnxImporter::FoldRows(const OnnxTensor& x, OnnxAttributes& attributes) const {
  if (attributes.Int("axis", 0) != 1 || x.dims.size() < 2 || x.dims[0] != 1 || x.dims[1] < 1)
    return Lacks("a computed constant; fold constants when exporting");
  OnnxTensor result = x;
  if (node_->op_type() == "Concat") {
    for (int i = 1; i < node_->input_size(); ++i) {
      CAIRN_ASSIGN_OR_RETURN(const OnnxTensor part, ConstantOf(i, "input"));
      if (part.whole || part.dims.size() != x.dims.size() || part.dims[0] != 1 ||
          !std::equal(part.dims.begin() + 2, part.dims.end(), x.dims.begin() + 2))
        return Bad("it joins ", ToString(x.dims), " and ", ToString(part.dims));
      result.dims[1] += part.dims[1];
      result.floats.insert(result.floats.end(), part.floats.begin(), part.floats.end());
    }
    return result;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, IntsOf(1, "indices"));
  const int64_t row = static_cast<int64_t>(x.floats.size()) / x.dims[1];
  result.dims[1] = static_cast<int64_t>(indices.size());
  result.floats.clear();
  for (const int64_t given : indices) {
    const int64_t index = given < 0 ? given + x.dims[1] : given;
    if (index < 0 || index >= x.dims[1]) return Bad("index ", given, " of ", x.dims[1], " rows");
    result.floats.insert(result.floats.end(), x.floats.begin() + index * row, x.floats.begin() + (index + 1) * row);
  }
  return result;
}

absl::Status OnnxImporter::FoldConstants() {
  const std::string& type = node_->op_type();
  OnnxAttributes attributes(*node_);
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor x, ConstantOf(0, "input"));
  OnnxTensor result;
  result.whole = true;
  if (type == "Identity" || type == "Cast") {
    const int64_t to = type == "Cast" ? attributes.Int("to", 0) : 0;
    attributes.Ignore("saturate");
    result = x;
    if (to == onnx::TensorProto::FLOAT && x.whole) {
      result.floats.assign(x.ints.begin(), x.ints.end());
      result.ints.clear();
      result.whole = false;
    } else if (to != 0 && to != onnx::TensorProto::FLOAT && !(to == onnx::TensorProto::INT64 && x.whole)) {
      return Lacks("constants are cast to floats, and whole numbers to INT64, alone");
    }
  } else if (type == "Transpose" && !x.whole && attributes.Ints("perm").size() == x.dims.size()) {
    std::vector<int> axes;
    for (const int64_t axis : attributes.Ints("perm")) axes.push_back(static_cast<int>(axis));
    std::vector<int> sorted = axes;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != SameOrder(axes.size())) return Bad("perm is not an order of its input's axes");
    result = {ShapeInOrder(x.dims, axes), false, InOrder(x.floats, x.dims, axes), {}};
  } else if (!x.whole && (type == "Gather" || type == "Concat")) {
    CAIRN_ASSIGN_OR_RETURN(result, FoldRows(x, attributes));
  } else if (!x.whole || x.dims.size() > 1) {
    return Lacks("a computed constant; fold constants when exporting");
  } else if (type == "Gather") {
    attributes.Only("axis", 0, "of a shape, only axis 0");
    CAIRN_ASSIGN_OR_RETURN(const OnnxTensor indices, ConstantOf(1, "indices"));
    if (!indices.whole) return Bad("its indices are not whole numbers");
    result.dims = indices.dims;
    for (const int64_t given : indices.ints) {
      const int64_t count = static_cast<int64_t>(x.ints.size()), index = given < 0 ? given + count : given;
      if (index < 0 || index >= count) return Bad("index ", given, " of ", count, " numbers");
      result.ints.push_back(x.ints[static_cast<size_t>(index)]);
    }
  } else if (type == "Unsqueeze" || type == "Squeeze") {
    attributes.Ignore("axes");
    result.ints = x.ints;
    if (type == "Unsqueeze" || x.ints.size() != 1) result.dims = {static_cast<int64_t>(x.ints.size())};
  } else if (type == "Concat") {
    attributes.Ignore("axis");
    for (int i = 0; i < node_->input_size(); ++i) {
      CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> part, IntsOf(i, "input"));
      result.ints.insert(result.ints.end(), part.begin(), part.end());
      if (result.ints.size() > kOnnxShapeNumbersMax)
        return Lacks("it joins more than ", kOnnxShapeNumbersMax, " numbers; fold constants when exporting");
    }
    result.dims = {static_cast<int64_t>(result.ints.size())};
  } else {
    return Lacks("a computed constant; fold constants when exporting");
  }
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  folded_numbers_ += static_cast<int64_t>(result.ints.size() + result.floats.size());
  if (folded_numbers_ > kOnnxFoldedNumbersMax)
    return Lacks("too much is computed of constants; fold constants when exporting");
  folded_[node_->output(0)] = std::move(result);
  return absl::OkStatus();
}

}  // namespace cairn
