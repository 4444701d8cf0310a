// What the normalizations share.
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

// epsilon, center, scale and what belongs to gamma and beta.
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
  c.Axis("axis");
  c.InitializerOnly("beta_initializer", v1::Initializer::ZEROS);
  c.InitializerOnly("gamma_initializer", v1::Initializer::ONES);
  if (scale) keras::Regularizer(c, "gamma_regularizer", [&] { return layer->mutable_gamma_regularizer(); });
  if (center) keras::Regularizer(c, "beta_regularizer", [&] { return layer->mutable_beta_regularizer(); });
  if (!scale) c.Ignore("gamma_regularizer");
  if (!center) c.Ignore("beta_regularizer");
  keras::NoConstraints(c);
}

}  // namespace cairn::layers
