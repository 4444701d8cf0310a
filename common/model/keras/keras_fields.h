// Options that several Keras layers have: kernels, biases, initializers, regularizers. Used by the layers' files and by
// augmentations.
//
// Free functions; any thread. The config rejects what Cairn lacks (KerasConfig::Refuse) and names the layer.
#pragma once

#include "cairn/v1/model.pb.h"
#include "common/model/keras/keras_config.h"

namespace cairn::keras {

inline constexpr char kLeaveAway[] = "leave it out";

// get: returns the layer's mutable field; called only if the key holds a regularizer that has an effect.
template <typename Get>
void Regularizer(KerasConfig& c, const char* key, Get get) {
  v1::Regularizer regularizer;
  c.Regularizer(key, &regularizer);
  if (regularizer.l1() != 0 || regularizer.l2() != 0 || regularizer.orthogonal_factor() != 0) *get() = regularizer;
}

template <typename Layer>
void Kernel(KerasConfig& c, Layer* layer) {
  if (c.Has("kernel_initializer")) c.Initializer("kernel_initializer", layer->mutable_kernel_initializer());
  Regularizer(c, "kernel_regularizer", [&] { return layer->mutable_kernel_regularizer(); });
}

template <typename Layer>
void Bias(KerasConfig& c, Layer* layer) {
  bool use_bias = true;
  c.Bool("use_bias", &use_bias);
  layer->set_use_bias(use_bias);
  if (!use_bias) {
    c.Ignore("bias_initializer");
    c.Ignore("bias_regularizer");
  }
  if (use_bias && c.Has("bias_initializer")) c.Initializer("bias_initializer", layer->mutable_bias_initializer());
  if (use_bias) Regularizer(c, "bias_regularizer", [&] { return layer->mutable_bias_regularizer(); });
}

inline void ChannelsLast(KerasConfig& c) {
  c.Only("data_format", "channels_last", "build the model with channels_last");
}

template <typename Layer>
void BiasAndActivation(KerasConfig& c, Layer* layer) {
  v1::Activation activation = v1::ACTIVATION_UNSPECIFIED;
  c.Activation("activation", &activation);
  layer->set_activation(activation);
  Bias(c, layer);
}

}  // namespace cairn::keras
