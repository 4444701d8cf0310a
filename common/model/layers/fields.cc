#include "common/model/layers/fields.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/limits.h"
#include "common/model/layer_type.h"
#include "common/model/limits.h"

namespace cairn::layers {
namespace {

absl::Status CheckWindowNumber(const char* field, int64_t number) {
  if (number <= 0) return Bad(field, " ", number, " is not positive; use 1 or more");
  if (number > kWindowMax) return Bad(field, " ", number, " is too large; the limit is ", kWindowMax);
  return absl::OkStatus();
}

// keras.initializers.compute_fans.
void ComputeFans(const Shape& shape, int64_t* fan_in, int64_t* fan_out) {
  if (shape.size() < 2) {
    *fan_in = *fan_out = NumElements(shape);
    return;
  }
  int64_t receptive_field = 1;
  for (size_t i = 0; i + 2 < shape.size(); ++i) receptive_field *= shape[i];
  *fan_in = shape[shape.size() - 2] * receptive_field;
  *fan_out = shape.back() * receptive_field;
}

// Every argument must belong to the kind, and be a number.
absl::Status CheckArguments(const char* field, const v1::Initializer& i) {
  const auto kind = i.kind();
  const bool normal = kind == v1::Initializer::RANDOM_NORMAL || kind == v1::Initializer::TRUNCATED_NORMAL;
  struct Argument {
    const char* name;
    bool given, fits;
    const char* kinds;
    float value;
  };
  const bool uniform = kind == v1::Initializer::RANDOM_UNIFORM, scaling = kind == v1::Initializer::VARIANCE_SCALING;
  const Argument arguments[] = {
      {"value", i.value() != 0, kind == v1::Initializer::CONSTANT, "CONSTANT", i.value()},
      {"minval", i.has_minval(), uniform, "RANDOM_UNIFORM", i.minval()},
      {"maxval", i.has_maxval(), uniform, "RANDOM_UNIFORM", i.maxval()},
      {"mean", i.has_mean(), normal, "RANDOM_NORMAL or TRUNCATED_NORMAL", i.mean()},
      {"stddev", i.has_stddev(), normal, "RANDOM_NORMAL or TRUNCATED_NORMAL", i.stddev()},
      {"scale", i.has_scale(), scaling, "VARIANCE_SCALING", i.scale()},
      {"mode", i.mode() != v1::Initializer::FAN_MODE_UNSPECIFIED, scaling, "VARIANCE_SCALING", 0},
      {"distribution", i.distribution() != v1::Initializer::DISTRIBUTION_UNSPECIFIED, scaling, "VARIANCE_SCALING", 0},
      {"gain", i.has_gain(), kind == v1::Initializer::ORTHOGONAL || kind == v1::Initializer::IDENTITY,
       "ORTHOGONAL or IDENTITY", i.gain()},
  };
  for (const Argument& a : arguments) {
    if (a.given && !a.fits) {
      return Bad(field, ".", a.name, " is only for kind ", a.kinds, "; set that kind or leave the ", a.name, " out");
    }
    if (!std::isfinite(a.value)) return Bad(field, ".", a.name, " is not finite; use a number");
  }
  if (!v1::Initializer::FanMode_IsValid(i.mode())) {
    return Bad(field, ".mode ", static_cast<int>(i.mode()), " is not known; use FAN_IN, FAN_OUT or FAN_AVG");
  }
  if (!v1::Initializer::Distribution_IsValid(i.distribution())) {
    return Bad(field, ".distribution ", static_cast<int>(i.distribution()),
               " is not known; use DISTRIBUTION_UNIFORM, say");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadPair(const char* field, int64_t fallback, Numbers* numbers, int64_t pair[2]) {
  if (numbers->size() > 2) return Bad(field, " has ", numbers->size(), " numbers; give one, or height and width");
  if (numbers->empty()) {
    if (fallback == 0) return Bad(field, " is missing; give one number, or height and width");
    numbers->Add(static_cast<int32_t>(fallback));
  }
  if (numbers->size() == 1) {
    const int32_t both = numbers->Get(0);
    numbers->Add(both);
  }
  for (int i = 0; i < 2; ++i) {
    pair[i] = numbers->Get(i);
    CAIRN_RETURN_IF_ERROR(CheckWindowNumber(field, pair[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<int32_t> ReadOne(const char* field, int32_t fallback, bool given, int32_t value) {
  if (!given && fallback == 0) return Bad(field, " is missing; give a number such as 3");
  const int32_t number = given ? value : fallback;
  CAIRN_RETURN_IF_ERROR(CheckWindowNumber(field, number));
  return number;
}

absl::Status NeedPositive(const char* field, int64_t value, const char* example) {
  if (value > 0) return absl::OkStatus();
  return Bad(field, " ", value, " is not positive; use a number such as ", example);
}

absl::Status NeedRate(const char* field, float rate) {
  if (rate >= 0 && rate < 1) return absl::OkStatus();
  return Bad(field, " ", rate, " is outside [0, 1); use a number such as 0.5");
}

absl::Status NeedEpsilon(float epsilon) {
  if (epsilon > 0 && std::isfinite(epsilon)) return absl::OkStatus();
  return Bad("epsilon ", epsilon, " is not positive; use a number such as 0.001");
}

absl::Status ResolveActivation(v1::Activation* activation) {
  if (!v1::Activation_IsValid(*activation)) {
    return Bad("activation ", static_cast<int>(*activation),
               " is not known; use LINEAR, RELU, RELU6, LEAKY_RELU, ELU, GELU, GELU_TANH, SILU, SOFTPLUS, SIGMOID, "
               "TANH or SOFTMAX");
  }
  if (*activation == v1::THRESHOLD) {
    return Bad("activation THRESHOLD has arguments; use LINEAR, and an activation layer with a threshold after it");
  }
  if (*activation == v1::GLU) {
    return Bad("activation GLU halves an axis; use LINEAR, and an activation layer with GLU after it");
  }
  if (*activation == v1::ACTIVATION_UNSPECIFIED) *activation = v1::LINEAR;
  return absl::OkStatus();
}

absl::Status ResolvePadding(v1::Padding* padding) {
  if (!v1::Padding_IsValid(*padding)) {
    return Bad("padding ", static_cast<int>(*padding), " is not known; use VALID or SAME");
  }
  if (*padding == v1::CAUSAL) return Bad("padding CAUSAL is for convolutions along a sequence; use VALID or SAME");
  if (*padding == v1::PADDING_UNSPECIFIED) *padding = v1::VALID;
  return absl::OkStatus();
}

absl::Status NeedNoActivityRegularizer(const v1::Layer& inner) {
  const google::protobuf::FieldDescriptor* const kind =
      v1::Layer::descriptor()->FindFieldByNumber(static_cast<int>(inner.kind_case()));
  const google::protobuf::Message& message = inner.GetReflection()->GetMessage(inner, kind);
  const google::protobuf::FieldDescriptor* const activity =
      message.GetDescriptor()->FindFieldByName("activity_regularizer");
  if (activity == nullptr || !message.GetReflection()->HasField(message, activity)) return absl::OkStatus();
  return Bad("layer: its activity_regularizer is not supported there; leave it out");
}

absl::Status ResolveInitializer(const char* field, v1::Initializer::Kind fallback, v1::Initializer* initializer) {
  if (!v1::Initializer::Kind_IsValid(initializer->kind())) {
    return Bad(field, ".kind ", static_cast<int>(initializer->kind()), " is not known; use GLOROT_UNIFORM, say");
  }
  if (initializer->kind() == v1::Initializer::INITIALIZER_UNSPECIFIED) initializer->set_kind(fallback);
  CAIRN_RETURN_IF_ERROR(CheckArguments(field, *initializer));
  const auto bad = [&](const auto&... what) { return Bad(field, ".", what...); };
  v1::Initializer& i = *initializer;
  switch (i.kind()) {
    case v1::Initializer::RANDOM_UNIFORM:
      if (!i.has_minval()) i.set_minval(-0.05f);
      if (!i.has_maxval()) i.set_maxval(0.05f);
      if (i.minval() < i.maxval()) return absl::OkStatus();
      return bad("minval ", i.minval(), " is not below maxval ", i.maxval(), "; give both, the smaller one as minval");
    case v1::Initializer::RANDOM_NORMAL:
    case v1::Initializer::TRUNCATED_NORMAL:
      if (!i.has_mean()) i.set_mean(0);
      if (!i.has_stddev()) i.set_stddev(0.05f);
      if (i.stddev() >= 0) return absl::OkStatus();
      return bad("stddev ", i.stddev(), " is negative; use a number such as 0.05");
    case v1::Initializer::VARIANCE_SCALING:
      if (!i.has_scale()) i.set_scale(1);
      if (i.mode() == v1::Initializer::FAN_MODE_UNSPECIFIED) i.set_mode(v1::Initializer::FAN_IN);
      if (i.distribution() == v1::Initializer::DISTRIBUTION_UNSPECIFIED) {
        i.set_distribution(v1::Initializer::DISTRIBUTION_TRUNCATED_NORMAL);
      }
      if (i.scale() > 0) return absl::OkStatus();
      return bad("scale ", i.scale(), " is not positive; use a number such as 2");
    case v1::Initializer::ORTHOGONAL:
    case v1::Initializer::IDENTITY:
      if (!i.has_gain()) i.set_gain(1);
      return absl::OkStatus();
    default: return absl::OkStatus();
  }
}

namespace {

// The penalty reads the layer's field (common/model/penalty.h).
absl::Status CheckOrthogonal(const char* field, const v1::Regularizer& regularizer, const Variable& variable) {
  const float factor = regularizer.orthogonal_factor();
  if (!(factor > 0 && std::isfinite(factor))) {
    return Bad(field, ".orthogonal_factor ", factor, " is not a number above 0; use one such as 0.01");
  }
  if (regularizer.l1() != 0 || regularizer.l2() != 0) {
    return Bad(field, ": orthogonal_factor does not go with l1 and l2; leave one of them out");
  }
  const Shape& shape = variable.shape;
  if (shape.size() != 2) {
    return Bad(field, ".orthogonal_factor: ", variable.name, " ", ToString(shape), " is not a matrix; use l1 or l2");
  }
  const int64_t vectors = shape[regularizer.orthogonal_columns() ? 1 : 0];
  if (vectors < 2) {
    return Bad(field, ".orthogonal_factor: ", variable.name, " ", ToString(shape), " has one ",
               regularizer.orthogonal_columns() ? "column" : "row", ", and it is about pairs; leave it out");
  }
  const int64_t work = SaturatingMultiply(SaturatingMultiply(shape[0], shape[1]), vectors);
  const int64_t most = kOrthogonalWorkMax / 64;  // it is computed in every step, not only once
  if (work <= most) return absl::OkStatus();
  return Bad(field, ".orthogonal_factor: ", variable.name, " ", ToString(shape), " is too large: ", work,
             " multiplications a step, at most ", most, "; use l2, say");
}

}  // namespace

absl::Status Regularize(const char* field, bool given, const v1::Regularizer& regularizer,
                        std::vector<Variable>* variables) {
  if (!given) return absl::OkStatus();
  if (regularizer.orthogonal_factor() != 0 || regularizer.orthogonal_columns()) {
    return CheckOrthogonal(field, regularizer, variables->back());
  }
  for (const auto& [name, factor] : {std::pair("l1", regularizer.l1()), std::pair("l2", regularizer.l2())}) {
    if (!(factor >= 0 && std::isfinite(factor))) {
      return Bad(field, ".", name, " ", factor, " is not a number from 0; use one such as 0.0001");
    }
  }
  if (regularizer.l1() == 0 && regularizer.l2() == 0) {
    return Bad(field,
               ": none of l1, l2 and orthogonal_factor is above 0; give one, as { l2: 0.0001 }, or leave it out");
  }
  variables->back().l1 = regularizer.l1();
  variables->back().l2 = regularizer.l2();
  return absl::OkStatus();
}

v1::Initializer OfKind(v1::Initializer::Kind kind) {
  v1::Initializer initializer;
  initializer.set_kind(kind);
  return initializer;
}

absl::Status NeedImage(const Shape& input) {
  if (input.size() == 3) return absl::OkStatus();
  return Bad(
      "its input is ", ToString(input),
      "; it needs [height, width, channels], so place it before the Flatten or GlobalAveragePooling2D and give the "
      "input layer a shape such as [28,28,1]");
}

absl::Status NeedSequence(const Shape& input) {
  if (input.size() == 2) return absl::OkStatus();
  return Bad("its input is ", ToString(input),
             "; it needs [steps, features], so place it after an Embedding or a Reshape, or give the input layer a "
             "shape such as [100,16]");
}

absl::Status NeedOneShape(absl::Span<const Shape> inputs) {
  for (const Shape& input : inputs) {
    if (input != inputs[0]) {
      return Bad("its inputs have different shapes, ", ToString(inputs[0]), " and ", ToString(input),
                 "; make them equal, by a 1x1 Conv2D on one of them, say");
    }
  }
  return absl::OkStatus();
}

namespace {

// For initializers that are defined for matrices.
absl::Status CheckMatrix(const char* name, const Shape& shape, v1::Initializer::Kind kind) {
  if (kind == v1::Initializer::IDENTITY && shape.size() != 2) {
    return Bad(name, " ", ToString(shape), " is not a matrix, as IDENTITY needs; use another initializer");
  }
  if (kind != v1::Initializer::ORTHOGONAL) return absl::OkStatus();
  if (shape.size() < 2) {
    return Bad(name, " ", ToString(shape), " has one axis, and ORTHOGONAL makes matrices; use another initializer");
  }
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows = SaturatingMultiply(rows, shape[i]);
  const int64_t work = SaturatingMultiply(SaturatingMultiply(rows, shape.back()), std::min(rows, shape.back()));
  if (work <= kOrthogonalWorkMax) return absl::OkStatus();
  return Bad(name, " ", ToString(shape), " is too large for ORTHOGONAL, whose work is at most ", kOrthogonalWorkMax,
             " multiplications; use GLOROT_UNIFORM, say");
}

}  // namespace

absl::Status AddVariable(const Node& node, const char* name, Shape shape, const v1::Initializer& initializer,
                         std::vector<Variable>* variables) {
  int64_t size = 1;
  for (int64_t dim : shape) size = SaturatingMultiply(size, dim);
  if (size > kParametersMax) {
    return Bad(name, " ", ToString(shape), " has too many parameters; a model may have ", kParametersMax);
  }
  CAIRN_RETURN_IF_ERROR(CheckMatrix(name, shape, initializer.kind()));
  Variable& variable = variables->emplace_back();
  variable.name = absl::StrCat(node.name, "/", name);
  variable.shape = std::move(shape);
  variable.size = size;
  variable.initializer = initializer;
  ComputeFans(variable.shape, &variable.fan_in, &variable.fan_out);
  return absl::OkStatus();
}

absl::Status SlideWindow(const char* what, const Shape& input, v1::Padding padding, Window* window, Shape* output) {
  int64_t extent[2];
  for (int i = 0; i < 2; ++i) {
    extent[i] = (window->kernel[i] - 1) * window->dilation[i] + 1;
    if (padding == v1::SAME) {
      (*output)[i] = (input[i] + window->strides[i] - 1) / window->strides[i];
      const int64_t pads = std::max<int64_t>(0, ((*output)[i] - 1) * window->strides[i] + extent[i] - input[i]);
      window->pad_begin[i] = pads / 2;
      window->pad_end[i] = pads - pads / 2;
    }
  }
  if (padding == v1::SAME) return absl::OkStatus();
  if (extent[0] > input[0] || extent[1] > input[1]) {
    const bool dilated = window->dilation[0] > 1 || window->dilation[1] > 1;
    return Bad(what, " [", extent[0], ",", extent[1], "]", dilated ? " (dilated)" : "", " is larger than its input ",
               ToString(input), "; use a smaller one, padding: SAME, or fewer poolings before it");
  }
  for (int i = 0; i < 2; ++i) (*output)[i] = (input[i] - extent[i]) / window->strides[i] + 1;
  return absl::OkStatus();
}

}  // namespace cairn::layers
