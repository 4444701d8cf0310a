// TextVectorization: the tokens of a text, by their indices in a vocabulary.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/model/layers/categories.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/vocabulary.h"

namespace cairn::layers {
namespace {

using Text = v1::TextVectorization;

absl::Status ResolveTokens(Text* layer) {
  if (!Text::Standardize_IsValid(layer->standardize()) || !Text::SplitBy_IsValid(layer->split())) {
    return Bad(Text::Standardize_IsValid(layer->standardize()) ? "split" : "standardize",
               " has a number that is not known; leave it out");
  }
  if (layer->standardize() == Text::STANDARDIZE_UNSPECIFIED) {
    layer->set_standardize(Text::LOWER_AND_STRIP_PUNCTUATION);
  }
  if (layer->split() == Text::SPLIT_BY_UNSPECIFIED) layer->set_split(Text::WHITESPACE);
  if (layer->ngrams_size() > kNgramsMax) {
    return Bad("ngrams has ", layer->ngrams_size(), " sizes; at most ", kNgramsMax, " are allowed");
  }
  for (const int32_t size : layer->ngrams()) {
    if (size < 1 || size > kNgramsMax) {
      return Bad("ngrams: ", size, " is not within 1 .. ", kNgramsMax, "; use [1, 2] for tokens and pairs");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTextShape(const Text& layer, const Shape& input) {
  if (layer.split() == Text::NO_SPLIT || NumElements(input) == 1) return absl::OkStatus();
  return Bad("its input has the shape ", ToString(input), ", and it splits one text; use an input [] or [1], or split ",
             "NO_SPLIT, with which each text is a token");
}

absl::Status InferTextVectorization(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  Text* layer = node->layer.mutable_text_vectorization();
  CAIRN_RETURN_IF_ERROR(ResolveMode({v1::INT, v1::MULTI_HOT, v1::COUNT, v1::TF_IDF}, layer));
  CAIRN_RETURN_IF_ERROR(ResolveTokens(layer));
  CAIRN_RETURN_IF_ERROR(CheckTextShape(*layer, inputs[0]));
  CAIRN_ASSIGN_OR_RETURN(const auto vocabulary, Vocabulary<std::string>::Make(VocabularyOf(*layer)));
  const bool given = layer->has_output_sequence_length();
  if (layer->output_mode() != v1::INT) {
    if (given) return Bad("output_sequence_length is for output_mode INT; leave it out");
    node->output = {vocabulary.code().depth};
    return absl::OkStatus();
  }
  // As many as there are texts, if these are the tokens.
  if (!given && layer->split() == Text::NO_SPLIT && layer->ngrams().empty()) {
    node->output = inputs[0];
    return absl::OkStatus();
  }
  if (!given) {
    return Bad("output_sequence_length is missing: the shapes of a model are fixed here; give it, such as 64: longer ",
               "texts are cut, shorter ones filled up with 0");
  }
  CAIRN_RETURN_IF_ERROR(NeedCategories("output_sequence_length", layer->output_sequence_length(), "64"));
  node->output = {layer->output_sequence_length()};
  return absl::OkStatus();
}

// Keras' names are those of the enums in lower case; null is `none`. Keras writes the key in any case.
template <typename Enum>
void ReadWay(KerasConfig& c, const char* key, bool (*parse)(const std::string&, Enum*), Enum none, Enum* out) {
  const Json* value = c.Take(key);
  if (value == nullptr) {
    *out = none;
    return;
  }
  if (!value->is_string()) {
    return c.Refuse(absl::StrCat(key, ": ", ShownJson(*value), " is code of your own, which no worker can run"));
  }
  const std::string name = absl::AsciiStrToUpper(value->get<std::string>());
  if (!parse(name, out) || *out == none || *out == Enum{}) {
    c.Refuse(absl::StrCat(key, ": ", ShownJson(*value), " is not known"));
  }
}

void ReadNgrams(KerasConfig& c, Text* layer) {
  const Json* given = c.Take("ngrams");
  if (given == nullptr) return;
  if (given->is_number_integer()) {
    const int64_t largest = std::clamp<int64_t>(given->get<int64_t>(), 0, kNgramsMax + 1);
    if (largest == 0) return c.Refuse(absl::StrCat("ngrams: ", ShownJson(*given), " is not a number from 1"));
    for (int64_t size = 1; size <= largest; ++size) layer->add_ngrams(static_cast<int32_t>(size));
    return;
  }
  c.Ints("ngrams", layer->mutable_ngrams());
}

void ReadTextVectorization(KerasConfig& c, v1::Layer* layer) {
  Text* text = layer->mutable_text_vectorization();
  int32_t number = 0;
  if (c.Has("max_tokens")) {
    c.Int("max_tokens", &number);
    text->set_max_tokens(number);
  }
  Text::Standardize standardize = Text::STANDARDIZE_UNSPECIFIED;
  Text::SplitBy split = Text::SPLIT_BY_UNSPECIFIED;
  ReadWay<Text::Standardize>(c, "standardize", Text::Standardize_Parse, Text::NO_STANDARDIZATION, &standardize);
  ReadWay<Text::SplitBy>(c, "split", Text::SplitBy_Parse, Text::NO_SPLIT, &split);
  text->set_standardize(standardize);
  text->set_split(split);
  ReadNgrams(c, text);
  text->set_output_mode(ReadMode(c));
  if (c.Has("output_sequence_length")) {
    c.Int("output_sequence_length", &number);
    text->set_output_sequence_length(number);
  }
  bool pad = false;
  c.Bool("pad_to_max_tokens", &pad);
  text->set_pad_to_max_tokens(pad);
  c.Only("ragged", false, "leave it out, and give output_sequence_length");
  c.Only("encoding", "utf-8", "use utf-8");
  for (const char* key : {"vocabulary_size", "has_input_vocabulary"}) c.Ignore(key);  // follow from the vocabulary
  ReadTextVocabulary(c, text);
  ReadIdfWeights(c, text);
}

void WriteTextVectorization(const Node& node, KerasWriter& c) {
  const Text& layer = node.layer.text_vectorization();
  c["max_tokens"] = nullptr;
  if (layer.has_max_tokens()) c["max_tokens"] = layer.max_tokens();
  c["standardize"] = nullptr;
  if (layer.standardize() != Text::NO_STANDARDIZATION) {
    c["standardize"] = absl::AsciiStrToLower(Text::Standardize_Name(layer.standardize()));
  }
  c["split"] = nullptr;
  if (layer.split() != Text::NO_SPLIT) c["split"] = absl::AsciiStrToLower(Text::SplitBy_Name(layer.split()));
  c["ngrams"] = nullptr;
  if (!layer.ngrams().empty()) c.Ints("ngrams", layer.ngrams());
  c["output_mode"] = absl::AsciiStrToLower(v1::EncodingMode_Name(layer.output_mode()));
  c["output_sequence_length"] = nullptr;
  if (layer.has_output_sequence_length()) c["output_sequence_length"] = layer.output_sequence_length();
  c["pad_to_max_tokens"] = layer.pad_to_max_tokens();
  c["sparse"] = false;
  c["ragged"] = false;
  WriteVocabulary(layer, c);
  WriteIdfWeights(layer, c);
  c["encoding"] = "utf-8";
}

constexpr KerasClass kKeras[] = {{"TextVectorization", ReadTextVectorization}};

}  // namespace

constinit const LayerType kTextVectorizationLayer = {
    .kind = LayerKind::kTextVectorization,
    .field = v1::Layer::kTextVectorization,
    .name = "text_vectorization",
    .infer = InferTextVectorization,
    .keras = kKeras,
    .write_keras = WriteTextVectorization,
    .write_onnx = [](const Node&, OnnxWriter&) {},  // rejected by CheckCategoriesOnnx
};

}  // namespace cairn::layers
