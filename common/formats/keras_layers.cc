#include "common/formats/keras_layers.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "common/formats/keras_augmentation.h"
#include "common/formats/keras_layer_parts.h"
#include "common/formats/keras_windows.h"

namespace cairn {
namespace {

using keras::Bias;
using keras::BiasAndActivation;
using keras::ChannelsLast;
using keras::Kernel;
using keras::kLeaveAway;
using keras::NoConstraints;
using keras::Regularizer;

constexpr char kSupported[] =
    "Cairn has InputLayer, Rescaling, Conv1D, Conv2D, DepthwiseConv2D, SeparableConv2D, Conv2DTranspose, Dense, "
    "Embedding, MultiHeadAttention, BatchNormalization, LayerNormalization, GroupNormalization, Activation, ReLU, "
    "LeakyReLU, ELU, Softmax, MaxPooling1D, MaxPooling2D, AveragePooling1D, AveragePooling2D, GlobalAveragePooling1D, "
    "GlobalAveragePooling2D, UpSampling2D, ZeroPadding2D, Add, Multiply, Average, Maximum, Concatenate, Flatten, "
    "Reshape, Permute, Dropout, SpatialDropout2D and RandomFlip, RandomRotation, RandomZoom, RandomTranslation, "
    "RandomCrop, RandomBrightness, RandomContrast at the head";

// What every layer has.
void ReadCommon(KerasConfig& c, v1::Layer* layer) {
  c.Ignore("name");
  bool trainable = true;
  c.Bool("trainable", &trainable);
  if (!trainable) layer->set_trainable(false);
  for (const char* key : {"batch_input_shape", "batch_shape", "build_config", "seed", "autocast", "input_dtype"})
    c.Ignore(key);
  const Json* dtype = c.Take("dtype");
  if (dtype == nullptr) return;
  const Json* name = dtype;  // "float32", or the object of a DTypePolicy
  if (dtype->is_object() && dtype->contains("config") && (*dtype)["config"].is_object() &&
      (*dtype)["config"].contains("name")) {
    name = &(*dtype)["config"]["name"];
  }
  if (*name != "float32") {
    c.Refuse(absl::StrCat("dtype: ", ShownJson(*name),
                          " is not supported; use float32, and the job's compute_dtype for "
                          "mixed precision"));
  }
}

// ---- layers with a kernel ----

void ReadDense(KerasConfig& c, v1::Dense* dense) {
  int32_t units = 0;
  c.Int("units", &units);
  dense->set_units(units);
  Kernel(c, dense);
  BiasAndActivation(c, dense);
}

void ReadEmbedding(KerasConfig& c, v1::Embedding* embedding) {
  int32_t input_dim = 0, output_dim = 0;
  c.Int("input_dim", &input_dim);
  c.Int("output_dim", &output_dim);
  embedding->set_input_dim(input_dim);
  embedding->set_output_dim(output_dim);
  if (c.Has("embeddings_initializer"))
    c.Initializer("embeddings_initializer", embedding->mutable_embeddings_initializer());
  Regularizer(c, "embeddings_regularizer", [&] { return embedding->mutable_embeddings_regularizer(); });
  c.Only("mask_zero", false, "Cairn has no masks; leave it away");
  c.Only("sparse", false, kLeaveAway);
  c.Ignore("input_length");
  NoConstraints(c);
}

void ReadMultiHeadAttention(KerasConfig& c, v1::MultiHeadAttention* attention) {
  int32_t heads = 0, key_dim = 0, value_dim = 0;
  float dropout = 0;
  c.Int("num_heads", &heads);
  c.Int("key_dim", &key_dim);
  c.Int("value_dim", &value_dim);
  c.Float("dropout", &dropout);
  attention->set_num_heads(heads);
  attention->set_key_dim(key_dim);
  if (value_dim != 0) attention->set_value_dim(value_dim);
  attention->set_dropout(dropout);
  c.Only("output_shape", nullptr, kLeaveAway);
  c.Only("attention_axes", Json::array({1}),
         "attention is over the steps alone");  // as Keras writes null once it is built
  c.Only("use_gate", false, kLeaveAway);
  for (const char* key : {"query_shape", "key_shape", "value_shape", "flash_attention"}) c.Ignore(key);
  Kernel(c, attention);
  Bias(c, attention);
  NoConstraints(c);
}

// ---- normalization and activation ----

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
  if (scale) Regularizer(c, "gamma_regularizer", [&] { return layer->mutable_gamma_regularizer(); });
  if (center) Regularizer(c, "beta_regularizer", [&] { return layer->mutable_beta_regularizer(); });
  if (!scale) c.Ignore("gamma_regularizer");
  if (!center) c.Ignore("beta_regularizer");
  NoConstraints(c);
}

void ReadBatchNormalization(KerasConfig& c, v1::BatchNormalization* bn) {
  float momentum = 0.99f;
  c.Float("momentum", &momentum);
  bn->set_momentum(momentum);
  c.InitializerOnly("moving_mean_initializer", v1::Initializer::ZEROS);
  c.InitializerOnly("moving_variance_initializer", v1::Initializer::ONES);
  c.Only("synchronized", false, "each replica has the statistics of its own batch");
  c.Only("renorm", false, kLeaveAway);
  c.Ignore("renorm_clipping");  // of no meaning without it
  c.Ignore("renorm_momentum");
  c.Ignore("fused");
  Scaled(c, bn);
}

void ReadGroupNormalization(KerasConfig& c, v1::GroupNormalization* gn) {
  int32_t groups = 32;
  c.Int("groups", &groups);
  gn->set_groups(groups);
  Scaled(c, gn);
}

void ReadLayerNormalization(KerasConfig& c, v1::LayerNormalization* ln) {
  c.Only("rms_scaling", false, kLeaveAway);
  Scaled(c, ln);
}

void ReadActivationLayer(KerasConfig& c, v1::ActivationLayer* layer) {
  v1::Activation activation = v1::LINEAR;
  c.Activation("activation", &activation);
  layer->set_activation(activation);
  if (activation == v1::LEAKY_RELU) layer->set_negative_slope(0.2f);  // the function's, not the layer's
}

void ReadReLU(KerasConfig& c, v1::ActivationLayer* layer) {
  float slope = 0, threshold = 0, max_value = std::numeric_limits<float>::infinity();
  c.Float("negative_slope", &slope);
  c.Float("threshold", &threshold);
  c.Float("max_value", &max_value);
  const bool open = max_value == std::numeric_limits<float>::infinity();
  if (threshold != 0) c.Refuse("threshold: other than 0 is not supported; leave it away");
  if (!open && (max_value != 6 || slope != 0)) c.Refuse("max_value: only 6 is supported, with negative_slope 0");
  layer->set_activation(!open ? v1::RELU6 : slope != 0 ? v1::LEAKY_RELU : v1::RELU);
  if (slope != 0) layer->set_negative_slope(slope);
}

void ReadLeakyReLU(KerasConfig& c, v1::ActivationLayer* layer) {
  float slope = 0.3f;
  c.Float(c.Has("negative_slope") ? "negative_slope" : "alpha", &slope);  // Keras 3; 2
  layer->set_activation(v1::LEAKY_RELU);
  layer->set_negative_slope(slope);
}

void ReadELU(KerasConfig& c, v1::ActivationLayer* layer) {
  float alpha = 1;
  c.Float("alpha", &alpha);
  layer->set_activation(v1::ELU);
  layer->set_alpha(alpha);
}

// ---- the others ----

void ReadRescaling(KerasConfig& c, v1::Rescaling* layer) {
  float scale = 0, offset = 0;
  c.Float("scale", &scale);
  c.Float("offset", &offset);
  layer->set_scale(scale);
  layer->set_offset(offset);
}

float Rate(KerasConfig& c) {
  float rate = 0;
  c.Float("rate", &rate);
  c.Only("noise_shape", nullptr, kLeaveAway);
  return rate;
}

void ReadInput(KerasConfig& c, v1::InputLayer* layer) {
  c.Only("sparse", false, kLeaveAway);
  c.Only("ragged", false, kLeaveAway);
  c.Only("optional", false, kLeaveAway);
  const Json* dtype = c.Take("dtype");
  if (dtype != nullptr &&
      !(*dtype == "float32" || *dtype == "float64" || *dtype == "uint8" || *dtype == "int32" || *dtype == "int64")) {
    c.Refuse(absl::StrCat("dtype: ", ShownJson(*dtype), " is not supported; use float32"));
  }
  const Json* shape = c.Take(c.Has("batch_shape") ? "batch_shape" : "batch_input_shape");  // Keras 3; 2
  if (!c.ok()) return;
  if (shape == nullptr) return c.Refuse("batch_shape is missing; give the model's input a shape");
  const absl::StatusOr<v1::InputLayer> input = ReadBatchShape(*shape);
  if (!input.ok()) return c.Refuse(input.status().message());
  *layer = *input;
}

// False: no such layer.
bool ReadKind(const std::string& type, KerasConfig& c, v1::Layer* out) {
  if (ReadWindowLayer(type, c, out)) return true;
  if (type == "Dense") return ReadDense(c, out->mutable_dense()), true;
  if (type == "Embedding") return ReadEmbedding(c, out->mutable_embedding()), true;
  if (type == "MultiHeadAttention") return ReadMultiHeadAttention(c, out->mutable_multi_head_attention()), true;
  if (type == "BatchNormalization") return ReadBatchNormalization(c, out->mutable_batch_normalization()), true;
  if (type == "LayerNormalization") return ReadLayerNormalization(c, out->mutable_layer_normalization()), true;
  if (type == "GroupNormalization") return ReadGroupNormalization(c, out->mutable_group_normalization()), true;
  if (type == "Activation") return ReadActivationLayer(c, out->mutable_activation()), true;
  if (type == "ReLU") return ReadReLU(c, out->mutable_activation()), true;
  if (type == "LeakyReLU") return ReadLeakyReLU(c, out->mutable_activation()), true;
  if (type == "ELU") return ReadELU(c, out->mutable_activation()), true;
  if (type == "Rescaling") return ReadRescaling(c, out->mutable_rescaling()), true;
  if (type == "InputLayer") return ReadInput(c, out->mutable_input()), true;
  if (type == "Softmax") {
    out->mutable_activation()->set_activation(v1::SOFTMAX);
    c.Axis("axis");
  } else if (type == "GlobalAveragePooling2D" || type == "GlobalAveragePooling1D") {
    if (type == "GlobalAveragePooling2D") out->mutable_global_average_pooling2d();
    if (type == "GlobalAveragePooling1D") out->mutable_global_average_pooling1d();
    ChannelsLast(c);
    c.Only("keepdims", false, kLeaveAway);
  } else if (type == "Flatten") {
    out->mutable_flatten();
    ChannelsLast(c);
  } else if (type == "Dropout") {
    out->mutable_dropout()->set_rate(Rate(c));
  } else if (type == "SpatialDropout2D") {
    out->mutable_spatial_dropout2d()->set_rate(Rate(c));
    ChannelsLast(c);
  } else if (type == "Reshape") {
    c.Ints("target_shape", out->mutable_reshape()->mutable_target_shape());
  } else if (type == "Permute") {
    c.Ints("dims", out->mutable_permute()->mutable_dims());
  } else if (type == "Concatenate") {
    out->mutable_concatenate();
    c.Axis("axis");
  } else if (type == "Add") {
    out->mutable_add();
  } else if (type == "Multiply") {
    out->mutable_multiply();
  } else if (type == "Average") {
    out->mutable_average();
  } else if (type == "Maximum") {
    out->mutable_maximum();
  } else {
    return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<v1::InputLayer> ReadBatchShape(const Json& batch_shape) {
  v1::InputLayer input;
  const auto bad = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("the input's shape ", ShownJson(batch_shape), " ", what));
  };
  if (!batch_shape.is_array() || batch_shape.empty()) return bad("is no list such as [null, 28, 28, 1]");
  for (size_t i = 1; i < batch_shape.size(); ++i) {
    const Json& side = batch_shape[i];
    if (side.is_null()) return bad("is open; build the model with a shape such as (28, 28, 1)");
    if (!side.is_number_integer() || side.get<double>() < 1 ||
        side.get<double>() > std::numeric_limits<int32_t>::max()) {
      return bad("has a side that is no positive number");
    }
    input.add_shape(side.get<int32_t>());
  }
  return input;
}

absl::StatusOr<KerasLayer> ReadKerasLayer(const std::string& type, const std::string& name, const Json& config) {
  KerasConfig c(config, name, type);
  KerasLayer result;
  v1::Layer layer;
  layer.set_name(name);
  // An input's dtype is that of the data.
  if (type != "InputLayer") ReadCommon(c, &layer);
  if (type == "InputLayer") {
    for (const char* key : {"name", "trainable"}) c.Ignore(key);
  }
  if (absl::StartsWith(type, "Random")) {
    v1::Augmentation augmentation;
    if (const std::optional<bool> commutes = ReadAugmentation(type, c, &augmentation)) {
      CAIRN_RETURN_IF_ERROR(c.Finish());
      result.value = std::move(augmentation);
      result.moves_pixels_only = *commutes;
      return result;
    }
  }
  if (!ReadKind(type, c, &layer)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer \"", ShownText(name), "\": ", ShownText(type), " is not supported; ", kSupported));
  }
  CAIRN_RETURN_IF_ERROR(c.Finish());
  result.value = std::move(layer);
  result.axis = c.axis();
  return result;
}

}  // namespace cairn
