#include "common/formats/keras_operation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/formats/keras_activation_operation.h"
#include "common/formats/keras_arguments.h"
#include "common/formats/keras_arrange.h"
#include "common/formats/keras_composed.h"
#include "common/formats/limits.h"
#include "common/model/keras/keras_operations.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

class Reader {
 public:
  Reader(KerasArguments& arguments, absl::Span<const Shape> shapes, int output)
      : arguments_(arguments), shapes_(shapes), output_(output) {}

  absl::Status Read(KerasOperationLayers* made) {
    v1::Layer* const layer = &made->layer;
    const std::string function = arguments_.Function();
    if (const KerasOperation* found = arguments_.keras2() ? FindTfOperation(function) : FindKerasOperation(function)) {
      return ReadOperation(found->kind, layer->mutable_operation());
    }
    if (const KerasReduction* found = arguments_.keras2() ? FindTfReduction(function) : FindKerasReduction(function)) {
      return ReadReduction(found->kind, layer->mutable_reduce());
    }
    if (IsGetItem(function)) return ReadGetItem(layer);
    if (IsSame(function)) {
      layer->mutable_operation()->set_kind(v1::Operation::CAST);
      return absl::OkStatus();
    }
    CAIRN_ASSIGN_OR_RETURN(const bool arranges, ReadKerasArrangement(arguments_, shapes_, output_, layer));
    if (arranges) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(const bool composed, ReadKerasComposed(arguments_, shapes_, output_, made));
    if (composed) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(const bool activates, ReadKerasActivation(arguments_, layer));
    if (activates) return absl::OkStatus();
    return Unknown(arguments_);
  }

  static absl::Status Unknown(const KerasArguments& arguments) {
    return arguments.Bad(
        "Cairn does not have this operation on tensors; use a layer of Keras, or an operation that it has, such as +, "
        "*, mean, reshape or x[:, 1:3]");
  }

  // Whether Read() knows the function.
  static bool Knows(const KerasArguments& arguments) {
    const std::string function = arguments.Function();
    if (arguments.keras2() ? FindTfOperation(function) != nullptr : FindKerasOperation(function) != nullptr)
      return true;
    if (arguments.keras2() ? FindTfReduction(function) != nullptr : FindKerasReduction(function) != nullptr)
      return true;
    return IsGetItem(function) || IsSame(function) || IsKerasArrangement(function) || IsKerasComposed(function) ||
           IsKerasActivation(function);
  }

 private:
  const Shape& shape() const { return shapes_[0]; }
  int rank() const { return static_cast<int>(shape().size()); }

  static bool IsGetItem(const std::string& function) {
    return function == "GetItem" || function == "__operators__.getitem";
  }

  // Gives what it takes: numbers are real.
  static bool IsSame(const std::string& function) {
    static const std::set<std::string> all = {"Identity",  "identity", "Copy",      "ConvertToTensor", "Real",
                                              "math.real", "Conj",     "Conjugate", "math.conj"};
    return all.contains(function);
  }

  // ---- operations ----

  absl::Status ReadOperation(v1::Operation::Kind kind, v1::Operation* operation) {
    using O = v1::Operation;
    operation->set_kind(kind);
    if (kind == O::CLIP) return ReadClip(operation);
    if (kind == O::CAST) return ReadCast(operation);
    if (kind == O::WHERE) return ReadWhere(operation);
    if (kind == O::FULL_LIKE) return ReadFull(operation);
    if (kind == O::NAN_TO_NUM) return ReadReplacements(operation);
    if (kind == O::SOFTMAX || kind == O::L2_NORMALIZE || kind == O::CUMSUM || kind == O::CUMPROD) {
      const Json last = -1;
      const Json* axis = arguments_.Take({"axis"});
      if (axis == nullptr && (kind == O::CUMSUM || kind == O::CUMPROD)) {
        return arguments_.Bad("axis is missing: it would run over the batch too; give the axis, such as axis=1");
      }
      CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> axes, arguments_.Axes(axis == nullptr ? &last : axis, rank()));
      operation->mutable_axis()->Assign(axes.begin(), axes.end());
      const Json *order = arguments_.Take({"order"}), *epsilon = arguments_.Take({"epsilon"});
      if (order != nullptr && *order != 2) return arguments_.Bad("order other than 2 is not supported");
      if (epsilon != nullptr && !(epsilon->is_number() && epsilon->get<double>() <= 1e-6)) {
        return arguments_.Bad(absl::StrCat("epsilon: ", ShownJson(*epsilon), " is not supported; use 1e-7, say"));
      }
      return absl::OkStatus();
    }
    const Json* decimals = arguments_.Take({"decimals"});
    if (decimals != nullptr && *decimals != 0) return arguments_.Bad("decimals other than 0 are not supported");
    size_t place = 0;
    for (const Json* operand : arguments_.operands()) {
      const size_t at = place++;
      if (operand == nullptr) continue;
      if (operand->is_null()) continue;
      if (!operation->constant().empty()) return arguments_.Bad("it has more than one constant; combine them first");
      CAIRN_RETURN_IF_ERROR(SetConstant(*operand, operation->mutable_constant(), operation->mutable_constant_shape()));
      operation->set_constant_first(at == 0);
    }
    return absl::OkStatus();
  }

  // One constant for all examples: its batch axis has size 1.
  template <typename Numbers, typename Sides>
  absl::Status SetConstant(const Json& operand, Numbers* numbers, Sides* sides) const {
    std::optional<KerasConstant> constant = ReadKerasConstant(operand);
    if (!constant.has_value())
      return arguments_.Bad(absl::StrCat(ShownJson(operand), " is neither a number nor a tensor"));
    if (static_cast<int>(constant->shape.size()) == rank() + 1 && constant->shape[0] == 1) {
      constant->shape.erase(constant->shape.begin());
    }
    numbers->Assign(constant->numbers.begin(), constant->numbers.end());
    sides->Assign(constant->shape.begin(), constant->shape.end());
    return absl::OkStatus();
  }

  absl::Status ReadWhere(v1::Operation* operation) {
    const std::vector<const Json*>& operands = arguments_.operands();
    const auto missing = [](const Json* operand) { return operand != nullptr && operand->is_null(); };
    if (operands.size() != 3 || std::any_of(operands.begin(), operands.end(), missing)) {
      return arguments_.Bad("without two values it gives places, as many as there are; give both values");
    }
    if (operands[0] != nullptr) {
      return arguments_.Bad("its condition is a constant; give the output of a layer, or multiply by the constant");
    }
    if (operands[1] != nullptr) {
      CAIRN_RETURN_IF_ERROR(
          SetConstant(*operands[1], operation->mutable_constant(), operation->mutable_constant_shape()));
      operation->set_constant_first(true);
    }
    if (operands[2] == nullptr) return absl::OkStatus();
    if (operands[1] != nullptr) {
      return SetConstant(*operands[2], operation->mutable_other_constant(), operation->mutable_other_shape());
    }
    return SetConstant(*operands[2], operation->mutable_constant(), operation->mutable_constant_shape());
  }

  // zeros_like, ones_like, full_like.
  absl::Status ReadFull(v1::Operation* operation) {
    const std::string function = arguments_.Function();
    float number = function == "OnesLike" || absl::EndsWith(function, "ones_like") ? 1.0f : 0.0f;
    if (function == "FullLike") {
      const Json* const fill = arguments_.TakeOrOperand({"fill_value"});
      const std::optional<KerasConstant> constant = fill == nullptr ? std::nullopt : ReadKerasConstant(*fill);
      if (!constant.has_value() || !constant->shape.empty()) {
        return arguments_.Bad("its fill_value is not one number; give one, or multiply ones_like by it");
      }
      number = constant->numbers[0];
    }
    const Json* const dtype = arguments_.Take({"dtype"});
    const std::string type = dtype != nullptr && dtype->is_string() ? dtype->get<std::string>() : "float32";
    const bool fits = absl::StrContains(type, "float") ||
                      (type == "bool" ? number == 0 || number == 1 : std::trunc(number) == number);
    if (!fits) return arguments_.Bad(absl::StrCat("dtype: \"", ShownText(type), "\" does not hold ", number));
    operation->add_constant(number);
    return absl::OkStatus();
  }

  absl::Status ReadReplacements(v1::Operation* operation) {
    const auto read = [&](const char* option, auto set) -> absl::Status {
      const Json* const value = arguments_.Take({option});
      if (value == nullptr) return absl::OkStatus();
      if (!value->is_number()) {
        return arguments_.Bad(absl::StrCat(option, ": ", ShownJson(*value), " is not a number; give one"));
      }
      set(value->get<float>());
      return absl::OkStatus();
    };
    CAIRN_RETURN_IF_ERROR(read("nan", [&](float number) { operation->set_nan(number); }));
    CAIRN_RETURN_IF_ERROR(read("posinf", [&](float number) { operation->set_high(number); }));
    return read("neginf", [&](float number) { operation->set_low(number); });
  }

  absl::Status ReadClip(v1::Operation* operation) {
    const Json* low = arguments_.TakeOrOperand({"x_min", "clip_value_min"});
    const Json* high = arguments_.TakeOrOperand({"x_max", "clip_value_max"});
    for (const Json* limit : {low, high}) {
      if (limit != nullptr && !limit->is_number()) return arguments_.Bad("its limits are not numbers; use numbers");
    }
    if (low != nullptr) operation->set_low(low->get<float>());
    if (high != nullptr) operation->set_high(high->get<float>());
    return absl::OkStatus();
  }

  // Numbers stay float32: a cast to integers cuts their fractions off, one to truth values asks whether they are 0.
  absl::Status ReadCast(v1::Operation* operation) {
    const Json* dtype = arguments_.TakeOrOperand({"dtype"});
    const std::string name = dtype != nullptr && dtype->is_string() ? dtype->get<std::string>() : "";
    if (absl::StrContains(name, "float")) return absl::OkStatus();
    if (name == "int32" || name == "int64") {
      operation->set_kind(v1::Operation::TRUNC);
      return absl::OkStatus();
    }
    if (name == "bool") {
      operation->set_kind(v1::Operation::NOT_EQUAL);
      operation->add_constant(0);
      return absl::OkStatus();
    }
    return arguments_.Bad(absl::StrCat("dtype: ", dtype == nullptr ? "none" : ShownJson(*dtype),
                                       " is not supported; use float32, int32, int64 or bool"));
  }

  absl::Status ReadReduction(v1::Reduce::Kind kind, v1::Reduce* reduce) {
    reduce->set_kind(kind);
    const Json* axis = arguments_.TakeOrOperand({"axis"});
    if (axis == nullptr) {
      return arguments_.Bad(
          "axis is missing: it would reduce the batch too; give the axes after the batch, such as axis=1");
    }
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int32_t> axes, arguments_.Axes(axis, rank()));
    reduce->mutable_axis()->Assign(axes.begin(), axes.end());
    const Json* keep = arguments_.Take({"keepdims", "keep_dims"});
    reduce->set_keepdims(keep != nullptr && *keep == true);
    const Json* order = arguments_.Take({"ord"});
    if (order == nullptr || *order == 2 || *order == "euclidean") return absl::OkStatus();
    if (kind != v1::Reduce::L2_NORM || *order != 1 || axes.size() != 1) {
      return arguments_.Bad("ord other than 2 is not supported, nor 1 over several axes");
    }
    reduce->set_kind(v1::Reduce::L1_NORM);
    return absl::OkStatus();
  }

  static bool IsEllipsis(const Json& item) { return JsonTextOf(item, "class_name") == "__ellipsis__"; }

  // Reads one item of an index after the batch.
  absl::Status ReadKey(const Json& item, v1::Slice::Axis* axis) const {
    if (item.is_number_integer()) {
      axis->set_begin(static_cast<int32_t>(std::clamp<double>(item.get<double>(), -INT32_MAX, INT32_MAX)));
      axis->set_drop(true);
      return absl::OkStatus();
    }
    const Json* slice =
        item.is_object() && item.contains("config") && item["config"].is_object() ? &item["config"] : &item;
    if (!slice->is_object() || !slice->contains("start")) {
      return arguments_.Bad(absl::StrCat("the index ", ShownJson(item), " is not supported; use numbers and slices"));
    }
    const auto number = [&](const char* key, auto set) -> absl::Status {
      if (!slice->contains(key) || (*slice)[key].is_null()) return absl::OkStatus();
      if (!(*slice)[key].is_number_integer())
        return arguments_.Bad("the ends and the step of a slice must be whole numbers");
      set(static_cast<int32_t>(std::clamp<double>((*slice)[key].get<double>(), -INT32_MAX, INT32_MAX)));
      return absl::OkStatus();
    };
    CAIRN_RETURN_IF_ERROR(number("start", [&](int32_t n) { axis->set_begin(n); }));
    CAIRN_RETURN_IF_ERROR(number("stop", [&](int32_t n) { axis->set_end(n); }));
    return number("step", [&](int32_t n) { axis->set_step(n); });
  }

  static bool IsWhole(const v1::Slice::Axis& axis) {
    return !axis.drop() && !axis.has_begin() && !axis.has_end() && (!axis.has_step() || axis.step() == 1);
  }

  absl::Status ReadGetItem(v1::Layer* layer) {
    const Json* key = arguments_.TakeOrOperand({"key", "slice_spec"});
    if (key == nullptr) return arguments_.Bad("its key is missing");
    Json items = key->is_array() ? *key : Json::array({*key});
    if (items.size() > kKerasListMax) return arguments_.Bad("its key is too long");
    const int axes = static_cast<int>(
        std::count_if(items.begin(), items.end(), [](const Json& i) { return !i.is_null() && !IsEllipsis(i); }));
    const Json whole = {{"start", nullptr}, {"stop", nullptr}, {"step", nullptr}};
    Json all = Json::array();
    for (const Json& item : items) {
      if (!IsEllipsis(item)) {
        all.push_back(item);
        continue;
      }
      for (int i = axes; i < rank() + 1; ++i) all.push_back(whole);
    }
    v1::Slice slice;
    Shape with_new;
    bool batch = true, has_new = false;
    for (const Json& item : all) {
      if (item.is_null()) {
        if (batch) return arguments_.Bad("its key adds an axis before the batch; add it after the batch");
        has_new = true;
        with_new.push_back(1);
        continue;
      }
      v1::Slice::Axis axis;
      CAIRN_RETURN_IF_ERROR(ReadKey(item, &axis));
      if (batch) {
        if (!IsWhole(axis)) return arguments_.Bad("its key takes a part of the batch; take all of it, as x[:, 0]");
        batch = false;
        continue;
      }
      if (slice.axes_size() >= rank()) return arguments_.Bad("its key has more axes than its input");
      with_new.push_back(shape()[static_cast<size_t>(slice.axes_size())]);
      *slice.add_axes() = axis;
    }
    if (!has_new) {
      *layer->mutable_slice() = std::move(slice);
      return absl::OkStatus();
    }
    if (!std::all_of(slice.axes().begin(), slice.axes().end(), IsWhole)) {
      return arguments_.Bad("its key adds an axis and takes a part; do the two one after the other");
    }
    for (size_t i = static_cast<size_t>(slice.axes_size()); i < shape().size(); ++i) with_new.push_back(shape()[i]);
    KerasReshapeTo(with_new, layer);
    return absl::OkStatus();
  }

  KerasArguments& arguments_;
  const absl::Span<const Shape> shapes_;
  const int output_;
};

}  // namespace

bool IsKerasOperation(const std::string& type, const std::string& module) {
  return absl::StartsWith(module, "keras.src.ops") || absl::StartsWith(module, "keras.ops") || type == "TFOpLambda" ||
         type == "SlicingOpLambda";
}

absl::StatusOr<KerasCall> ReadKerasOperationCall(const KerasOperationEntry& entry, const KerasFirstCalls& firsts) {
  KerasArguments arguments(entry, firsts);
  CAIRN_RETURN_IF_ERROR(arguments.Read());
  if (arguments.tensors().empty()) return arguments.Bad("it takes no input");
  KerasCall call;
  call.inputs = arguments.tensors();
  return call;
}

absl::Status CheckIsKerasOperation(const KerasOperationEntry& entry) {
  const KerasFirstCalls none;
  const KerasArguments arguments(entry, none);
  return Reader::Knows(arguments) ? absl::OkStatus() : Reader::Unknown(arguments);
}

bool IsKerasSplit(const std::string& type, const Json& config) {
  const std::string function = type == "TFOpLambda" ? JsonTextOf(config, "function") : type;
  static const std::set<std::string> all = {"Split", "ArraySplit", "Unstack", "split", "unstack"};
  return all.contains(function) || IsKerasTopK(function);
}

absl::StatusOr<KerasOperationLayers> ReadKerasOperation(const KerasOperationEntry& entry,
                                                        absl::Span<const Shape> shapes, int output) {
  const KerasFirstCalls none;
  KerasArguments arguments(entry, none);
  CAIRN_RETURN_IF_ERROR(arguments.Read());
  KerasOperationLayers made;
  CAIRN_RETURN_IF_ERROR(Reader(arguments, shapes, output).Read(&made));
  CAIRN_RETURN_IF_ERROR(arguments.Finish());
  made.layer.set_name(entry.name);
  return made;
}

}  // namespace cairn
