// Values, layers, and operators that only move numbers.
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
#include "common/model/onnx/onnx_fold.h"
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
  for (int64_t& n : tensor.ints) {
    if (tensor.of_batch && n == kOnnxUnknown) return Lacks("its ", what, " are computed of the batch's size");
    if (tensor.of_batch && n == kOnnxBatch) n = INT64_MAX;
  }
  return std::move(tensor.ints);
}

// The layer's name: "layer1.0.conv1" from weights "layer1.0.conv1.weight", as in PyTorch; "conv1" from "conv1/kernel";
// otherwise that of the node.
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

// target: includes the batch. One -1 is inferred; 0 keeps the axis.
absl::Status OnnxImporter::SetDims(const OnnxView& view, const std::vector<int64_t>& target, bool zero_copies,
                                   bool keeps_batch) {
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
  // The batch may be kept or be the -1; a number is the batch size with which the model was exported.
  const bool batch_is_free = target[0] == -1;
  if (target[0] < -1 || (target[0] == 0 && !zero_copies && !keeps_batch) || (batch_is_free && free >= 0) ||
      numbers % known != 0)
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
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor target, ConstantOf(1, "shape"));
  if (!target.whole) return Bad("its shape are not whole numbers");
  const bool batch = target.of_batch && !target.ints.empty() && target.ints[0] == kOnnxBatch;
  if (batch) target.ints[0] = 0;  // unchanged
  for (const int64_t dim : target.ints) {
    if (target.of_batch && IsOfBatch(dim))
      return Lacks("its shape is computed of the batch's size, which stays where it is here");
  }
  return SetDims(x, target.ints, zero_copies, batch);
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

absl::Status OnnxImporter::ShapeOf() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  std::vector<int64_t> dims = {kOnnxBatch};
  dims.insert(dims.end(), x.dims.begin(), x.dims.end());
  CAIRN_ASSIGN_OR_RETURN(folded_[node_->output(0)], OnnxShapeTensor(*node_, dims));
  return absl::OkStatus();
}

// Allowed if the shape does not change, as PyTorch writes it for values that may be broadcast; otherwise the layer
// decides.
absl::Status OnnxImporter::Expand() {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(*node_).Finish());
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor shape, ConstantOf(1, "shape"));
  bool same = shape.whole && shape.ints.size() <= x.dims.size() + 1;
  const size_t ahead = same ? x.dims.size() + 1 - shape.ints.size() : 0;
  for (size_t i = 0; same && i < shape.ints.size(); ++i) {
    const int64_t dim = shape.ints[i];
    same = dim == 1 || (i + ahead == 0 ? shape.of_batch && dim == kOnnxBatch : dim == x.dims[i + ahead - 1]);
  }
  if (!same) return FindOnnxOperator("Expand")->read(*this);
  SetView(x);
  return absl::OkStatus();
}

absl::Status OnnxImporter::FoldConstants() {
  std::vector<OnnxTensor> tensors(static_cast<size_t>(node_->input_size()));
  std::vector<const OnnxTensor*> inputs;
  for (int i = 0; i < node_->input_size(); ++i) {
    const size_t at = static_cast<size_t>(i);
    if (HasInput(i)) {
      CAIRN_ASSIGN_OR_RETURN(tensors[at], ConstantOf(i, "input"));
      folded_numbers_ += static_cast<int64_t>(tensors[at].ints.size() + tensors[at].floats.size());
    }
    if (folded_numbers_ > kOnnxFoldedNumbersMax) break;
    inputs.push_back(HasInput(i) ? &tensors[at] : nullptr);
  }
  const auto too_much = [] { return Lacks("too much is computed of constants; fold constants when exporting"); };
  if (folded_numbers_ > kOnnxFoldedNumbersMax) return too_much();
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor result, FoldOnnxNode(*node_, graph_.opset, inputs));
  folded_numbers_ += static_cast<int64_t>(result.ints.size() + result.floats.size());
  if (folded_numbers_ > kOnnxFoldedNumbersMax) return too_much();
  folded_[node_->output(0)] = std::move(result);
  return absl::OkStatus();
}

}  // namespace cairn
