// MultiHeadAttention (Vaswani et al. 2017).
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_values.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

// Inputs: query, value and, if it differs from the value, key.
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
  if (mha->has_output_shape()) CAIRN_RETURN_IF_ERROR(NeedPositive("output_shape", mha->output_shape(), "64"));
  for (const int32_t axis : mha->attention_axes()) {
    if (mha->attention_axes_size() > 1 || (axis != 1 && axis != -2))
      return Bad("attention_axes: only the steps, [1], are supported; leave it out");
  }
  mha->mutable_attention_axes()->Clear();
  const int64_t heads = mha->num_heads(), key_dim = mha->key_dim(), value_dim = mha->value_dim();
  const int64_t features = mha->has_output_shape() ? mha->output_shape() : query[1];
  node->output = {query[0], features};
  const struct {
    const char *kernel, *bias;
    Shape kernel_shape, bias_shape;
  } projections[] = {
      {"query/kernel", "query/bias", {query[1], heads, key_dim}, {heads, key_dim}},
      {"key/kernel", "key/bias", {key[1], heads, key_dim}, {heads, key_dim}},
      {"value/kernel", "value/bias", {value[1], heads, value_dim}, {heads, value_dim}},
      {"attention_output/kernel", "attention_output/bias", {heads, value_dim, features}, {features}},
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

void ReadMultiHeadAttention(KerasConfig& c, v1::Layer* layer) {
  v1::MultiHeadAttention* attention = layer->mutable_multi_head_attention();
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
  Numbers output;
  c.Ints("output_shape", &output);
  if (output.size() > 1) c.Refuse("output_shape: more than one number is not supported; give one");
  if (output.size() == 1) attention->set_output_shape(output[0]);
  c.Ints("attention_axes", attention->mutable_attention_axes());
  if (const std::optional<uint64_t> seed = keras::Seed(c)) attention->set_seed(*seed);
  bool flash = false;
  c.Bool("flash_attention", &flash);
  attention->set_flash_attention(flash);
  c.Only("use_gate", false, keras::kLeaveAway);
  for (const char* key : {"query_shape", "key_shape", "value_shape"}) c.Ignore(key);
  keras::Kernel(c, attention);
  keras::Bias(c, attention);
}

void WriteMultiHeadAttention(const Node& node, KerasWriter& c) {
  const v1::MultiHeadAttention& attention = node.layer.multi_head_attention();
  c["num_heads"] = attention.num_heads();
  c["key_dim"] = attention.key_dim();
  c["value_dim"] = attention.value_dim();
  c["dropout"] = KerasWriter::Rounded(attention.dropout());
  c["use_bias"] = attention.use_bias();
  c.Nulls({"output_shape", "attention_axes"});
  if (attention.has_output_shape()) c["output_shape"] = attention.output_shape();
  if (attention.flash_attention()) c["flash_attention"] = true;
  c.KernelAndBias(attention);
  c["seed"] = nullptr;
  if (attention.has_seed()) c["seed"] = attention.seed();
}

constexpr float kMasked = -1e9f;  // its exponential is 0

// Projects [steps, in] to [steps, width], the numbers of all heads.
std::string Project(const Node& node, OnnxWriter& w, const char* which, const std::string& value, int64_t in,
                    int64_t width) {
  const std::string kernel = w.VariableOf(node, absl::StrCat(which, "/kernel"), {0, 1, 2}, {in, width});
  const std::string bias = w.VariableOf(node, absl::StrCat(which, "/bias"), {0, 1}, {width});
  const std::string y = w.Op("MatMul", {value, kernel});
  return bias.empty() ? y : w.Op("Add", {y, bias});
}

// Attention(Q, K, V) = softmax(Q K^T / sqrt(key_dim)) V for each head (Vaswani et al. 2017, equation 1).
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
  const size_t key_input = node.inputs.size() > 2 ? 2 : 1;
  const int64_t heads = mha.num_heads(), key_dim = mha.key_dim(), value_dim = mha.value_dim();
  const int64_t steps = w.ShapeOf(node, 0)[0], keys = w.ShapeOf(node, 1)[0], features = node.output[1];
  const auto by_head = [&](const char* which, size_t input, int64_t rows, int64_t size,
                           const std::vector<int64_t>& axes) {
    const std::string y =
        Project(node, w, which, w.In(node, input, Channels::kLast), w.ShapeOf(node, input)[1], heads * size);
    return w.Transpose(w.Reshape(y, {rows, heads, size}), axes);
  };
  const std::string query = by_head("query", 0, steps, key_dim, {0, 2, 1, 3});
  const std::string key = by_head("key", key_input, keys, key_dim, {0, 2, 3, 1});
  const std::string value = by_head("value", 1, keys, value_dim, {0, 2, 1, 3});
  std::string scores = w.Op(
      "MatMul",
      {w.Op("Mul", {query, w.Scalar("scale", static_cast<float>(1 / std::sqrt(static_cast<double>(key_dim))))}), key});
  if (mha.use_causal_mask()) {
    std::vector<float> mask(static_cast<size_t>(steps * keys), 0.0f);
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t s = t + 1; s < keys; ++s) mask[static_cast<size_t>(t * keys + s)] = kMasked;
    }
    scores = w.Op("Add", {scores, w.Numbers("mask", {steps, keys}, mask)});
  }
  const std::string weights = w.Op("Softmax", {scores});
  w.Int("axis", -1);
  const std::string joined =
      w.Reshape(w.Transpose(w.Op("MatMul", {weights, value}), {0, 2, 1, 3}), {steps, heads * value_dim});
  std::string y =
      w.Op("MatMul", {joined, w.VariableOf(node, "attention_output/kernel", {0, 1, 2}, {heads * value_dim, features})});
  if (const std::string bias = w.VariableOf(node, "attention_output/bias"); !bias.empty()) y = w.Op("Add", {y, bias});
  w.SetOutput(node, y, Channels::kLast);
}

constexpr KerasClass kKeras[] = {
    {"MultiHeadAttention", ReadMultiHeadAttention,
     "query,value,key,query_mask,value_mask,key_mask,attention_mask,return_attention_scores,training,use_causal_mask"}};
constexpr KerasSublayer kSublayers[] = {
    {"query", "query_dense"}, {"key", "key_dense"}, {"value", "value_dense"}, {"attention_output", "output_dense"}};

}  // namespace

constinit const LayerType kMultiHeadAttentionLayer = {
    .kind = LayerKind::kMultiHeadAttention,
    .field = v1::Layer::kMultiHeadAttention,
    .name = "multi_head_attention",
    .inputs_min = 2,
    .inputs_max = 3,
    .infer = InferMultiHeadAttention,
    .keras = kKeras,
    .write_keras = WriteMultiHeadAttention,
    .sublayers = kSublayers,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
