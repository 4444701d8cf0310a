// Layers on the last axis: dense, embedding, attention, normalizations.
#include "common/model/layer_fields.h"

namespace cairn::layers {

absl::Status InferDense(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::Dense* dense = node->layer.mutable_dense();
  CAIRN_RETURN_IF_ERROR(NeedPositive("units", dense->units(), "10"));
  node->output.back() = dense->units();
  CAIRN_RETURN_IF_ERROR(ReadActivation(dense, node));
  CAIRN_RETURN_IF_ERROR(AddKernel(*node, {input.back(), dense->units()}, dense, variables));
  return AddBias(*node, dense->units(), dense, variables);
}

absl::Status InferEmbedding(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::Embedding* embedding = node->layer.mutable_embedding();
  CAIRN_RETURN_IF_ERROR(NeedPositive("input_dim", embedding->input_dim(), "10000, one more than the largest id"));
  CAIRN_RETURN_IF_ERROR(NeedPositive("output_dim", embedding->output_dim(), "64"));
  // Ids come as float32, which has every whole number up to this one.
  constexpr int32_t kIdsMax = 1 << 24;
  if (embedding->input_dim() > kIdsMax) {
    return Bad("input_dim ", embedding->input_dim(), " is too large; the limit is ", kIdsMax);
  }
  if (input.size() >= kDimensionsMax) {
    return Bad("its input is ", ToString(input), "; it needs ids as [steps], or [rows, steps]");
  }
  node->output.push_back(embedding->output_dim());
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("embeddings_initializer", v1::Initializer::RANDOM_UNIFORM,
                                           embedding->mutable_embeddings_initializer()));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "embeddings", {embedding->input_dim(), embedding->output_dim()},
                                    embedding->embeddings_initializer(), variables));
  return Regularize("embeddings_regularizer", embedding->has_embeddings_regularizer(),
                    embedding->embeddings_regularizer(), variables);
}

// Inputs: query, value and, if it is not the value, key.
absl::Status InferMultiHeadAttention(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::MultiHeadAttention* mha = node->layer.mutable_multi_head_attention();
  const Shape &query = inputs[0], &value = inputs[1], &key = inputs.size() > 2 ? inputs[2] : inputs[1];
  for (const Shape& input : inputs) CAIRN_RETURN_IF_ERROR(NeedSequence(input));
  if (key[0] != value[0]) {
    return Bad("its key ", ToString(key), " and value ", ToString(value),
               " differ in steps; give both the same number of steps");
  }
  CAIRN_RETURN_IF_ERROR(NeedPositive("num_heads", mha->num_heads(), "8"));
  CAIRN_RETURN_IF_ERROR(NeedPositive("key_dim", mha->key_dim(), "64"));
  if (!mha->has_value_dim()) mha->set_value_dim(mha->key_dim());
  CAIRN_RETURN_IF_ERROR(NeedPositive("value_dim", mha->value_dim(), "64"));
  CAIRN_RETURN_IF_ERROR(NeedRate("dropout", mha->dropout()));
  if (!mha->has_use_bias()) mha->set_use_bias(true);
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("kernel_initializer", v1::Initializer::GLOROT_UNIFORM, mha->mutable_kernel_initializer()));
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("bias_initializer", v1::Initializer::ZEROS, mha->mutable_bias_initializer()));
  const int64_t heads = mha->num_heads(), key_dim = mha->key_dim(), value_dim = mha->value_dim();
  const struct {
    const char *kernel, *bias;
    Shape kernel_shape, bias_shape;
  } projections[] = {
      {"query/kernel", "query/bias", {query[1], heads, key_dim}, {heads, key_dim}},
      {"key/kernel", "key/bias", {key[1], heads, key_dim}, {heads, key_dim}},
      {"value/kernel", "value/bias", {value[1], heads, value_dim}, {heads, value_dim}},
      {"attention_output/kernel", "attention_output/bias", {heads, value_dim, query[1]}, {query[1]}},
  };
  for (const auto& p : projections) {
    CAIRN_RETURN_IF_ERROR(AddVariable(*node, p.kernel, p.kernel_shape, mha->kernel_initializer(), variables));
    CAIRN_RETURN_IF_ERROR(
        Regularize("kernel_regularizer", mha->has_kernel_regularizer(), mha->kernel_regularizer(), variables));
    if (!mha->use_bias()) continue;
    CAIRN_RETURN_IF_ERROR(AddVariable(*node, p.bias, p.bias_shape, mha->bias_initializer(), variables));
    CAIRN_RETURN_IF_ERROR(
        Regularize("bias_regularizer", mha->has_bias_regularizer(), mha->bias_regularizer(), variables));
  }
  return absl::OkStatus();
}

absl::Status InferBatchNormalization(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::BatchNormalization* bn = node->layer.mutable_batch_normalization();
  if (!bn->has_momentum()) bn->set_momentum(0.99f);
  if (!bn->has_epsilon()) bn->set_epsilon(0.001f);
  if (!(bn->momentum() >= 0 && bn->momentum() <= 1)) {
    return Bad("momentum ", bn->momentum(), " is outside [0, 1]; use a number such as 0.99");
  }
  CAIRN_RETURN_IF_ERROR(NeedEpsilon(bn->epsilon()));
  CAIRN_RETURN_IF_ERROR(AddScaleAndCenter(*node, input.back(), bn, variables));
  const Shape shape = {input.back()};
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "moving_mean", shape, OfKind(v1::Initializer::ZEROS), variables));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "moving_variance", shape, OfKind(v1::Initializer::ONES), variables));
  for (size_t i = variables->size() - 2; i < variables->size(); ++i) {
    (*variables)[i].kind = VariableKind::kMovingAverage;
    (*variables)[i].momentum = bn->momentum();
  }
  return absl::OkStatus();
}

absl::Status InferLayerNormalization(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::LayerNormalization* norm = node->layer.mutable_layer_normalization();
  if (!norm->has_epsilon()) norm->set_epsilon(0.001f);
  CAIRN_RETURN_IF_ERROR(NeedEpsilon(norm->epsilon()));
  return AddScaleAndCenter(*node, input.back(), norm, variables);
}

absl::Status InferGroupNormalization(const Shape& input, Node* node, std::vector<Variable>* variables) {
  v1::GroupNormalization* norm = node->layer.mutable_group_normalization();
  const int64_t channels = input.back();
  if (!norm->has_groups()) norm->set_groups(32);
  if (norm->groups() == -1) norm->set_groups(static_cast<int32_t>(channels));
  if (norm->groups() <= 0) {
    return Bad("groups ", norm->groups(), " is not positive; use a number such as 32, or -1: one for each channel");
  }
  if (channels % norm->groups() != 0) {
    return Bad("groups ", norm->groups(), " does not divide the ", channels,
               " channels of its input; use a divisor of them, or -1: one for each channel");
  }
  if (!norm->has_epsilon()) norm->set_epsilon(0.001f);
  CAIRN_RETURN_IF_ERROR(NeedEpsilon(norm->epsilon()));
  return AddScaleAndCenter(*node, channels, norm, variables);
}

}  // namespace cairn::layers
