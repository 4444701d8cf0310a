// StringLookup: the index of a text in a vocabulary.
#include "common/model/layers/categories.h"
#include "common/model/layers/table.h"
#include "common/model/vocabulary.h"

namespace cairn::layers {
namespace {

absl::Status InferStringLookup(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::StringLookup* layer = node->layer.mutable_string_lookup();
  CAIRN_RETURN_IF_ERROR(ResolveMode({v1::INT, v1::ONE_HOT, v1::MULTI_HOT, v1::COUNT, v1::TF_IDF}, layer));
  if (!layer->has_num_oov_indices()) layer->set_num_oov_indices(1);
  if (!layer->has_oov_token()) layer->set_oov_token(kUnknownToken);
  if (layer->has_mask_token() && layer->mask_token() == layer->oov_token()) {
    return Bad("mask_token ", ShownText(layer->mask_token()), " is the oov_token too; use another one");
  }
  CAIRN_ASSIGN_OR_RETURN(const auto vocabulary, Vocabulary<std::string>::Make(VocabularyOf(*layer)));
  CAIRN_ASSIGN_OR_RETURN(node->output, vocabulary.code().Of(inputs[0]));
  return absl::OkStatus();
}

void ReadStringLookup(KerasConfig& c, v1::Layer* layer) {
  v1::StringLookup* lookup = layer->mutable_string_lookup();
  int32_t number = 0;
  if (c.Has("max_tokens")) {
    c.Int("max_tokens", &number);
    lookup->set_max_tokens(number);
  }
  if (c.Has("num_oov_indices")) {
    c.Int("num_oov_indices", &number);
    lookup->set_num_oov_indices(number);
  }
  if (c.Has("mask_token")) c.Text("mask_token", lookup->mutable_mask_token());
  if (c.Has("oov_token")) c.Text("oov_token", lookup->mutable_oov_token());
  bool pad = false;
  c.Bool("pad_to_max_tokens", &pad);
  lookup->set_pad_to_max_tokens(pad);
  c.Only("invert", false, "leave it out: it gives texts for indices");
  c.Only("encoding", "utf-8", "use utf-8");
  c.Only("vocabulary_dtype", "string", "use string");
  // Of texts the method is FarmHash in any case; the others follow from the vocabulary.
  for (const char* key : {"oov_method", "vocabulary_size", "has_input_vocabulary"}) c.Ignore(key);
  lookup->set_output_mode(ReadMode(c));
  ReadTextVocabulary(c, lookup);
  ReadIdfWeights(c, lookup);
}

void WriteStringLookup(const Node& node, KerasWriter& c) {
  const v1::StringLookup& layer = node.layer.string_lookup();
  c["invert"] = false;
  c["max_tokens"] = nullptr;
  if (layer.has_max_tokens()) c["max_tokens"] = layer.max_tokens();
  c["num_oov_indices"] = layer.num_oov_indices();
  c["oov_token"] = layer.oov_token();
  c["mask_token"] = nullptr;
  if (layer.has_mask_token()) c["mask_token"] = layer.mask_token();
  WriteMode(layer.output_mode(), c);
  c["pad_to_max_tokens"] = layer.pad_to_max_tokens();
  WriteIdfWeights(layer, c);
  WriteVocabulary(layer, c);
  c["encoding"] = "utf-8";
}

constexpr KerasClass kKeras[] = {{"StringLookup", ReadStringLookup}};

}  // namespace

constinit const LayerType kStringLookupLayer = {
    .kind = LayerKind::kStringLookup,
    .field = v1::Layer::kStringLookup,
    .name = "string_lookup",
    .infer = InferStringLookup,
    .keras = kKeras,
    .write_keras = WriteStringLookup,
    .write_onnx = [](const Node&, OnnxWriter&) {},  // rejected by CheckCategoriesOnnx
};

}  // namespace cairn::layers
