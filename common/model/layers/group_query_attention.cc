// GroupQueryAttention: attention whose groups of query heads share one key and one value head (Ainslie et al. 2023).
#include <utility>

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

absl::Status CheckFields(v1::GroupQueryAttention* l, absl::Span<const Shape> inputs) {
  for (const Shape& input : inputs) CAIRN_RETURN_IF_ERROR(NeedSequence(input));
  const Shape &query = inputs[0], &value = inputs[1], &key = inputs.back();
  if (key[0] != value[0]) {
    return Bad("its key ", ToString(key), " and value ", ToString(value),
               " differ in steps; give both the same number of steps");
  }
  CAIRN_RETURN_IF_ERROR(NeedPositive("head_dim", l->head_dim(), "64"));
  CAIRN_RETURN_IF_ERROR(NeedPositive("num_query_heads", l->num_query_heads(), "8"));
  CAIRN_RETURN_IF_ERROR(NeedPositive("num_key_value_heads", l->num_key_value_heads(), "2"));
  if (l->num_query_heads() % l->num_key_value_heads() != 0) {
    return Bad("num_key_value_heads ", l->num_key_value_heads(), " does not divide num_query_heads ",
               l->num_query_heads(), "; give one that does");
  }
  CAIRN_RETURN_IF_ERROR(NeedRate("dropout", l->dropout()));
  if (l->sliding_window() < 0) {
    return Bad("sliding_window ", l->sliding_window(), " is negative; leave it out, or give a number such as 128");
  }
  if (l->sliding_window() > 0 && query[0] - value[0] >= l->sliding_window()) {
    return Bad("sliding_window ", l->sliding_window(), ": the last of the ", query[0],
               " steps of its query sees none of the ", value[0], " keys; give more");
  }
  return absl::OkStatus();
}

// Inputs: query, value and, if it differs from the value, key.
absl::Status InferGroupQueryAttention(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::GroupQueryAttention* l = node->layer.mutable_group_query_attention();
  CAIRN_RETURN_IF_ERROR(CheckFields(l, inputs));
  if (!l->has_use_bias()) l->set_use_bias(true);
  CAIRN_RETURN_IF_ERROR(
      ResolveInitializer("kernel_initializer", v1::Initializer::GLOROT_UNIFORM, l->mutable_kernel_initializer()));
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("bias_initializer", v1::Initializer::ZEROS, l->mutable_bias_initializer()));
  const int64_t heads = l->num_query_heads(), groups = l->num_key_value_heads(), size = l->head_dim();
  const int64_t query = inputs[0][1], value = inputs[1][1], key = inputs.back()[1];
  const auto add = [&](const char* name, Shape kernel, Shape bias) -> absl::Status {
    CAIRN_RETURN_IF_ERROR(AddVariable(*node, absl::StrCat(name, "/kernel").c_str(), std::move(kernel),
                                      l->kernel_initializer(), variables));
    CAIRN_RETURN_IF_ERROR(
        Regularize("kernel_regularizer", l->has_kernel_regularizer(), l->kernel_regularizer(), variables));
    if (!l->use_bias()) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(
        AddVariable(*node, absl::StrCat(name, "/bias").c_str(), std::move(bias), l->bias_initializer(), variables));
    return Regularize("bias_regularizer", l->has_bias_regularizer(), l->bias_regularizer(), variables);
  };
  CAIRN_RETURN_IF_ERROR(add("query", {query, heads, size}, {heads, size}));
  CAIRN_RETURN_IF_ERROR(add("key", {key, groups, size}, {groups, size}));
  if (l->use_gate()) CAIRN_RETURN_IF_ERROR(add("gate", {query, heads, size}, {heads, size}));
  CAIRN_RETURN_IF_ERROR(add("value", {value, groups, size}, {groups, size}));
  CAIRN_RETURN_IF_ERROR(add("attention_output", {heads, size, query}, {query}));
  node->output = inputs[0];
  return absl::OkStatus();
}

void ReadGroupQueryAttention(KerasConfig& c, v1::Layer* layer) {
  v1::GroupQueryAttention* l = layer->mutable_group_query_attention();
  int32_t size = 0, heads = 0, groups = 0, window = 0;
  float dropout = 0;
  bool flash = false, gate = false;
  c.Int("head_dim", &size);
  c.Int("num_query_heads", &heads);
  c.Int("num_key_value_heads", &groups);
  c.Int("sliding_window", &window);
  c.Float("dropout", &dropout);
  c.Bool("flash_attention", &flash);
  c.Bool("use_gate", &gate);
  l->set_head_dim(size);
  l->set_num_query_heads(heads);
  l->set_num_key_value_heads(groups);
  l->set_sliding_window(window);
  l->set_dropout(dropout);
  l->set_flash_attention(flash);
  l->set_use_gate(gate);
  if (const std::optional<uint64_t> seed = keras::Seed(c)) l->set_seed(*seed);
  for (const char* key : {"query_shape", "key_shape", "value_shape"}) c.Ignore(key);
  keras::Kernel(c, l);
  keras::Bias(c, l);
}

void WriteGroupQueryAttention(const Node& node, KerasWriter& c) {
  const v1::GroupQueryAttention& l = node.layer.group_query_attention();
  c["head_dim"] = l.head_dim();
  c["num_query_heads"] = l.num_query_heads();
  c["num_key_value_heads"] = l.num_key_value_heads();
  c["dropout"] = KerasWriter::Rounded(l.dropout());
  c["use_bias"] = l.use_bias();
  if (l.flash_attention()) c["flash_attention"] = true;
  c.KernelAndBias(l);
  if (l.use_gate()) c["use_gate"] = true;
  if (l.sliding_window() > 0) c["sliding_window"] = l.sliding_window();
  c["seed"] = nullptr;
  if (l.has_seed()) c["seed"] = l.seed();
}

constexpr char kCall[] =
    "query,value,key,query_mask,value_mask,key_mask,attention_mask,return_attention_scores,training,use_causal_mask";
constexpr KerasClass kKeras[] = {{"GroupQueryAttention", ReadGroupQueryAttention, kCall},
                                 {"GroupedQueryAttention", ReadGroupQueryAttention, kCall}};
constexpr KerasSublayer kSublayers[] = {{"query", "query_dense"},
                                        {"key", "key_dense"},
                                        {"gate", "gate_dense"},
                                        {"value", "value_dense"},
                                        {"attention_output", "output_dense"}};

}  // namespace

constinit const LayerType kGroupQueryAttentionLayer = {
    .kind = LayerKind::kGroupQueryAttention,
    .field = v1::Layer::kGroupQueryAttention,
    .name = "group_query_attention",
    .inputs_min = 2,
    .inputs_max = 3,
    .infer = InferGroupQueryAttention,
    .keras = kKeras,
    .write_keras = WriteGroupQueryAttention,
    .sublayers = kSublayers,
    .write_onnx = [](const Node&, OnnxWriter&) {},  // refused before (common/model/onnx/onnx_operation_values.h)
};

}  // namespace cairn::layers
