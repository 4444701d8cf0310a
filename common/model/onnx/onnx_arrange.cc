#include "common/model/onnx/onnx_arrange.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
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

// The axes of one side of the batch, reshaped. target: of this side; zeros[i]: the axis that a 0 there keeps, -1: none.
// nullopt: the numbers are not as many.
std::optional<Shape> SideReshaped(const Shape& side, absl::Span<const int64_t> target, const Shape& zeros) {
  const int64_t numbers = NumElements(side);
  int64_t known = 1;
  std::optional<size_t> free;
  Shape dims;
  for (size_t i = 0; i < target.size(); ++i) {
    int64_t dim = target[i] == 0 ? zeros[i] : target[i];
    if (dim == -1 && target[i] == -1 && !free.has_value()) {
      free = i;
      dim = 1;
    }
    if (dim <= 0 || __builtin_mul_overflow(known, dim, &known) || known > numbers) return std::nullopt;
    dims.push_back(dim);
  }
  if (numbers % known != 0 || (!free.has_value() && known != numbers)) return std::nullopt;
  if (free.has_value()) dims[*free] = numbers / known;
  return dims;
}

// The view, whose batch is not the first axis, reshaped: the axes before the batch and those behind it by themselves,
// as anything else would move examples.
absl::StatusOr<OnnxView> ReshapedAround(const OnnxView& x, const OnnxTensor& target, bool zero_copies) {
  if (target.ints.size() > kOnnxAxesMax)
    return Lacks("a shape of ", target.ints.size(), " dimensions; at most ", kOnnxAxesMax, " are read");
  const Shape before(x.dims.begin(), x.dims.begin() + x.batch), behind(x.dims.begin() + x.batch, x.dims.end());
  Shape zeros;  // by place: the size that a 0 keeps
  for (int i = 0; i < static_cast<int>(target.ints.size()); ++i) {
    const int axis = i < x.batch ? i : i - 1;
    const bool kept = zero_copies && i != x.batch && axis < static_cast<int>(x.dims.size());
    zeros.push_back(kept ? x.dims[static_cast<size_t>(axis)] : -1);
  }
  for (size_t at = 0; at < target.ints.size(); ++at) {
    const int64_t dim = target.ints[at];
    const bool same_place = static_cast<int>(at) == x.batch;
    // At the same place, a number is the batch size with which the model was exported.
    const bool batch =
        (target.of_batch && dim == kOnnxBatch) || dim == -1 || (same_place && (dim > 0 || (dim == 0 && zero_copies)));
    if (!batch) continue;
    const auto all = absl::MakeConstSpan(target.ints);
    const std::optional<Shape> first = SideReshaped(before, all.first(at), zeros);
    const std::optional<Shape> second =
        SideReshaped(behind, all.subspan(at + 1), Shape(zeros.begin() + static_cast<int64_t>(at) + 1, zeros.end()));
    const bool two_free = dim == -1 && std::count(all.begin(), all.end(), -1) > 1;
    if (!first.has_value() || !second.has_value() || two_free) continue;
    Shape dims = *first;
    dims.insert(dims.end(), second->begin(), second->end());
    return x.As(std::move(dims)).WithBatchAt(static_cast<int>(at));
  }
  return Lacks("its shape joins the batch, axis ", x.batch,
               ", with other axes; transpose its input so that the batch comes first");
}

// Each b x b block of a picture [channels,height,width] becomes channels, and back. blocks: the view with the height
// and width of the larger picture cut in two axes each; order: of its axes in the output.
absl::Status MoveBlocks(OnnxImporter& importer, const OnnxView& blocks, const std::vector<int>& order, Shape dims) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView moved, importer.layers().TransposedView(blocks, order));
  importer.SetView(moved.As(std::move(dims)));
  return absl::OkStatus();
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

absl::StatusOr<OnnxOrder> OnnxOrderOf(OnnxImporter& importer, const OnnxView& x) {
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
  OnnxOrder order;
  for (size_t i = 0; i < perm.size(); ++i) {
    const int from = static_cast<int>(perm[i]);
    if (from == x.batch) {
      order.batch = static_cast<int>(i);
    } else {
      order.dims.push_back(from < x.batch ? from : from - 1);
    }
  }
  return order;
}

absl::Status ImportOnnxTranspose(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const OnnxOrder order, OnnxOrderOf(importer, x));
  CAIRN_ASSIGN_OR_RETURN(const OnnxView transposed, importer.layers().TransposedView(x, order.dims));
  importer.SetLaidView(transposed.WithBatchAt(order.batch));
  return absl::OkStatus();
}

absl::Status ImportOnnxReshape(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  OnnxAttributes attributes(importer.node());
  const bool zero_copies = attributes.Int("allowzero", 0) == 0;
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor target, importer.ConstantOf(1, "shape"));
  if (!target.whole) return Bad("its shape are not whole numbers");
  if (x.batch > 0) {
    CAIRN_ASSIGN_OR_RETURN(OnnxView reshaped, ReshapedAround(x, target, zero_copies));
    importer.SetLaidView(std::move(reshaped));
    return absl::OkStatus();
  }
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

absl::StatusOr<std::set<int>> OnnxSqueezedAxes(OnnxImporter& importer, const OnnxView& x) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, importer.AxesGiven());
  if (axes.empty()) return Lacks("it names no axes; a batch of one would go too");
  std::set<int> gone;
  for (const int64_t given : axes) {
    CAIRN_ASSIGN_OR_RETURN(const int axis, x.AxisOf(given));
    if (x.dims[static_cast<size_t>(axis)] != 1)
      return Bad("axis ", given, " is of ", x.dims[static_cast<size_t>(axis)], ", not 1");
    gone.insert(axis);
  }
  return gone;
}

OnnxView OnnxWithoutAxes(const OnnxView& x, const std::set<int>& gone) {
  Shape dims;
  int batch = x.batch;
  for (int i = 0; i < static_cast<int>(x.dims.size()); ++i) {
    if (!gone.contains(i)) dims.push_back(x.dims[static_cast<size_t>(i)]);
    batch -= gone.contains(i) && i < x.batch;
  }
  return x.As(std::move(dims)).WithBatchAt(batch);
}

absl::Status ImportOnnxSqueeze(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const std::set<int> gone, OnnxSqueezedAxes(importer, x));
  importer.SetLaidView(OnnxWithoutAxes(x, gone));
  return absl::OkStatus();
}

absl::Status ImportOnnxUnsqueeze(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, importer.AxesGiven());
  const int64_t rank = static_cast<int64_t>(x.dims.size() + axes.size()) + 1;
  if (rank > static_cast<int64_t>(kOnnxAxesMax))
    return Lacks("a shape of ", rank, " dimensions; at most ", kOnnxAxesMax, " are read");
  std::set<int64_t> ones;
  for (const int64_t axis : axes) {
    const int64_t from_front = axis < 0 ? axis + rank : axis;
    if (from_front < 0 || from_front >= rank || !ones.insert(from_front).second)
      return Bad("axis ", axis, " of a value of ", rank, " dimensions");
  }
  Shape dims;
  int from = 0, batch = 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (ones.contains(i)) {
      dims.push_back(1);
    } else if (from++ == x.batch) {
      batch = static_cast<int>(i);
    } else {
      dims.push_back(x.dims[static_cast<size_t>(from - 1 < x.batch ? from - 1 : from - 2)]);
    }
  }
  importer.SetLaidView(x.As(std::move(dims)).WithBatchAt(batch));
  return absl::OkStatus();
}

absl::Status ImportOnnxDepthToSpace(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  const int64_t b = attributes.Int("blocksize", 0);
  const std::string mode = attributes.Text("mode", "DCR");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (mode != "DCR" && mode != "CRD") return Lacks("attribute \"mode\" is neither DCR nor CRD");
  if (x.dims.size() != 3 || b < 1 || b > INT32_MAX || x.dims[0] % (b * b) != 0)
    return Bad("blocksize ", b, " does not fit its input ", ToString(x.dims),
               "; one of [channels,height,width] is read");
  const int64_t c = x.dims[0] / (b * b), h = x.dims[1], w = x.dims[2];
  const Shape dims = {c, h * b, w * b};
  if (mode == "DCR") return MoveBlocks(importer, x.As({b, b, c, h, w}), {2, 3, 0, 4, 1}, dims);
  return MoveBlocks(importer, x.As({c, b, b, h, w}), {0, 3, 1, 4, 2}, dims);
}

absl::Status ImportOnnxSpaceToDepth(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.ViewOf(0));
  OnnxAttributes attributes(importer.node());
  const int64_t b = attributes.Int("blocksize", 0);
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (x.dims.size() != 3 || b < 1 || x.dims[1] % b != 0 || x.dims[2] % b != 0)
    return Bad("blocksize ", b, " does not fit its input ", ToString(x.dims),
               "; one of [channels,height,width] is read");
  const int64_t c = x.dims[0], h = x.dims[1] / b, w = x.dims[2] / b;
  return MoveBlocks(importer, x.As({c, h, b, w, b}), {2, 4, 0, 1, 3}, {b * b * c, h, w});
}

absl::Status ImportOnnxShape(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  std::vector<int64_t> dims(x.dims.begin(), x.dims.end());
  dims.insert(dims.begin() + x.batch, kOnnxBatch);
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor shape, OnnxShapeTensor(importer.node(), dims));
  importer.SetConstant(std::move(shape));
  return absl::OkStatus();
}

// Allowed if the shape does not change, as PyTorch writes it for values that may be broadcast; otherwise the layer
// decides.
absl::Status ImportOnnxExpand(OnnxImporter& importer) {
  CAIRN_ASSIGN_OR_RETURN(const OnnxView x, importer.LaidViewOf(0));
  CAIRN_RETURN_IF_ERROR(OnnxAttributes(importer.node()).Finish());
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor shape, importer.ConstantOf(1, "shape"));
  Shape dims = x.dims;
  dims.insert(dims.begin() + x.batch, kOnnxBatch);
  bool same = shape.whole && shape.ints.size() <= dims.size();
  const size_t ahead = same ? dims.size() - shape.ints.size() : 0;
  for (size_t i = 0; same && i < shape.ints.size(); ++i) {
    const int64_t dim = shape.ints[i];
    same = dim == 1 || (dim == dims[i + ahead] && (dim != kOnnxBatch || shape.of_batch));
  }
  if (!same) return FindOnnxOperator("Expand")->read(importer);
  importer.SetLaidView(x);
  return absl::OkStatus();
}

}  // namespace cairn
