// IntegerLookup: the index of an integer in a vocabulary.
#include <numeric>

#include "common/model/layers/categories.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/vocabulary.h"

namespace cairn::layers {
namespace {

absl::Status InferIntegerLookup(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::IntegerLookup* layer = node->layer.mutable_integer_lookup();
  CAIRN_RETURN_IF_ERROR(ResolveMode({v1::INT, v1::ONE_HOT, v1::MULTI_HOT, v1::COUNT, v1::TF_IDF}, layer));
  if (!layer->has_num_oov_indices()) layer->set_num_oov_indices(1);
  if (!layer->has_oov_token()) layer->set_oov_token(-1);
  const auto far = [](int64_t token) { return token > kEmbeddingIdsMax || token < -kEmbeddingIdsMax; };
  for (const int64_t token : layer->vocabulary()) {
    if (far(token)) {
      return Bad("vocabulary: ", token, " is beyond ", kEmbeddingIdsMax,
                 ", and numbers come as float32; use smaller ids");
    }
  }
  if (far(layer->mask_token())) return Bad("mask_token ", layer->mask_token(), " is beyond ", kEmbeddingIdsMax);
  if (far(layer->oov_token())) return Bad("oov_token ", layer->oov_token(), " is beyond ", kEmbeddingIdsMax);
  if (layer->has_mask_token() && layer->mask_token() == layer->oov_token()) {
    return Bad("mask_token ", layer->mask_token(), " is the oov_token too; use another one");
  }
  CAIRN_ASSIGN_OR_RETURN(const Vocabulary<int64_t> vocabulary, Vocabulary<int64_t>::Make(VocabularyOf(*layer)));
  CAIRN_ASSIGN_OR_RETURN(node->output, vocabulary.code().Of(inputs[0]));
  return absl::OkStatus();
}

void ReadTokens(KerasConfig& c, v1::IntegerLookup* layer) {
  if (const Json* tokens = c.Take("vocabulary")) {
    if (!tokens->is_array() || tokens->size() > static_cast<size_t>(kEmbeddingIdsMax)) {
      return c.Refuse(
          absl::StrCat("vocabulary: ", ShownJson(*tokens), " is not a list of whole numbers; give the tokens"));
    }
    for (const Json& token : *tokens) {
      if (!token.is_number_integer()) {
        return c.Refuse(absl::StrCat("vocabulary: ", ShownJson(token), " is not a whole number"));
      }
      layer->add_vocabulary(token.get<int64_t>());
    }
  }
  ReadIdfWeights(c, layer);
}

void ReadIntegerLookup(KerasConfig& c, v1::Layer* layer) {
  v1::IntegerLookup* lookup = layer->mutable_integer_lookup();
  const auto number = [&](const char* key, const auto& set) {
    if (!c.Has(key)) return;
    int32_t value = 0;
    c.Int(key, &value);
    set(value);
  };
  number("max_tokens", [&](int32_t value) { lookup->set_max_tokens(value); });
  number("num_oov_indices", [&](int32_t value) { lookup->set_num_oov_indices(value); });
  number("mask_token", [&](int32_t value) { lookup->set_mask_token(value); });
  number("oov_token", [&](int32_t value) { lookup->set_oov_token(value); });
  bool pad = false;
  c.Bool("pad_to_max_tokens", &pad);
  lookup->set_pad_to_max_tokens(pad);
  c.Only("invert", false, "leave it out: it gives tokens for indices");
  c.Only("vocabulary_dtype", "int64", "use int64");
  c.Only("oov_method", "floormod", "leave it out: the index is the number modulo num_oov_indices");
  for (const char* key : {"vocabulary_size", "has_input_vocabulary"}) c.Ignore(key);  // follow from the vocabulary
  lookup->set_output_mode(ReadMode(c));
  ReadTokens(c, lookup);
}

void WriteIntegerLookup(const Node& node, KerasWriter& c) {
  const v1::IntegerLookup& layer = node.layer.integer_lookup();
  c["invert"] = false;
  c["max_tokens"] = nullptr;
  if (layer.has_max_tokens()) c["max_tokens"] = layer.max_tokens();
  c["num_oov_indices"] = layer.num_oov_indices();
  c["oov_token"] = layer.oov_token();
  c["mask_token"] = nullptr;
  if (layer.has_mask_token()) c["mask_token"] = layer.mask_token();
  WriteMode(layer.output_mode(), c);
  c["pad_to_max_tokens"] = layer.pad_to_max_tokens();
  c["vocabulary_dtype"] = "int64";
  WriteIdfWeights(layer, c);
  WriteVocabulary(layer, c);
}

// Compares the number with every token at once. Where it equals a token the result is the token's index, otherwise an
// out-of-vocabulary index. ONNX's OneHot ignores an index equal to its depth; Mod and Where produce that index for a
// masked token.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const Vocabulary<int64_t> v = *Vocabulary<int64_t>::Make(VocabularyOf(node.layer.integer_lookup()));
  Shape dims = w.ShapeOf(node, 0);
  const std::string x = w.Op("Cast", {w.In(node, 0, Channels::kLast)});
  w.Int("to", onnx::TensorProto::INT64);
  std::vector<int64_t> indices(v.tokens().size());
  std::iota(indices.begin(), indices.end(), v.oov_begin() + v.num_oov_indices());
  std::vector<int64_t> tokens = v.tokens();
  if (v.mask_token().has_value()) {
    tokens.push_back(*v.mask_token());
    indices.push_back(v.code().mode == v1::INT ? 0 : v.code().depth);
  }
  dims.push_back(1);
  const std::string same = w.Op("Cast", {w.Op("Equal", {w.Reshape(x, dims), w.Whole("tokens", tokens)})});
  w.Int("to", onnx::TensorProto::INT64);
  const auto sum = [&](const std::string& value) {
    const std::string y = w.Op("ReduceSum", {value, w.Whole("last", {-1})});
    w.Int("keepdims", 0);
    return y;
  };
  const std::string found = w.Op("Cast", {sum(same)});
  w.Int("to", onnx::TensorProto::BOOL);
  const std::string index = sum(w.Op("Mul", {same, w.Whole("indices", indices)}));
  const std::string unknown = w.Op(
      "Add", {w.Op("Mod", {x, w.Whole("num_oov_indices", {v.num_oov_indices()})}), w.Whole("first", {v.oov_begin()})});
  WriteOnnxCode(node, w.Op("Where", {found, index, unknown}), w);
}

constexpr KerasClass kKeras[] = {{"IntegerLookup", ReadIntegerLookup}};

}  // namespace

constinit const LayerType kIntegerLookupLayer = {
    .kind = LayerKind::kIntegerLookup,
    .field = v1::Layer::kIntegerLookup,
    .name = "integer_lookup",
    .infer = InferIntegerLookup,
    .keras = kKeras,
    .write_keras = WriteIntegerLookup,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
