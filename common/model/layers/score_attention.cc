// Attention without projections: Attention (Luong et al. 2015), whose scores are products or tanh(query + key), and
// AdditiveAttention (Bahdanau et al. 2015).
#include <cmath>
#include <optional>

#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_values.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

// Inputs: query [t, d], value [s, e] and, if it differs from the value, key [s, d]. Output [t, e].
absl::Status InferShapes(absl::Span<const Shape> inputs, float dropout, Node* node) {
  const Shape &query = inputs[0], &value = inputs[1], &key = inputs.back();
  for (const Shape& input : inputs) CAIRN_RETURN_IF_ERROR(NeedSequence(input));
  if (key[0] != value[0]) {
    return Bad("its key ", ToString(key), " and value ", ToString(value),
               " differ in steps; give both the same number of steps");
  }
  if (key[1] != query[1]) {
    return Bad("its query ", ToString(query), " and key ", ToString(key),
               " differ in features; make them equal, by a Dense on one of them, say");
  }
  node->output = {query[0], value[1]};
  return NeedRate("dropout", dropout);
}

absl::Status InferAttention(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::Attention* attention = node->layer.mutable_attention();
  CAIRN_RETURN_IF_ERROR(InferShapes(inputs, attention->dropout(), node));
  if (!v1::Attention::ScoreMode_IsValid(attention->score_mode()))
    return Bad("score_mode ", static_cast<int>(attention->score_mode()), " is not known; use DOT or CONCAT");
  if (attention->score_mode() == v1::Attention::SCORE_MODE_UNSPECIFIED) attention->set_score_mode(v1::Attention::DOT);
  const v1::Initializer ones = OfKind(v1::Initializer::ONES);
  if (attention->use_scale()) CAIRN_RETURN_IF_ERROR(AddVariable(*node, "scale", {}, ones, variables));
  if (attention->score_mode() == v1::Attention::DOT) return absl::OkStatus();
  return AddVariable(*node, "concat_score_weight", {}, ones, variables);
}

absl::Status InferAdditiveAttention(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::AdditiveAttention* attention = node->layer.mutable_additive_attention();
  CAIRN_RETURN_IF_ERROR(InferShapes(inputs, attention->dropout(), node));
  if (!attention->has_use_scale()) attention->set_use_scale(true);
  if (!attention->use_scale()) return absl::OkStatus();
  return AddVariable(*node, "scale", {inputs[0][1]}, OfKind(v1::Initializer::GLOROT_UNIFORM), variables);
}

// ---- Keras ----

template <typename Layer>
void ReadDropout(KerasConfig& c, Layer* layer) {
  float dropout = 0;
  c.Float("dropout", &dropout);
  layer->set_dropout(dropout);
  if (const std::optional<uint64_t> seed = keras::Seed(c)) layer->set_seed(*seed);
}

void ReadAttention(KerasConfig& c, v1::Layer* layer) {
  v1::Attention* attention = layer->mutable_attention();
  bool scaled = false;
  std::string mode = "dot";
  c.Bool("use_scale", &scaled);
  c.Text("score_mode", &mode);
  attention->set_use_scale(scaled);
  if (mode != "dot" && mode != "concat")
    c.Refuse(absl::StrCat("score_mode: \"", ShownText(mode), "\" is not known; use dot or concat"));
  attention->set_score_mode(mode == "dot" ? v1::Attention::DOT : v1::Attention::CONCAT);
  ReadDropout(c, attention);
}

void ReadAdditiveAttention(KerasConfig& c, v1::Layer* layer) {
  v1::AdditiveAttention* attention = layer->mutable_additive_attention();
  bool scaled = true;
  c.Bool("use_scale", &scaled);
  attention->set_use_scale(scaled);
  c.Only("score_mode", "dot", "leave it out");  // an option of the base class that has no effect here
  ReadDropout(c, attention);
}

template <typename Layer>
void WriteDropout(const Layer& layer, KerasWriter& c) {
  c["dropout"] = KerasWriter::Rounded(layer.dropout());
  c["seed"] = nullptr;
  if (layer.has_seed()) c["seed"] = layer.seed();
}

void WriteAttention(const Node& node, KerasWriter& c) {
  const v1::Attention& attention = node.layer.attention();
  c["use_scale"] = attention.use_scale();
  c["score_mode"] = attention.score_mode() == v1::Attention::CONCAT ? "concat" : "dot";
  WriteDropout(attention, c);
}

void WriteAdditiveAttention(const Node& node, KerasWriter& c) {
  c["use_scale"] = node.layer.additive_attention().use_scale();
  WriteDropout(node.layer.additive_attention(), c);
}

// ---- ONNX ----

constexpr float kMasked = -1e9f;  // its exponential is 0

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const bool additive = node.kind == LayerKind::kAdditiveAttention;
  const v1::Attention& attention = node.layer.attention();
  const bool concat = !additive && attention.score_mode() == v1::Attention::CONCAT;
  const bool causal = additive ? node.layer.additive_attention().use_causal_mask() : attention.use_causal_mask();
  const size_t key_input = node.inputs.size() - 1;
  const int64_t steps = w.ShapeOf(node, 0)[0], keys = w.ShapeOf(node, 1)[0], features = w.ShapeOf(node, 0)[1];
  const std::string query = w.In(node, 0, Channels::kLast), value = w.In(node, 1, Channels::kLast),
                    key = w.In(node, key_input, Channels::kLast), scale = w.VariableOf(node, "scale");
  std::string scores;
  if (!additive && !concat) {
    scores = w.Op("MatMul", {query, w.Transpose(key, {0, 2, 1})});
    if (!scale.empty()) scores = w.Op("Mul", {scores, scale});
  } else {
    std::string sum = w.Op("Add", {w.Reshape(query, {steps, 1, features}), w.Reshape(key, {1, keys, features})});
    if (concat && !scale.empty()) sum = w.Op("Mul", {sum, scale});
    std::string bent = w.Op("Tanh", {sum});
    if (additive && !scale.empty()) bent = w.Op("Mul", {bent, scale});
    scores = w.Op("ReduceSum", {bent, w.Whole("last", {-1})});
    w.Int("keepdims", 0);
    if (concat) scores = w.Op("Mul", {scores, w.VariableOf(node, "concat_score_weight")});
  }
  if (causal) {
    std::vector<float> mask(static_cast<size_t>(steps * keys), 0.0f);
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t s = t + 1; s < keys; ++s) mask[static_cast<size_t>(t * keys + s)] = kMasked;
    }
    scores = w.Op("Add", {scores, w.Numbers("mask", {steps, keys}, mask)});
  }
  const std::string weights = w.Op("Softmax", {scores});
  w.Int("axis", -1);
  w.SetOutput(node, w.Op("MatMul", {weights, value}), Channels::kLast);
}

constexpr char kCall[] = "inputs,mask,return_attention_scores,training,use_causal_mask";
constexpr KerasClass kAttentionKeras[] = {{"Attention", ReadAttention, kCall}};
constexpr KerasClass kAdditiveAttentionKeras[] = {{"AdditiveAttention", ReadAdditiveAttention, kCall}};

}  // namespace

constinit const LayerType kAttentionLayer = {
    .kind = LayerKind::kAttention,
    .field = v1::Layer::kAttention,
    .name = "attention",
    .inputs_min = 2,
    .inputs_max = 3,
    .infer = InferAttention,
    .keras = kAttentionKeras,
    .write_keras = WriteAttention,
    .merges = true,
    .write_onnx = WriteOnnx,
};

constinit const LayerType kAdditiveAttentionLayer = {
    .kind = LayerKind::kAdditiveAttention,
    .field = v1::Layer::kAdditiveAttention,
    .name = "additive_attention",
    .inputs_min = 2,
    .inputs_max = 3,
    .infer = InferAdditiveAttention,
    .keras = kAdditiveAttentionKeras,
    .write_keras = WriteAdditiveAttention,
    .merges = true,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
