// Vision transformers (Dosovitskiy et al. 2021; the tiny one: Touvron et al. 2021) and a small GPT (Radford et al.
// 2019), layer by layer as in the papers: normalization before attention and before the two dense layers, and sums
// around both.
//
// A table of positions is an Embedding whose ids do not depend on the example: a number of the input times 0, plus
// 0, 1, 2, ... The class token is an Embedding of one id.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/ready_made/layer_writer.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

constexpr float kTableDeviation = 0.02f;

struct Size {
  int32_t width, depth, heads;
};

struct BlockOptions {
  float epsilon;
  float dropout;  // of the scores, and of what attention and the dense layers give
  v1::Activation activation;
  bool causal;
};

v1::Initializer* Table(LayerWriter& w, const std::string& name, int32_t ids, int32_t width) {
  v1::Embedding& embedding = *w.Append(name).mutable_embedding();
  embedding.set_input_dim(ids);
  embedding.set_output_dim(width);
  v1::Initializer* const initializer = embedding.mutable_embeddings_initializer();
  initializer->set_kind(v1::Initializer::RANDOM_NORMAL);
  initializer->set_stddev(kTableDeviation);
  return initializer;
}

// Ids 0 .. count - 1, whatever `input` ([1] or [count]) is.
void Positions(LayerWriter& w, const std::string& name, const std::string& zeros, int32_t count) {
  v1::Layer& layer = w.Operation(name, v1::Operation::ADD, 0);
  layer.add_inputs(zeros);
  for (int32_t i = 1; i < count; ++i) layer.mutable_operation()->add_constant(static_cast<float>(i));
  layer.mutable_operation()->add_constant_shape(count);
}

void Drop(LayerWriter& w, const std::string& name, float rate) {
  if (rate > 0) w.Dropout(name, rate);
}

void Block(LayerWriter& w, const std::string& name, const Size& size, const BlockOptions& options) {
  const std::string input = w.last();
  w.LayerNormalization(name + "_norm1", options.epsilon);
  v1::Layer& layer = w.Append(name + "_attention");
  for (int i = 0; i < 2; ++i) layer.add_inputs(name + "_norm1");
  v1::MultiHeadAttention& attention = *layer.mutable_multi_head_attention();
  attention.set_num_heads(size.heads);
  attention.set_key_dim(size.width / size.heads);
  attention.set_dropout(options.dropout);
  attention.set_use_causal_mask(options.causal);
  Drop(w, name + "_attention_dropout", options.dropout);
  w.Add(name + "_add1", input, w.last());
  w.LayerNormalization(name + "_norm2", options.epsilon);
  w.Dense(name + "_dense1", 4 * size.width, options.activation);
  w.Dense(name + "_dense2", size.width, v1::LINEAR);
  Drop(w, name + "_dense_dropout", options.dropout);
  w.Add(name + "_add2", name + "_add1", w.last());
}

constexpr int32_t kPatch = 16;

v1::Model VisionTransformer(const std::string& name, const Size& size, const std::vector<int32_t>& input_shape,
                            int32_t classes) {
  LayerWriter w(name, input_shape);
  const int32_t patches = (input_shape[0] / kPatch) * (input_shape[1] / kPatch);
  w.Rescaling(1.0f / 127.5f, -1);
  w.Conv2D("patch_embedding", size.width, kPatch, kPatch);
  w.Reshape("patches", {patches, size.width});
  v1::Slice& corner = *w.Append("corner").mutable_slice();
  w.From("rescaling");
  corner.add_axes()->set_end(1);
  for (int i = 0; i < 2; ++i) {
    v1::Slice::Axis& axis = *corner.add_axes();
    axis.set_begin(0);
    axis.set_drop(true);
  }
  w.Operation("zero", v1::Operation::MULTIPLY, 0);
  Table(w, "class_token", 1, size.width)->set_kind(v1::Initializer::ZEROS);
  w.Find("class_token")->mutable_embedding()->mutable_embeddings_initializer()->clear_stddev();
  w.Concatenate("tokens", "class_token", "patches").set_axis(1);
  Positions(w, "positions", "zero", patches + 1);
  Table(w, "position_embedding", patches + 1, size.width);
  w.Add("embeddings", "tokens", "position_embedding");
  for (int32_t block = 0; block < size.depth; ++block) {
    Block(w, absl::StrCat("block", block), size,
          {.epsilon = 1e-6f, .dropout = 0, .activation = v1::GELU, .causal = false});
  }
  w.LayerNormalization("norm", 1e-6f);
  v1::Slice& first = *w.Append("first").mutable_slice();
  first.add_axes()->set_begin(0);
  first.mutable_axes(0)->set_drop(true);
  w.Dense("head", classes, v1::SOFTMAX);
  return w.Take();
}

}  // namespace

v1::Model MakeVitTiny(const std::vector<int32_t>& input_shape, int32_t classes) {
  return VisionTransformer("vit_tiny", {.width = 192, .depth = 12, .heads = 3}, input_shape, classes);
}

v1::Model MakeVitBase(const std::vector<int32_t>& input_shape, int32_t classes) {
  return VisionTransformer("vit_base", {.width = 768, .depth = 12, .heads = 12}, input_shape, classes);
}

// Token ids [steps] in, the next one's probabilities at each step out.
v1::Model MakeGptMini(const std::vector<int32_t>& input_shape, int32_t classes) {
  constexpr Size kSize = {.width = 192, .depth = 6, .heads = 6};
  constexpr float kDropout = 0.1f;
  LayerWriter w("gpt_mini", input_shape);
  w.Operation("zeros", v1::Operation::MULTIPLY, 0);
  Positions(w, "positions", "zeros", input_shape[0]);
  Table(w, "position_embedding", input_shape[0], kSize.width);
  Table(w, "token_embedding", classes, kSize.width);
  w.From("input_layer");
  w.Add("embeddings", "token_embedding", "position_embedding");
  w.Dropout("embedding_dropout", kDropout);
  for (int32_t block = 0; block < kSize.depth; ++block) {
    Block(w, absl::StrCat("block", block), kSize,
          {.epsilon = 1e-5f, .dropout = kDropout, .activation = v1::GELU, .causal = true});
  }
  w.LayerNormalization("norm", 1e-5f);
  w.Dense("head", classes, v1::SOFTMAX).set_use_bias(false);
  return w.Take();
}

}  // namespace cairn
