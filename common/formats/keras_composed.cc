#include "common/formats/keras_composed.h"

#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/formats/keras_arrange.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

bool IsBlocks(const std::string& function) {
  return function == "DepthToSpace" || function == "SpaceToDepth" || function == "nn.depth_to_space" ||
         function == "nn.space_to_depth";
}

absl::Status ReadTopK(KerasArguments& arguments, int output, v1::Layer* layer) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> k, arguments.Whole(arguments.TakeOrOperand({"k"}), "k"));
  arguments.Take({"sorted"});      // sorted is one of the orders that an unsorted one may have
  arguments.Take({"index_type"});  // tensors are float32
  if (k.size() != 1) return arguments.Bad("k has several numbers; give one");
  if (output > 1) return arguments.Bad("it gives two outputs, the numbers and their places");
  layer->mutable_top_k()->set_k(static_cast<int32_t>(k[0]));
  layer->mutable_top_k()->set_indices(output == 1);
  return absl::OkStatus();
}

// The mean over an axis, each place with its weight: a product, and a sum.
absl::Status ReadAverage(KerasArguments& arguments, absl::Span<const Shape> shapes, KerasOperationLayers* made) {
  const Json* const weights = arguments.TakeOrOperand({"weights"});
  const Json* const axis = arguments.Take({"axis"});
  if (axis == nullptr) {
    return arguments.Bad(
        "axis is missing: it would average the batch too; give the axes after the batch, such as "
        "axis=1");
  }
  const int rank = static_cast<int>(shapes[0].size());
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> axes, arguments.Axes(axis, rank));
  v1::Layer sum;
  sum.mutable_reduce()->mutable_axis()->Assign(axes.begin(), axes.end());
  if (weights == nullptr && shapes.size() == 1) {
    sum.mutable_reduce()->set_kind(v1::Reduce::MEAN);
    made->layer = std::move(sum);
    return absl::OkStatus();
  }
  const std::optional<KerasConstant> constant = weights == nullptr ? std::nullopt : ReadKerasConstant(*weights);
  if (!constant.has_value()) {
    return arguments.Bad("its weights are not constant numbers; divide the sum of x * weights by that of the weights");
  }
  const bool fits = axes.size() == 1 && constant->shape.size() == 1 &&
                    constant->shape[0] == shapes[0][static_cast<size_t>(axes[0]) - 1];
  if (!fits) return arguments.Bad("its weights are not one number for each place of one axis; give these");
  double all = 0;
  for (const float weight : constant->numbers) all += weight;
  if (all == 0) return arguments.Bad("its weights add up to 0; give others");
  v1::Operation* const product = made->layer.mutable_operation();
  product->set_kind(v1::Operation::MULTIPLY);
  for (const float weight : constant->numbers) product->add_constant(static_cast<float>(weight / all));
  product->add_constant_shape(constant->shape[0]);
  for (int behind = axes[0]; behind < rank; ++behind) product->add_constant_shape(1);
  sum.mutable_reduce()->set_kind(v1::Reduce::SUM);
  made->then.push_back(std::move(sum));
  return absl::OkStatus();
}

v1::Layer Reshaped(const Shape& shape) {
  v1::Layer layer;
  KerasReshapeTo(shape, &layer);
  return layer;
}

v1::Layer SecondFirst() {  // of three axes
  v1::Layer layer;
  for (const int32_t axis : {2, 1, 3}) layer.mutable_permute()->add_dims(axis);
  return layer;
}

// Each block of b x b pixels becomes channels, and back. As numbers of [p, q, r, channels], that are put in the order
// p, r, q: at most three axes are permuted at once.
absl::Status ReadBlocks(KerasArguments& arguments, absl::Span<const Shape> shapes, KerasOperationLayers* made) {
  const Json* const format = arguments.Take({"data_format"});
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> given,
                         arguments.Whole(arguments.TakeOrOperand({"block_size"}), "block_size"));
  if (format != nullptr && *format != "channels_last" && *format != "NHWC") {
    return arguments.Bad(
        absl::StrCat("data_format: ", ShownJson(*format), " is not supported; build the model with channels_last"));
  }
  const Shape& x = shapes[0];
  if (x.size() != 3) {
    return arguments.Bad(absl::StrCat("its input ", ToString(x), " is not [height, width, channels]"));
  }
  const int64_t b = given[0];
  if (given.size() != 1 || b < 1) return arguments.Bad("block_size is not one positive number; give one, such as 2");
  const bool to_space = absl::StartsWith(arguments.Function(), "Depth") || arguments.Function() == "nn.depth_to_space";
  int64_t p = x[0], q = x[1], r = b, channels = x[2];
  Shape target;
  if (to_space) {
    if (channels % (b * b) != 0) {
      return arguments.Bad(absl::StrCat("block_size ", b, ": its ", channels, " channels are no multiple of ", b * b));
    }
    channels /= b;  // of a row of a block
    target = {p * b, q * b, channels / b};
  } else {
    if (p % b != 0 || q % b != 0) {
      return arguments.Bad(absl::StrCat("block_size ", b, ": the height and the width of its input ", ToString(x),
                                        " are no multiples of it"));
    }
    p /= b, r = q / b, q = b;
    target = {p, r, b * b * channels};
    channels *= b;
  }
  made->layer = Reshaped({p * q, r, channels});
  made->then.push_back(SecondFirst());  // r, p, q
  made->then.push_back(Reshaped({r, p, q * channels}));
  made->then.push_back(SecondFirst());  // p, r, q
  made->then.push_back(Reshaped(target));
  return absl::OkStatus();
}

// ---- in order of size ----

v1::Layer LargestOf(int64_t k, bool indices) {
  v1::Layer layer;
  layer.mutable_top_k()->set_k(static_cast<int32_t>(k));
  layer.mutable_top_k()->set_indices(indices);
  return layer;
}

// Of the last axis of `rank`.
v1::Layer PartOfLast(int rank, const v1::Slice::Axis& part) {
  v1::Layer layer;
  for (int axis = 1; axis < rank; ++axis) layer.mutable_slice()->add_axes();
  *layer.mutable_slice()->add_axes() = part;
  return layer;
}

// Moves axis `from` to the place `to`, both from 1; the others keep their order.
v1::Layer Moved(int rank, int from, int to) {
  std::vector<int32_t> order;
  for (int axis = 1; axis <= rank; ++axis) {
    if (axis != from) order.push_back(axis);
  }
  order.insert(order.begin() + to - 1, from);
  v1::Layer layer;
  layer.mutable_permute()->mutable_dims()->Assign(order.begin(), order.end());
  return layer;
}

// The one axis of sort, argsort and median. Errors: it is missing, several, or one that is moved among more than three.
absl::StatusOr<int32_t> SortedAxis(KerasArguments& arguments, int rank) {
  const Json last = -1;
  const Json* axis = arguments.Take({"axis"});
  if (axis == nullptr && arguments.keras2()) axis = &last;
  if (axis == nullptr) {
    return arguments.Bad("axis is missing: it would run over the batch too; give the axis, such as axis=-1");
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> axes, arguments.Axes(axis, rank));
  if (axes.size() != 1) return arguments.Bad("axis has several numbers; use one");
  if (axes[0] == rank || rank <= static_cast<int>(kPermutedAxesMax)) return axes[0];
  return arguments.Bad(
      absl::StrCat("axis: of a tensor with more than ", kPermutedAxesMax, " axes only the last one is supported, -1"));
}

// parts: on the last axis, one behind the other; they keep that axis if `back`, which then goes to its place again.
void AlongLast(std::vector<v1::Layer> parts, int rank, int axis, bool back, KerasOperationLayers* made) {
  if (axis < rank) {
    parts.insert(parts.begin(), Moved(rank, axis, rank));
    if (back) parts.push_back(Moved(rank, rank, axis));
  }
  made->layer = std::move(parts.front());
  made->then.assign(std::make_move_iterator(parts.begin() + 1), std::make_move_iterator(parts.end()));
}

absl::Status ReadSort(KerasArguments& arguments, const Shape& x, bool indices, KerasOperationLayers* made) {
  const int rank = static_cast<int>(x.size());
  CAIRN_ASSIGN_OR_RETURN(const int32_t axis, SortedAxis(arguments, rank));
  const Json* const direction = arguments.Take({"direction"});
  arguments.Take({"stable"});  // equal numbers keep their order
  const bool descends = direction != nullptr && *direction == "DESCENDING";
  std::vector<v1::Layer> parts = {LargestOf(x[static_cast<size_t>(axis) - 1], indices)};
  if (!descends && indices) {  // the places of the largest negative ones
    v1::Layer negative;
    negative.mutable_operation()->set_kind(v1::Operation::NEGATIVE);
    parts.insert(parts.begin(), std::move(negative));
  }
  if (!descends && !indices) {
    v1::Slice::Axis backwards;
    backwards.set_step(-1);
    parts.push_back(PartOfLast(rank, backwards));
  }
  AlongLast(std::move(parts), rank, axis, true, made);
  return absl::OkStatus();
}

// The mean of the one or two numbers in the middle.
absl::Status ReadMedian(KerasArguments& arguments, const Shape& x, KerasOperationLayers* made) {
  const int rank = static_cast<int>(x.size());
  CAIRN_ASSIGN_OR_RETURN(const int32_t axis, SortedAxis(arguments, rank));
  const Json* const keep = arguments.Take({"keepdims"});
  const bool keeps = keep != nullptr && *keep == true;
  const int64_t size = x[static_cast<size_t>(axis) - 1], k = size / 2 + 1;
  v1::Slice::Axis middle;
  middle.set_begin(static_cast<int32_t>(size % 2 == 1 ? k - 1 : k - 2));
  v1::Layer mean;
  mean.mutable_reduce()->set_kind(v1::Reduce::MEAN);
  mean.mutable_reduce()->add_axis(rank);
  mean.mutable_reduce()->set_keepdims(keeps);
  AlongLast({LargestOf(k, false), PartOfLast(rank, middle), std::move(mean)}, rank, axis, keeps, made);
  return absl::OkStatus();
}

// ---- others ----

// 1 at each place that one of an example's numbers names.
absl::Status ReadMultiHot(KerasArguments& arguments, KerasOperationLayers* made) {
  const Json *const classes = arguments.TakeOrOperand({"num_classes"}), *const axis = arguments.Take({"axis"});
  arguments.Take({"dtype"});  // tensors are float32
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> number, arguments.Whole(classes, "num_classes"));
  if (number.size() != 1) return arguments.Bad("num_classes has several numbers; give one");
  if (axis != nullptr && *axis != -1) return arguments.Bad("axis: only the last one is supported, -1");
  made->layer.mutable_one_hot()->set_num_classes(static_cast<int32_t>(number[0]));
  made->layer.mutable_one_hot()->set_axis(-1);
  v1::Layer any;
  any.mutable_reduce()->set_kind(v1::Reduce::MAX);
  any.mutable_reduce()->add_axis(1);
  made->then.push_back(std::move(any));
  return absl::OkStatus();
}

absl::Status ReadByName(const std::string& function, KerasArguments& arguments, absl::Span<const Shape> shapes,
                        int output, KerasOperationLayers* made) {
  if (IsKerasTopK(function)) return ReadTopK(arguments, output, &made->layer);
  if (function == "Average") return ReadAverage(arguments, shapes, made);
  if (function == "Sort" || function == "sort") return ReadSort(arguments, shapes[0], false, made);
  if (function == "Argsort" || function == "argsort") return ReadSort(arguments, shapes[0], true, made);
  if (function == "Median") return ReadMedian(arguments, shapes[0], made);
  if (function == "MultiHot") return ReadMultiHot(arguments, made);
  if (function == "Hstack") {
    made->layer.mutable_concatenate()->set_axis(1);
    return absl::OkStatus();
  }
  return ReadBlocks(arguments, shapes, made);
}

}  // namespace

bool IsKerasTopK(const std::string& function) {
  return function == "TopK" || function == "math.top_k" || function == "nn.top_k";
}

bool IsKerasComposed(const std::string& function) {
  static const std::set<std::string> others = {"Average", "Sort",   "sort",     "Argsort",
                                               "argsort", "Median", "MultiHot", "Hstack"};
  return others.contains(function) || IsKerasTopK(function) || IsBlocks(function);
}

absl::StatusOr<bool> ReadKerasComposed(KerasArguments& arguments, absl::Span<const Shape> shapes, int output,
                                       KerasOperationLayers* made) {
  const std::string function = arguments.Function();
  if (!IsKerasComposed(function)) return false;
  CAIRN_RETURN_IF_ERROR(ReadByName(function, arguments, shapes, output, made));
  return true;
}

}  // namespace cairn
