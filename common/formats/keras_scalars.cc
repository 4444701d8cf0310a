#include "common/formats/keras_scalars.h"

#include "common/base/bad.h"

namespace cairn {
namespace {

constexpr char kNeedsAxis[] =
    "its input has the shape (), one number an example without an axis, which this layer does not take; put "
    "keras.ops.expand_dims(x, -1) or a Reshape((1,)) before it, or give the Input the shape (1,)";

bool IsElementwise(const v1::Layer& layer) {
  if (layer.has_operation())
    return layer.operation().axis().empty() && layer.operation().constant_shape().empty() &&
           layer.operation().other_shape().empty();
  if (layer.has_activation()) {
    const v1::Activation f = layer.activation().activation();
    return f != v1::SOFTMAX && f != v1::LOG_SOFTMAX && f != v1::SPARSEMAX && f != v1::GLU;
  }
  return layer.has_rescaling() || layer.has_dropout() || layer.has_add() || layer.has_subtract() ||
         layer.has_multiply() || layer.has_average() || layer.has_maximum() || layer.has_minimum();
}

bool IsCategories(const v1::Layer& layer) {
  return layer.has_string_lookup() || layer.has_integer_lookup() || layer.has_hashing() ||
         layer.has_hashed_crossing() || layer.has_discretization() || layer.has_category_encoding();
}

v1::EncodingMode ModeOf(const v1::Layer& layer) {
  if (layer.has_category_encoding()) return layer.category_encoding().output_mode();
  const v1::EncodingMode mode = layer.has_string_lookup()     ? layer.string_lookup().output_mode()
                                : layer.has_integer_lookup()  ? layer.integer_lookup().output_mode()
                                : layer.has_hashing()         ? layer.hashing().output_mode()
                                : layer.has_hashed_crossing() ? layer.hashed_crossing().output_mode()
                                                              : layer.discretization().output_mode();
  return mode == v1::ENCODING_MODE_UNSPECIFIED ? v1::INT : mode;
}

}  // namespace

absl::StatusOr<KerasScalarUse> UseOfScalars(v1::Layer* layer, bool all) {
  if (!all) {
    return Bad("one of its inputs has the shape (), and another one has axes: Keras would spread the examples of a ",
               "batch over an axis; put keras.ops.expand_dims(x, -1) or a Reshape((1,)) before it");
  }
  if (IsElementwise(*layer)) return KerasScalarUse::kScalar;
  if (layer->has_normalization() && layer->normalization().all()) return KerasScalarUse::kScalar;
  if (IsCategories(*layer)) {
    const v1::EncodingMode mode = ModeOf(*layer);
    if (mode == v1::INT) return KerasScalarUse::kScalar;
    if (mode == v1::ONE_HOT) return KerasScalarUse::kShape;
    return Bad(
        "its input has the shape (), and output_mode is neither int nor one_hot: Keras would take the batch for ",
        "one example; give the Input the shape (1,)");
  }
  if (layer->has_text_vectorization() || layer->has_reshape() || layer->has_flatten()) return KerasScalarUse::kShape;
  if (layer->has_embedding()) {
    if (layer->embedding().mask_zero()) {
      return Bad("mask_zero: its input has the shape (), which has no steps; leave mask_zero out");
    }
    return KerasScalarUse::kDrops;
  }
  if (layer->has_one_hot()) {
    layer->mutable_one_hot()->set_axis(2);
    return KerasScalarUse::kDrops;
  }
  if (layer->has_stack()) {
    layer->mutable_concatenate()->set_axis(1);
    return KerasScalarUse::kShape;
  }
  return absl::InvalidArgumentError(kNeedsAxis);
}

}  // namespace cairn
