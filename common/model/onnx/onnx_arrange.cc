#include "common/model/onnx/onnx_arrange.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layer_type.h"
#include "common/model/limits.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_fold.h"

namespace cairn {
namespace {

// The view reshaped. target: includes the batch. One -1 is inferred; with zero_copies, 0 keeps the axis. keeps_batch:
// target[0] is 0 and means the batch, whatever zero_copies is.
absl::StatusOr<OnnxView> Reshaped(const OnnxView& view, const std::vector<int64_t>& target, bool zero_copies,
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
  Shape dims;
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
  return view.As(std::move(dims));
}

}  // namespace

absl::Status ImportOnnxIdentity(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, importer.ViewOf(0));
  if (const int layer = importer.FoldableInput(0); layer >= 0) importer.MarkFoldable(layer);
  importer.SetView(std::move(x));
  return absl::OkStatus();
}

// A cast to floats, or to integers, which an embedding does with its ids anyway. Others cut fractions off, or ask
// whether a number is 0.
absl::Status ImportOnnxCast(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  const int64_t to = attributes.Int("to", 0);
  attributes.Ignore("saturate");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  bool ids = true;
  for (const onnx::NodeProto* user : importer.UsersOf(0)) ids = ids && user != nullptr && user->op_type() == "Gather";
  v1::Layer layer;
  v1::Operation* const operation = layer.mutable_operation();
  if (to == onnx::TensorProto::FLOAT || ids) {
    importer.SetView(std::move(x));
    return absl::OkStatus();
  }
  if (to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32) {
    operation->set_kind(v1::Operation::TRUNC);
  } else if (to == onnx::TensorProto::BOOL) {
    operation->set_kind(v1::Operation::NOT_EQUAL);
    operation->add_constant(0);
  } else {
    return Lacks("to type ", to, "; to FLOAT, INT32, INT64 and BOOL it is read");
  }
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().PlaceInOrder(x, SameOrder(x.dims.size())));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kOperation, layer, {from}));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

absl::Status ImportOnnxTranspose(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
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
  CAIRN_ASSIGN_OR_RETURN(OnnxView transposed, importer.layers().TransposedView(x, order));
  importer.SetView(std::move(transposed));
  return absl::OkStatus();
}

absl::Status ImportOnnxReshape(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  const bool zero_copies = attributes.Int("allowzero", 0) == 0;
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor target, importer.ConstantOf(1, "shape"));
  if (!target.whole) return Bad("its shape are not whole numbers");
  const bool batch = target.of_batch && !target.ints.empty() && target.ints[0] == kOnnxBatch;
  if (batch) target.ints[0] = 0;  // unchanged
  for (const int64_t dim : target.ints) {
    if (target.of_batch && IsOfBatch(dim))
      return Lacks("its shape is computed of the batch's size, which stays where it is here");
  }
  CAIRN_ASSIGN_OR_RETURN(OnnxView reshaped, Reshaped(x, target.ints, zero_copies, batch));
  importer.SetView(std::move(reshaped));
  return absl::OkStatus();
}

absl::Status ImportOnnxFlatten(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  attributes.Only("axis", 1, "Cairn keeps the batch, axis 0, apart from all others");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  importer.SetView(x.As({NumElements(x.dims)}));
  return absl::OkStatus();
}

absl::Status ImportOnnxSqueeze(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, importer.AxesGiven());
  if (axes.empty()) return Lacks("it names no axes; a batch of one would go too");
  std::set<int> gone;
  for (const int64_t given : axes) {
    CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(given));
    if (x.dims[static_cast<size_t>(axis)] != 1)
      return Bad("axis ", given, " is of ", x.dims[static_cast<size_t>(axis)], ", not 1");
    gone.insert(axis);
  }
  Shape dims;
  for (size_t i = 0; i < x.dims.size(); ++i) {
    if (!gone.contains(static_cast<int>(i))) dims.push_back(x.dims[i]);
  }
  importer.SetView(x.As(std::move(dims)));
  return absl::OkStatus();
}

absl::Status ImportOnnxUnsqueeze(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, importer.AxesGiven());
  const int64_t rank = static_cast<int64_t>(x.dims.size() + axes.size()) + 1;
  if (rank > static_cast<int64_t>(kOnnxAxesMax))
    return Lacks("a shape of ", rank, " dimensions; at most ", kOnnxAxesMax, " are read");
  std::set<int64_t> ones;
  for (const int64_t axis : axes) {
    const int64_t from_front = axis < 0 ? axis + rank : axis;
    if (from_front <= 0 || from_front >= rank || !ones.insert(from_front).second)
      return Bad("axis ", axis, " of a value of ", rank, " dimensions");
  }
  Shape dims;
  size_t from = 0;
  for (int64_t i = 1; i < rank; ++i) dims.push_back(ones.contains(i) ? 1 : x.dims[from++]);
  importer.SetView(x.As(std::move(dims)));
  return absl::OkStatus();
}

absl::Status ImportOnnxShape(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  std::vector<int64_t> dims = {kOnnxBatch};
  dims.insert(dims.end(), x.dims.begin(), x.dims.end());
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor shape, OnnxShapeTensor(importer.node(), dims));
  importer.SetConstant(std::move(shape));
  return absl::OkStatus();
}

// Allowed if the shape does not change, as PyTorch writes it for values that may be broadcast; otherwise the layer
// decides.
absl::Status ImportOnnxExpand(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor shape, importer.ConstantOf(1, "shape"));
  bool same = shape.whole && shape.ints.size() <= x.dims.size() + 1;
  const size_t ahead = same ? x.dims.size() + 1 - shape.ints.size() : 0;
  for (size_t i = 0; same && i < shape.ints.size(); ++i) {
    const int64_t dim = shape.ints[i];
    same = dim == 1 || (i + ahead == 0 ? shape.of_batch && dim == kOnnxBatch : dim == x.dims[i + ahead - 1]);
  }
  if (!same) return FindOnnxOperator("Expand")->read(importer);
  importer.SetView(x);
  return absl::OkStatus();
}

}  // namespace cairn
