// Shared by the layers for shape inference: reading fields, filling in their defaults, adding variables, sliding
// windows.
//
// Pure functions. Errors are INVALID_ARGUMENT and say what is wrong with which field and what to do; the caller adds
// the layer's name.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/bad.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn::layers {

using Numbers = google::protobuf::RepeatedField<int32_t>;

// ---- fields ----

// Reads a pair (height, width) from none, one or two numbers; `fallback` 0: the field is required. Writes the pair back
// to the field.
absl::Status ReadPair(const char* field, int64_t fallback, Numbers* numbers, int64_t pair[2]);
// Returns the number, or `fallback` if it is not given; `fallback` 0: the field is required.
absl::StatusOr<int32_t> ReadOne(const char* field, int32_t fallback, bool given, int32_t value);
absl::Status NeedPositive(const char* field, int64_t value, const char* example);
absl::Status NeedRate(const char* field, float rate);  // in [0, 1)
absl::Status NeedEpsilon(float epsilon);
absl::Status ResolveActivation(v1::Activation* activation);
absl::Status ResolvePadding(v1::Padding* padding);
// inner: a layer within another one, whose activity_regularizer nothing would apply.
absl::Status NeedNoActivityRegularizer(const v1::Layer& inner);
// Rejects arguments that the initializer's kind does not have; fills in those that it has.
absl::Status ResolveInitializer(const char* field, v1::Initializer::Kind fallback, v1::Initializer* initializer);
v1::Initializer OfKind(v1::Initializer::Kind kind);
// Sets the regularizer of the last added variable to that of the layer's field, if any.
absl::Status Regularize(const char* field, bool given, const v1::Regularizer& regularizer,
                        std::vector<Variable>* variables);

template <typename Layer>
absl::Status ReadPadding(Layer* layer) {
  v1::Padding padding = layer->padding();
  CAIRN_RETURN_IF_ERROR(ResolvePadding(&padding));
  layer->set_padding(padding);
  return absl::OkStatus();
}

inline constexpr float kLeakyReluSlope = 0.2f;  // keras.activations.leaky_relu
inline constexpr float kEluAlpha = 1.0f;        // keras.activations.elu

template <typename Layer>
absl::Status ReadActivation(Layer* layer, Node* node) {
  v1::Activation activation = layer->activation();
  CAIRN_RETURN_IF_ERROR(ResolveActivation(&activation));
  layer->set_activation(activation);
  node->activation = activation;
  if (activation == v1::LEAKY_RELU) node->negative_slope = kLeakyReluSlope;
  if (activation == v1::ELU) node->alpha = kEluAlpha;
  return absl::OkStatus();
}

// ---- inputs ----

absl::Status NeedImage(const Shape& input);     // [height, width, channels]
absl::Status NeedSequence(const Shape& input);  // [steps, features]

absl::Status NeedOneShape(absl::Span<const Shape> inputs);  // all must have the shape of the first

// ---- variables ----

// name: the variable's name within the layer, "kernel" or "query/kernel".
absl::Status AddVariable(const Node& node, const char* name, Shape shape, const v1::Initializer& initializer,
                         std::vector<Variable>* variables);

template <typename Layer>
absl::Status AddKernel(const Node& node, Shape shape, Layer* layer, std::vector<Variable>* variables) {
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("kernel_initializer", v1::Initializer::GLOROT_UNIFORM, layer->mutable_kernel_initializer()));
  CAIRN_RETURN_IF_ERROR(AddVariable(node, "kernel", std::move(shape), layer->kernel_initializer(), variables));
  return Regularize("kernel_regularizer", layer->has_kernel_regularizer(), layer->kernel_regularizer(), variables);
}

template <typename Layer>
absl::Status AddBias(const Node& node, int64_t size, Layer* layer, std::vector<Variable>* variables) {
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("bias_initializer", v1::Initializer::ZEROS, layer->mutable_bias_initializer()));
  if (!layer->has_use_bias()) layer->set_use_bias(true);
  if (!layer->use_bias()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(AddVariable(node, "bias", {size}, layer->bias_initializer(), variables));
  return Regularize("bias_regularizer", layer->has_bias_regularizer(), layer->bias_regularizer(), variables);
}

// gamma and beta over the last axis, as `scale` and `center` say (default: both).
template <typename Layer>
absl::Status AddScaleAndCenter(const Node& node, int64_t channels, Layer* layer, std::vector<Variable>* variables) {
  if (!layer->has_center()) layer->set_center(true);
  if (!layer->has_scale()) layer->set_scale(true);
  if (layer->scale()) {
    CAIRN_RETURN_IF_ERROR(AddVariable(node, "gamma", {channels}, OfKind(v1::Initializer::ONES), variables));
    CAIRN_RETURN_IF_ERROR(
        Regularize("gamma_regularizer", layer->has_gamma_regularizer(), layer->gamma_regularizer(), variables));
  }
  if (layer->center()) {
    CAIRN_RETURN_IF_ERROR(AddVariable(node, "beta", {channels}, OfKind(v1::Initializer::ZEROS), variables));
    CAIRN_RETURN_IF_ERROR(
        Regularize("beta_regularizer", layer->has_beta_regularizer(), layer->beta_regularizer(), variables));
  }
  return absl::OkStatus();
}

// ---- windows ----

// Output height and width of a window over an image, and its pads, by TensorFlow's rules for VALID and SAME.
absl::Status SlideWindow(const char* what, const Shape& input, v1::Padding padding, Window* window, Shape* output);

}  // namespace cairn::layers
