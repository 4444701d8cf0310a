// Goal: the layers that take texts give what Keras documents, in every mode; what they do not take is refused by name;
// what backends compute of a model (ComputedGraph) has the same variables and no texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/fingerprint.h"
#include "common/model/graph.h"
#include "common/model/model_inputs.h"
#include "common/model/text_function.h"
#include "common/model/text_inputs.h"
#include "common/model/text_tokens.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Text = v1::TextVectorization;

absl::StatusOr<Graph> Build(const std::string& layer, const std::string& shape) {
  return Graph::Build(FromText<v1::Model>(absl::StrCat("layers { name: 'x' input { text: true ", shape,
                                                       " } } layers { name: 'y' inputs: 'x' ", layer, " }")));
}

// What the layer gives of the texts of one example.
std::vector<float> Given(const std::string& layer, const std::vector<std::string>& texts) {
  const absl::StatusOr<Graph> graph = Build(layer, absl::StrCat("shape: ", texts.size()));
  EXPECT_TRUE(graph.ok()) << layer << ": " << graph.status();
  if (!graph.ok()) return {};
  std::vector<TextOrNumber> values;
  for (const std::string& text : texts) values.push_back({true, text, 0});
  std::vector<float> y(static_cast<size_t>(NumElements(graph->output().output)), -7.0f);
  const absl::Status status = TextFunction(graph->output()).Write(values, y.data());
  EXPECT_TRUE(status.ok()) << layer << ": " << status;
  return y;
}

std::string ErrorOf(const std::string& layer, const std::string& shape = "shape: 1") {
  const absl::StatusOr<Graph> graph = Build(layer, shape);
  return graph.ok() ? "accepted" : std::string(graph.status().message());
}

TEST(TextTokens, StandardizeAsKeras) {
  const std::string text = "Don't STOP-me, \xC3\x84rger (no_w)!";
  EXPECT_EQ(StandardizeText(text, Text::LOWER),
            "don't stop-me, \xC3\x84rger (no_w)!");  // only A-Z, as tf.strings.lower
  EXPECT_EQ(StandardizeText(text, Text::STRIP_PUNCTUATION), "Dont STOPme \xC3\x84rger now");
  EXPECT_EQ(StandardizeText(text, Text::LOWER_AND_STRIP_PUNCTUATION), "dont stopme \xC3\x84rger now");
  EXPECT_EQ(StandardizeText(text, Text::NO_STANDARDIZATION), text);
  // All of Keras' expression [!"#$%&()\*\+,-\./:;<=>?@\[\\\]^_`{|}~\'] and nothing else of ASCII.
  const std::string stripped = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'";
  std::string all, left;
  for (char c = 1; c < 127; ++c) {
    all.push_back(c);
    if (stripped.find(c) == std::string::npos) left.push_back(c);
  }
  EXPECT_EQ(StandardizeText(all, Text::STRIP_PUNCTUATION), left);
}

TEST(TextTokens, SplitAsKeras) {
  EXPECT_THAT(SplitText("  a \t bc\r\n\v\fd ", Text::WHITESPACE), ElementsAre("a", "bc", "d"));
  EXPECT_THAT(SplitText(" \n", Text::WHITESPACE), ElementsAre());
  EXPECT_THAT(SplitText("a \xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", Text::CHARACTER),
              ElementsAre("a", " ", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"));
  EXPECT_THAT(SplitText("", Text::CHARACTER), ElementsAre());
  EXPECT_THAT(SplitText("a b", Text::NO_SPLIT), ElementsAre("a b"));
}

// The order of tf.strings.ngrams: all of one size, then all of the next.
TEST(TextTokens, NgramsAsTensorFlow) {
  EXPECT_THAT(JoinTokens({"a", "b", "c"}, {1, 2}), ElementsAre("a", "b", "c", "a b", "b c"));
  EXPECT_THAT(JoinTokens({"a", "b", "c"}, {3, 1}), ElementsAre("a b c", "a", "b", "c"));
  EXPECT_THAT(JoinTokens({"a"}, {2}), ElementsAre());
  EXPECT_THAT(JoinTokens({"a", "b"}, {}), ElementsAre("a", "b"));
}

// The examples of Keras' documentation.
TEST(TextLayers, GiveWhatKerasDocuments) {
  const std::string lookup = "string_lookup { vocabulary: ['a', 'b', 'c', 'd'] ";
  EXPECT_THAT(Given(lookup + "}", {"a", "c", "d"}), ElementsAre(1, 3, 4));
  EXPECT_THAT(Given(lookup + "}", {"d", "z", "b"}), ElementsAre(4, 0, 2));
  EXPECT_THAT(Given(lookup + "num_oov_indices: 2 }", {"a", "c", "d"}), ElementsAre(2, 4, 5));
  EXPECT_THAT(Given(lookup + "num_oov_indices: 2 }", {"m", "z", "b"}), ElementsAre(0, 1, 3));
  EXPECT_THAT(Given(lookup + "output_mode: ONE_HOT }", {"z"}), ElementsAre(1, 0, 0, 0, 0));
  EXPECT_THAT(Given(lookup + "output_mode: MULTI_HOT }", {"d", "z", "b", "z"}), ElementsAre(1, 0, 1, 0, 1));
  EXPECT_THAT(Given(lookup + "output_mode: COUNT }", {"d", "z", "b", "z"}), ElementsAre(2, 0, 1, 0, 1));
  const std::string weights = "output_mode: TF_IDF idf_weights: [0.25, 0.75, 0.6, 0.4] }";
  EXPECT_THAT(Given(lookup + weights, {"a", "c", "d", "d"}), ElementsAre(0, 0.25f, 0, 0.6f, 0.8f));
  EXPECT_THAT(Given(lookup + weights, {"d", "z", "b", "z"}), ElementsAre(1.0f, 0, 0.75f, 0, 0.4f));
  EXPECT_THAT(Given("string_lookup { vocabulary: ['[UNK]', 'a', 'b', 'c', 'd'] output_mode: TF_IDF idf_weights: [0.9, "
                    "0.25, 0.75, 0.6, 0.4] }",
                    {"d", "z", "b", "z"}),
              ElementsAre(1.8f, 0, 0.75f, 0, 0.4f));
  EXPECT_THAT(Given("text_vectorization { vocabulary: ['earth', 'wind', 'and', 'fire'] output_sequence_length: 6 }",
                    {"Earth, WIND; and water!"}),
              ElementsAre(2, 3, 4, 1, 0, 0));
}

TEST(TextLayers, VectorizeInEveryMode) {
  const std::string tokens = "text_vectorization { vocabulary: ['a', 'b', 'a b'] ";
  const std::string text = "A b b? c";
  EXPECT_THAT(Given(tokens + "output_sequence_length: 3 }", {text}), ElementsAre(2, 3, 3));
  EXPECT_THAT(Given(tokens + "output_sequence_length: 9 ngrams: [1, 2] }", {text}),
              ElementsAre(2, 3, 3, 1, 4, 1, 1, 0, 0));  // a, b, b, c, "a b", "b b", "b c"
  EXPECT_THAT(Given(tokens + "output_mode: MULTI_HOT }", {text}), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(Given(tokens + "output_mode: COUNT ngrams: 2 }", {text}), ElementsAre(2, 0, 0, 1));
  EXPECT_THAT(Given(tokens + "output_mode: COUNT max_tokens: 6 pad_to_max_tokens: true }", {text}),
              ElementsAre(1, 1, 2, 0, 0, 0));
  EXPECT_THAT(Given(tokens + "output_mode: TF_IDF idf_weights: [2, 0.5, 0.5] }", {text}), ElementsAre(1, 2, 1, 0));
  EXPECT_THAT(Given(tokens + "standardize: NO_STANDARDIZATION output_sequence_length: 4 }", {text}),
              ElementsAre(1, 3, 1, 1));
  EXPECT_THAT(Given(tokens + "split: CHARACTER output_sequence_length: 4 }", {"ab!b"}), ElementsAre(2, 3, 3, 0));
  EXPECT_THAT(Given(tokens + "split: NO_SPLIT }", {"A b", "b", ""}), ElementsAre(4, 3, 0));
  EXPECT_THAT(Given(tokens + "split: NO_SPLIT output_sequence_length: 2 }", {"b"}), ElementsAre(3, 0));
  EXPECT_THAT(Given(tokens + "output_sequence_length: 2 }", {" !! "}), ElementsAre(0, 0));
}

TEST(TextLayers, MasksHaveIndexZeroOrCountNowhere) {
  const std::string lookup = "string_lookup { vocabulary: ['a', 'b'] mask_token: '' ";
  EXPECT_THAT(Given(lookup + "}", {"", "z", "b"}), ElementsAre(0, 1, 3));
  EXPECT_THAT(Given(lookup + "output_mode: COUNT }", {"", "z", "b"}), ElementsAre(1, 0, 1));
}

// The examples of Keras' documentation of Hashing and HashedCrossing, whose second feature is numbers.
TEST(TextLayers, HashAsKerasDocuments) {
  const std::vector<std::string> letters = {"A", "B", "C", "D", "E"};
  EXPECT_THAT(Given("hashing { num_bins: 3 }", letters), ElementsAre(1, 0, 1, 1, 2));
  EXPECT_THAT(Given("hashing { num_bins: 3 mask_value: '' }", {"A", "B", "", "C", "D"}), ElementsAre(1, 1, 0, 2, 2));
  EXPECT_THAT(Given("hashing { num_bins: 3 salt: [133, 137] }", letters), ElementsAre(1, 2, 1, 0, 2));
  EXPECT_THAT(Given("hashing { num_bins: 3 salt: 133 }", letters), ElementsAre(0, 0, 2, 1, 0));
  const auto graph = Graph::Build(FromText<v1::Model>(
      "layers { name: 'a' input { text: true shape: 1 } } layers { name: 'n' input { shape: 1 } } layers { inputs: "
      "['a', 'n'] hashed_crossing { num_bins: 5 } }"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const TextFunction crossing(graph->output());
  std::vector<float> bins;
  for (const auto& [text, number] :
       std::vector<std::pair<std::string, double>>{{"A", 101}, {"B", 101}, {"A", 101}, {"B", 102}, {"A", 102}}) {
    ASSERT_TRUE(crossing.Write({{true, text, 0}, {false, "", number}}, &bins.emplace_back()).ok());
  }
  EXPECT_THAT(bins, ElementsAre(1, 4, 1, 1, 3));
  float bin = 0;
  EXPECT_THAT(std::string(crossing.Write({{true, "A", 0}, {false, "", 1.5}}, &bin).message()),
              HasSubstr("layer \"hashed_crossing\": 1.5 is not a whole number"));
}

TEST(TextLayers, ATokenWithoutAnIndexIsNamed) {
  const auto graph = Build("string_lookup { vocabulary: 'a' num_oov_indices: 0 }", "shape: 1");
  ASSERT_TRUE(graph.ok()) << graph.status();
  float y = 0;
  EXPECT_EQ(
      TextFunction(graph->output()).Write({{true, "b\n", 0}}, &y).message(),
      "layer \"y\": \"b\\n\" is not in the vocabulary, and num_oov_indices is 0; add it, or set num_oov_indices to "
      "1");
}

TEST(TextLayers, WhatDoesNotFitIsRefused) {
  const std::string words = "text_vectorization { vocabulary: 'a' ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"string_lookup {}", "vocabulary is empty; give its tokens, or let `cairn data adapt` find them"},
      {"string_lookup { vocabulary: ['a', 'b', 'a'] }", "vocabulary holds \"a\" twice"},
      {"string_lookup { vocabulary: ['a', '[UNK]'] }", "vocabulary holds \"[UNK]\", the oov_token, among its tokens"},
      {"string_lookup { vocabulary: 'a' mask_token: '[UNK]' }", "mask_token [UNK] is the oov_token too"},
      {"string_lookup { vocabulary: ['a', 'b'] max_tokens: 2 }", "vocabulary has 3 tokens with those in front, more"},
      {"string_lookup { vocabulary: 'a' output_mode: TF_IDF }", "idf_weights has 0 numbers, vocabulary 1 tokens"},
      {words + "}", "output_sequence_length is missing"},
      {words + "output_sequence_length: 0 }", "output_sequence_length 0 is not positive"},
      {words + "output_sequence_length: 3 output_mode: COUNT }", "output_sequence_length is for output_mode INT"},
      {words + "output_mode: ONE_HOT }", "output_mode: the layer has no ONE_HOT; use INT, MULTI_HOT, COUNT, TF_IDF"},
      {words + "output_sequence_length: 3 ngrams: 0 }", "ngrams: 0 is not within 1 .. 16"},
      {"text_vectorization { output_sequence_length: 3 }", "vocabulary is empty"},
      {"text_vectorization { vocabulary: ['a', ''] output_sequence_length: 3 }",
       "vocabulary holds \"\", the mask_token"},
      {"embedding { input_dim: 3 output_dim: 2 }", "its input \"x\" is texts, and an embedding takes numbers; put a"},
      {"integer_lookup { vocabulary: 1 }", "its input \"x\" is texts, and an integer_lookup takes numbers"},
      {"flatten {}", "its input \"x\" is texts, and a flatten takes numbers"},
  };
  for (const auto& [layer, error] : cases) {
    EXPECT_THAT(ErrorOf(layer), HasSubstr("layer \"y\": " + error)) << layer;
  }
  EXPECT_THAT(ErrorOf(words + "output_sequence_length: 3 }", "shape: 2"), HasSubstr("it splits one text"));
  EXPECT_THAT(ErrorOf(words + "split: NO_SPLIT ngrams: 1 output_sequence_length: 3 }", ""),
              HasSubstr("has the shape []; give it [1]"));
  EXPECT_THAT(ErrorOf("string_lookup { vocabulary: 'a' }", ""),
              HasSubstr("its input \"x\" has the shape []; give it [1]"));
  EXPECT_THAT(ErrorOf("string_lookup { vocabulary: 'a' }", "shape: [2, 3]"),
              HasSubstr("an input of texts has [] or [columns]"));
  const auto numbers = Graph::Build(
      FromText<v1::Model>("layers { name: 'x' input { shape: 1 } } layers { string_lookup { vocabulary: '1' } }"));
  EXPECT_THAT(std::string(numbers.status().message()),
              HasSubstr("layer \"string_lookup\": its input \"x\" is numbers, and a string_lookup takes texts"));
  const auto output = Graph::Build(
      FromText<v1::Model>("layers { name: 'x' input { text: true shape: 1 } } layers { name: 'y' hashing { "
                          "num_bins: 3 } } outputs: ['x', 'y']"));
  EXPECT_THAT(std::string(output.status().message()), HasSubstr("layer \"x\": its texts are an output of the model"));
}

// Texts are gone, with a number that is only crossed with one; offsets, inputs, masks, shares and variables follow.
TEST(TextLayers, WhatIsComputedHasNoTexts) {
  const auto graph = Graph::Build(FromText<v1::Model>(R"(
    layers { name: "age" input { shape: 2 } }
    layers { name: "title" input { text: true } }
    layers { name: "city" input { text: true shape: 1 } }
    layers { name: "year" input { shape: 1 } }
    layers { name: "words" inputs: "title" text_vectorization { vocabulary: ["a", "b"] output_sequence_length: 4 } }
    layers { name: "vectors" inputs: "words" embedding { input_dim: 4 output_dim: 3 mask_zero: true } }
    layers { name: "mean" global_average_pooling1d {} }
    layers { name: "place" inputs: "city" string_lookup { vocabulary: ["x", "y"] output_mode: ONE_HOT } }
    layers { name: "crossed" inputs: ["city", "year"] hashed_crossing { num_bins: 7 output_mode: ONE_HOT } }
    layers { name: "first" inputs: "age" dense { units: 3 } }
    layers { name: "second" inputs: "age" shares: "first" }
    layers { name: "all" inputs: ["mean", "place", "crossed", "first", "second"] concatenate {} }
    layers { name: "out" dense { units: 1 } })"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(ModelInputShape(*graph), Shape{5});  // two numbers, two texts, a number
  const Graph computed = ComputedGraph(*graph);
  std::vector<std::string> inputs;
  for (const int id : computed.inputs()) inputs.push_back(computed.nodes()[static_cast<size_t>(id)].name);
  EXPECT_THAT(inputs, ElementsAre("age", "words", "place", "crossed"));
  EXPECT_EQ(ModelInputShape(computed), Shape{2 + 4 + 3 + 7});
  EXPECT_EQ(computed.nodes().size(), graph->nodes().size() - 3);
  for (size_t i = 0; i < computed.nodes().size(); ++i) {
    const Node& node = computed.nodes()[i];
    EXPECT_EQ(node.id, static_cast<int>(i));
    EXPECT_FALSE(OfTexts(node)) << node.name;
    for (const int input : node.inputs) EXPECT_LT(input, node.id) << node.name;
    for (const int v : node.variables) {
      const Node& owner = computed.nodes()[static_cast<size_t>(node.shares < 0 ? node.id : node.shares)];
      EXPECT_EQ(computed.variables()[static_cast<size_t>(v)].node, owner.id) << node.name;
    }
    if (node.name == "second") {
      EXPECT_EQ(computed.nodes()[static_cast<size_t>(node.shares)].name, "first");
    }
    if (node.name == "vectors") {
      EXPECT_EQ(node.mask, node.id);
    }
    if (node.name == "place") {
      EXPECT_EQ(node.input_offset, 6);
    }
  }
  ASSERT_EQ(computed.variables().size(), graph->variables().size());
  for (size_t v = 0; v < computed.variables().size(); ++v) {
    EXPECT_EQ(computed.variables()[v].name, graph->variables()[v].name);
    EXPECT_EQ(computed.variables()[v].offset, graph->variables()[v].offset);
  }
  EXPECT_EQ(computed.space_size(), graph->space_size());
  EXPECT_EQ(computed.output().name, "out");
}

}  // namespace
}  // namespace cairn
