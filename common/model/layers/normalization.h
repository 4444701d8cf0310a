// Shared by the normalization layers.
//
// Free functions; any thread.
#pragma once

#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {

// gamma and beta of `shape`, as `scale` and `center` say (default: both).
template <typename Layer>
absl::Status AddGammaAndBeta(const Node& node, const Shape& shape, Layer* layer, std::vector<Variable>* variables) {
  if (!layer->has_center()) layer->set_center(true);
  if (!layer->has_scale()) layer->set_scale(true);
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("gamma_initializer", v1::Initializer::ONES, layer->mutable_gamma_initializer()));
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("beta_initializer", v1::Initializer::ZEROS, layer->mutable_beta_initializer()));
  if (layer->scale()) {
    CAIRN_RETURN_IF_ERROR(AddVariable(node, "gamma", shape, layer->gamma_initializer(), variables));
    CAIRN_RETURN_IF_ERROR(
        Regularize("gamma_regularizer", layer->has_gamma_regularizer(), layer->gamma_regularizer(), variables));
  }
  if (layer->center()) {
    CAIRN_RETURN_IF_ERROR(AddVariable(node, "beta", shape, layer->beta_initializer(), variables));
    CAIRN_RETURN_IF_ERROR(
        Regularize("beta_regularizer", layer->has_beta_regularizer(), layer->beta_regularizer(), variables));
  }
  return absl::OkStatus();
}

// Writes KerasWriter::ScaleAndCenter with the initializers of the layer.
template <typename Layer>
void WriteScaled(const Layer& layer, KerasWriter& c) {
  c.ScaleAndCenter(layer);
  c.Initializer("beta_initializer", layer.beta_initializer());
  c.Initializer("gamma_initializer", layer.gamma_initializer());
}

// The layer's `axis`, if given, must be the last one of its input.
template <typename Layer>
absl::Status NeedLastAxis(const Shape& input, Layer* layer) {
  const int32_t rank = static_cast<int32_t>(input.size());
  if (!layer->has_axis()) layer->set_axis(-1);
  if (layer->axis() != -1 && layer->axis() != rank) {
    return Bad("axis ", layer->axis(), " is not the last one of its input ", ToString(input),
               "; leave it out, or put a permute before and one after it");
  }
  layer->set_axis(-1);
  return absl::OkStatus();
}

// Reads epsilon, center, scale and the options of gamma and beta.
template <typename Layer>
void Scaled(KerasConfig& c, Layer* layer) {
  float epsilon = 1e-3f;
  bool center = true, scale = true;
  c.Float("epsilon", &epsilon);
  c.Bool("center", &center);
  c.Bool("scale", &scale);
  layer->set_epsilon(epsilon);
  layer->set_center(center);
  layer->set_scale(scale);
  if (scale && c.Has("gamma_initializer")) c.Initializer("gamma_initializer", layer->mutable_gamma_initializer());
  if (center && c.Has("beta_initializer")) c.Initializer("beta_initializer", layer->mutable_beta_initializer());
  if (!scale) c.Ignore("gamma_initializer");
  if (!center) c.Ignore("beta_initializer");
  if (scale) keras::Regularizer(c, "gamma_regularizer", [&] { return layer->mutable_gamma_regularizer(); });
  if (center) keras::Regularizer(c, "beta_regularizer", [&] { return layer->mutable_beta_regularizer(); });
  if (!scale) c.Ignore("gamma_regularizer");
  if (!center) c.Ignore("beta_regularizer");
}

}  // namespace cairn::layers
