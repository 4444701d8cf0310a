#include "common/formats/keras_arrange.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

class ArrangementReader {
 public:
  ArrangementReader(KerasArguments& arguments, absl::Span<const Shape> shapes, int output)
      : arguments_(arguments), shapes_(shapes), output_(output) {}

  absl::StatusOr<bool> Read(v1::Layer* layer) {
    const Row* const row = RowOf(arguments_.Function());
    if (row == nullptr) return false;
    CAIRN_RETURN_IF_ERROR((this->*row->read)(layer));
    return true;
  }

  static bool Knows(const std::string& function) { return RowOf(function) != nullptr; }

 private:
  struct Row {
    const char* functions;  // names in Keras 3 and in TensorFlow, one space between them
    absl::Status (ArrangementReader::*read)(v1::Layer*);
  };

  static const Row* RowOf(const std::string& function) {
    using R = ArrangementReader;
    static constexpr Row kRows[] = {
        {"Reshape reshape", &R::ReadReshape},
        {"Transpose transpose", &R::ReadTranspose},
        {"ExpandDims expand_dims", &R::ReadExpand},
        {"Squeeze squeeze", &R::ReadSqueeze},
        {"Concatenate concat", &R::ReadConcatenate},
        {"Flip reverse", &R::ReadFlip},
        {"Swapaxes", &R::ReadSwap},
        {"Moveaxis", &R::ReadMove},
        {"Split ArraySplit split", &R::ReadSplit},
        {"Unstack unstack", &R::ReadUnstack},
        {"Take gather compat.v1.gather", &R::ReadTake},
        {"Repeat repeat", &R::ReadRepeat},
        {"Roll roll", &R::ReadRoll},
        {"Tile tile", &R::ReadTile},
        {"Pad pad compat.v1.pad", &R::ReadPad},
        {"Stack stack", &R::ReadStack},
        {"OneHot one_hot", &R::ReadOneHot},
        {"Einsum", &R::ReadEinsum},
    };
    for (const Row& row : kRows) {
      const std::vector<absl::string_view> names = absl::StrSplit(row.functions, ' ');
      if (std::find(names.begin(), names.end(), function) != names.end()) return &row;
    }
    return nullptr;
  }

  const Shape& shape() const { return shapes_[0]; }
  int rank() const { return static_cast<int>(shape().size()); }

  // ---- axes ----

  absl::Status ReadReshape(v1::Layer* layer) {
    const Json* value = arguments_.TakeOrOperand({"newshape", "shape"});
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, arguments_.Whole(value, "newshape"));
    if (shape.size() < 2 || shape[0] != -1 || std::count(shape.begin() + 1, shape.end(), -1) > 0) {
      return arguments_.Bad(absl::StrCat("newshape: ", ShownJson(*value),
                                         " does not leave the batch open; give -1 first and then positive numbers"));
    }
    KerasReshapeTo(Shape(shape.begin() + 1, shape.end()), layer);
    return absl::OkStatus();
  }

  absl::Status ReadTranspose(v1::Layer* layer) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes,
                           arguments_.Whole(arguments_.TakeOrOperand({"axes", "perm"}), "axes"));
    if (axes.empty() || axes[0] != 0) return arguments_.Bad("axes move the batch; leave 0 first");
    for (size_t i = 1; i < axes.size(); ++i) layer->mutable_permute()->add_dims(static_cast<int32_t>(axes[i]));
    return absl::OkStatus();
  }

  absl::Status ReadExpand(v1::Layer* layer) {
    const Json* value = arguments_.TakeOrOperand({"axis"});
    const int added = value != nullptr && value->is_array() ? static_cast<int>(value->size()) : 1;
    if (added > static_cast<int>(kLayerDimensionsMax)) return arguments_.Bad("axis has too many numbers; use one");
    CAIRN_ASSIGN_OR_RETURN(std::vector<int32_t> axes, arguments_.Axes(value, rank() + added));
    std::sort(axes.begin(), axes.end());
    Shape target = shape();
    for (const int32_t axis : axes) {
      if (axis > static_cast<int>(target.size()) + 1) return arguments_.Bad("axis names a place twice; name it once");
      target.insert(target.begin() + axis - 1, 1);
    }
    KerasReshapeTo(target, layer);
    return absl::OkStatus();
  }

  absl::Status ReadSqueeze(v1::Layer* layer) {
    const Json* value = arguments_.TakeOrOperand({"axis"});
    std::vector<int32_t> axes;
    for (int i = 0; value == nullptr && i < rank(); ++i) {
      if (shape()[static_cast<size_t>(i)] == 1) axes.push_back(i + 1);
    }
    if (value != nullptr) {
      CAIRN_ASSIGN_OR_RETURN(axes, arguments_.Axes(value, rank()));
    }
    Shape target;
    for (int i = 0; i < rank(); ++i) {
      const bool gone = std::count(axes.begin(), axes.end(), i + 1) > 0;
      if (gone && shape()[static_cast<size_t>(i)] != 1) return arguments_.Bad("axis: one that it names is not 1");
      if (!gone) target.push_back(shape()[static_cast<size_t>(i)]);
    }
    KerasReshapeTo(target, layer);
    return absl::OkStatus();
  }

  absl::Status ReadConcatenate(v1::Layer* layer) {
    const Json last = arguments_.keras2() ? Json(nullptr) : Json(-1);
    const Json* axis = arguments_.TakeOrOperand({"axis"});
    if (axis == nullptr) axis = &last;
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> axes, arguments_.Axes(axis, rank()));
    if (axes.size() != 1) return arguments_.Bad("axis has several numbers; use one");
    layer->mutable_concatenate()->set_axis(axes[0]);
    return absl::OkStatus();
  }

  absl::Status ReadFlip(v1::Layer* layer) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> axes,
                           arguments_.Axes(arguments_.TakeOrOperand({"axis"}), rank()));
    for (int i = 1; i <= rank(); ++i) {
      v1::Slice::Axis* axis = layer->mutable_slice()->add_axes();
      if (std::count(axes.begin(), axes.end(), i) > 0) axis->set_step(-1);
    }
    return absl::OkStatus();
  }

  absl::Status ReadSwap(v1::Layer* layer) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> a,
                           arguments_.Axes(arguments_.TakeOrOperand({"axis1"}), rank(), "axis1"));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> b,
                           arguments_.Axes(arguments_.TakeOrOperand({"axis2"}), rank(), "axis2"));
    if (a.size() != 1 || b.size() != 1) return arguments_.Bad("axis1 or axis2 is not one number; give one for each");
    for (int i = 1; i <= rank(); ++i) {
      layer->mutable_permute()->add_dims(i == a[0] ? b[0] : i == b[0] ? a[0] : i);
    }
    return absl::OkStatus();
  }

  // As NumPy's moveaxis: the named axes move to their destinations; the others keep their order.
  absl::Status ReadMove(v1::Layer* layer) {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> from,
                           arguments_.Axes(arguments_.Take({"source"}), rank(), "source"));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> to,
                           arguments_.Axes(arguments_.Take({"destination"}), rank(), "destination"));
    std::vector<int32_t> order(static_cast<size_t>(rank()), 0);
    if (from.size() != to.size())
      return arguments_.Bad("source and destination have different lengths; make them equal");
    for (size_t i = 0; i < from.size(); ++i) {
      int32_t& place = order[static_cast<size_t>(to[i]) - 1];
      if (place != 0 || std::count(from.begin(), from.end(), from[i]) > 1) {
        return arguments_.Bad("source or destination names an axis twice; name it once");
      }
      place = from[i];
    }
    int32_t next = 1;
    for (int32_t& place : order) {
      if (place != 0) continue;
      while (std::count(from.begin(), from.end(), next) > 0) ++next;
      place = next++;
    }
    layer->mutable_permute()->mutable_dims()->Assign(order.begin(), order.end());
    return absl::OkStatus();
  }

  // ---- parts ----

  // The one axis of the option; without it Keras' default, which is the batch.
  absl::StatusOr<int32_t> OneAxis(int of_rank) {
    const Json batch = 0;
    const Json* value = arguments_.TakeOrOperand({"axis"});
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> axes,
                           arguments_.Axes(value == nullptr ? &batch : value, of_rank));
    if (axes.size() != 1) return arguments_.Bad("axis has several numbers; use one");
    return axes[0];
  }

  v1::Slice::Axis* PartOf(int32_t axis, v1::Layer* layer) const {
    while (layer->mutable_slice()->axes_size() < rank()) layer->mutable_slice()->add_axes();
    return layer->mutable_slice()->mutable_axes(axis - 1);
  }

  // Keras' lists say where parts begin, TensorFlow's how long they are.
  absl::Status ReadSplit(v1::Layer* layer) {
    const Json* value = arguments_.TakeOrOperand({"indices_or_sections", "num_or_size_splits"});
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> given, arguments_.Whole(value, "indices_or_sections"));
    CAIRN_ASSIGN_OR_RETURN(const int32_t axis, OneAxis(rank()));
    const int64_t size = shape()[static_cast<size_t>(axis) - 1];
    const auto bad = [&] {
      return arguments_.Bad(
          absl::StrCat("indices_or_sections: ", ShownJson(*value), " does not split an axis of ", size));
    };
    std::vector<int64_t> begins = {0};
    if (!value->is_array()) {
      const int64_t parts = given[0];
      const bool uneven = arguments_.Function() == "ArraySplit";  // the first parts are longer by one
      if (parts < 1 || parts > size || (!uneven && size % parts != 0)) return bad();
      for (int64_t k = 0; k < parts; ++k) begins.push_back(begins.back() + size / parts + (k < size % parts));
    } else {
      for (const int64_t number : given) {
        begins.push_back(arguments_.keras2() ? begins.back() + number : number < 0 ? number + size : number);
      }
      if (!arguments_.keras2()) begins.push_back(size);
    }
    const size_t at = static_cast<size_t>(output_);
    if (begins.back() != size || at + 1 >= begins.size() || !std::is_sorted(begins.begin(), begins.end())) return bad();
    if (begins[at] == begins[at + 1]) return arguments_.Bad("it gives a part of no numbers, which the model takes");
    PartOf(axis, layer)->set_begin(static_cast<int32_t>(begins[at]));
    PartOf(axis, layer)->set_end(static_cast<int32_t>(begins[at + 1]));
    return absl::OkStatus();
  }

  absl::Status ReadUnstack(v1::Layer* layer) {
    arguments_.Take({"num"});
    CAIRN_ASSIGN_OR_RETURN(const int32_t axis, OneAxis(rank()));
    if (output_ >= shape()[static_cast<size_t>(axis) - 1]) return arguments_.Bad("it has no such output");
    PartOf(axis, layer)->set_begin(output_);
    PartOf(axis, layer)->set_drop(true);
    return absl::OkStatus();
  }

  // ---- places ----

  absl::Status SetTake(int32_t axis, const std::vector<int64_t>& places, v1::Layer* layer) const {
    if (places.size() > static_cast<size_t>(kWindowMax)) {
      return arguments_.Bad(absl::StrCat("it takes more than ", kWindowMax, " places of an axis; take fewer"));
    }
    layer->mutable_take()->set_axis(axis);
    for (const int64_t place : places) layer->mutable_take()->add_indices(static_cast<int32_t>(place));
    return absl::OkStatus();
  }

  absl::Status ReadTake(v1::Layer* layer) {
    if (!arguments_.operands().empty() && arguments_.operands()[0] != nullptr) {
      return arguments_.Bad("it takes numbers of a constant; use an Embedding");
    }
    const Json* given = arguments_.TakeOrOperand({"indices"});
    const Json* batched = arguments_.Take({"batch_dims"});
    arguments_.Take({"mode", "validate_indices"});
    if (batched != nullptr && *batched != 0) return arguments_.Bad("batch_dims other than 0 are not supported");
    const std::optional<KerasConstant> indices = given == nullptr ? std::nullopt : ReadKerasConstant(*given);
    if (!indices.has_value()) return arguments_.Bad("its indices are not constant whole numbers; give a list of them");
    CAIRN_ASSIGN_OR_RETURN(const int32_t axis, OneAxis(rank()));
    std::vector<int64_t> places;
    const int64_t size = shape()[static_cast<size_t>(axis) - 1];
    for (const float number : indices->numbers) {
      if (std::trunc(number) != number || !(number >= static_cast<float>(-size) && number < static_cast<float>(size))) {
        return arguments_.Bad(absl::StrCat("index ", number, " is not on an axis of ", size));
      }
      places.push_back(static_cast<int64_t>(number));
    }
    if (indices->shape.empty()) {
      PartOf(axis, layer)->set_begin(static_cast<int32_t>(places[0]));
      PartOf(axis, layer)->set_drop(true);
      return absl::OkStatus();
    }
    CAIRN_RETURN_IF_ERROR(SetTake(axis, places, layer));
    layer->mutable_take()->mutable_indices_shape()->Assign(indices->shape.begin(), indices->shape.end());
    return absl::OkStatus();
  }

  // Each place several times, one beside the other.
  absl::Status ReadRepeat(v1::Layer* layer) {
    const Json* value = arguments_.TakeOrOperand({"repeats"});
    CAIRN_ASSIGN_OR_RETURN(std::vector<int64_t> repeats, arguments_.Whole(value, "repeats"));
    CAIRN_ASSIGN_OR_RETURN(const int32_t axis, OneAxis(rank()));
    const int64_t size = shape()[static_cast<size_t>(axis) - 1];
    if (repeats.size() == 1) repeats.resize(static_cast<size_t>(size), repeats[0]);
    if (static_cast<int64_t>(repeats.size()) != size)
      return arguments_.Bad("repeats has not one number for each place");
    std::vector<int64_t> places;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t times = repeats[static_cast<size_t>(i)];
      if (times < 0 || times > kWindowMax || static_cast<int64_t>(places.size()) > kWindowMax) {
        return arguments_.Bad(absl::StrCat("repeats: ", ShownJson(*value), " is not in 0 .. ", kWindowMax));
      }
      places.insert(places.end(), static_cast<size_t>(times), i);
    }
    return SetTake(axis, places, layer);
  }

  absl::Status ReadRoll(v1::Layer* layer) {
    const Json* value = arguments_.TakeOrOperand({"shift"});
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> shift, arguments_.Whole(value, "shift"));
    CAIRN_ASSIGN_OR_RETURN(const int32_t axis, OneAxis(rank()));
    if (shift.size() != 1) return arguments_.Bad("shift has several numbers; use one");
    const int64_t size = shape()[static_cast<size_t>(axis) - 1];
    std::vector<int64_t> places;
    for (int64_t i = 0; i < size; ++i) places.push_back(((i - shift[0]) % size + size) % size);
    return SetTake(axis, places, layer);
  }

  absl::Status ReadTile(v1::Layer* layer) {
    const Json* value = arguments_.TakeOrOperand({"repeats", "multiples"});
    CAIRN_ASSIGN_OR_RETURN(std::vector<int64_t> repeats, arguments_.Whole(value, "repeats"));
    const size_t axes = static_cast<size_t>(rank()) + 1;
    if (repeats.size() < axes) repeats.insert(repeats.begin(), axes - repeats.size(), 1);
    if (repeats.size() > axes || repeats[0] != 1) {
      return arguments_.Bad(
          absl::StrCat("repeats: ", ShownJson(*value), " does not leave the batch as it is; give 1 first"));
    }
    for (size_t i = 1; i < axes; ++i) layer->mutable_tile()->add_repeats(static_cast<int32_t>(repeats[i]));
    return absl::OkStatus();
  }

  absl::Status ReadPad(v1::Layer* layer) {
    const Json *widths = arguments_.TakeOrOperand({"pad_width", "paddings"}), *mode = arguments_.Take({"mode"}),
               *value = arguments_.Take({"constant_values"});
    const std::string name =
        mode != nullptr && mode->is_string() ? absl::AsciiStrToLower(mode->get<std::string>()) : "";
    v1::Pad* pad = layer->mutable_pad();
    if (name == "reflect") pad->set_mode(v1::Pad::REFLECT);
    if (name == "symmetric") pad->set_mode(v1::Pad::SYMMETRIC);
    if (mode != nullptr && name != "constant" && name != "reflect" && name != "symmetric") {
      return arguments_.Bad(
          absl::StrCat("mode: ", ShownJson(*mode), " is not supported; use constant, reflect or symmetric"));
    }
    if (value != nullptr && !value->is_number()) return arguments_.Bad("constant_values is not one number; give one");
    if (value != nullptr) pad->set_constant_value(value->get<float>());
    const std::optional<KerasConstant> given = widths == nullptr ? std::nullopt : ReadKerasConstant(*widths);
    const std::vector<int32_t> shape = {rank() + 1, 2};
    if (!given.has_value() || given->shape != shape || given->numbers[0] != 0 || given->numbers[1] != 0) {
      return arguments_.Bad(absl::StrCat("pad_width: ", widths == nullptr ? "none" : ShownJson(*widths),
                                         " has not two numbers for each axis, [0, 0] for the batch; give these"));
    }
    for (size_t i = 2; i < given->numbers.size(); ++i) {
      const float number = given->numbers[i];
      if (!(number >= 0 && number <= static_cast<float>(kWindowMax)) || std::trunc(number) != number) {
        return arguments_.Bad(absl::StrCat("pad_width: ", number, " is not a whole number in 0 .. ", kWindowMax));
      }
      i % 2 == 0 ? pad->add_before(static_cast<int32_t>(number)) : pad->add_after(static_cast<int32_t>(number));
    }
    return absl::OkStatus();
  }

  // ---- joins ----

  absl::Status ReadStack(v1::Layer* layer) {
    CAIRN_ASSIGN_OR_RETURN(const int32_t axis, OneAxis(rank() + 1));
    if (shapes_.size() < 2) return arguments_.Bad("it stacks fewer than two tensors; leave it out");
    layer->mutable_stack()->set_axis(axis);
    return absl::OkStatus();
  }

  absl::Status ReadOneHot(v1::Layer* layer) {
    const Json last = -1;
    const Json *classes = arguments_.TakeOrOperand({"num_classes", "depth"}), *axis = arguments_.Take({"axis"});
    arguments_.Take({"dtype"});  // tensors are float32
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> number, arguments_.Whole(classes, "num_classes"));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> axes,
                           arguments_.Axes(axis == nullptr ? &last : axis, rank() + 1));
    if (number.size() != 1 || axes.size() != 1) return arguments_.Bad("num_classes and axis are one number each");
    layer->mutable_one_hot()->set_num_classes(static_cast<int32_t>(number[0]));
    layer->mutable_one_hot()->set_axis(axes[0]);
    return absl::OkStatus();
  }

  absl::Status ReadEinsum(v1::Layer* layer) {
    const Json* equation = arguments_.Take({"subscripts"});
    if (equation == nullptr || !equation->is_string()) return arguments_.Bad("subscripts is not text");
    if (shapes_.size() != 2 || arguments_.operands().size() != 2) {
      return arguments_.Bad("it is not of two tensors; use an EinsumDense, or operations one after the other");
    }
    layer->mutable_einsum()->set_equation(equation->get<std::string>());
    return absl::OkStatus();
  }

  KerasArguments& arguments_;
  const absl::Span<const Shape> shapes_;
  const int output_;
};

}  // namespace

bool IsKerasArrangement(const std::string& function) { return ArrangementReader::Knows(function); }

absl::StatusOr<bool> ReadKerasArrangement(KerasArguments& arguments, absl::Span<const Shape> shapes, int output,
                                          v1::Layer* layer) {
  return ArrangementReader(arguments, shapes, output).Read(layer);
}

}  // namespace cairn
