// Goal: what Keras writes of its layers of categories is taken as Keras means it, in both dialects, comes back from a
// description as it went in, and what Cairn lacks is refused by the option's and the layer's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/formats/keras_archive.h"
#include "common/formats/keras_model.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A Sequential model of Keras 2 with the layer behind an input.
absl::StatusOr<KerasModel> ReadKeras2(const std::string& type, const std::string& config) {
  return ReadKerasModel(Keras2Sequential(KerasLayerText(type, "\"name\": \"l\", \"dtype\": \"int64\", " + config)));
}

// The same in Keras 3, of an input [4].
absl::StatusOr<KerasModel> ReadKeras3(const std::string& type, const std::string& config) {
  return ReadKerasModel(Keras3Functional(
      Keras3Input("image", "[null, 4]") + ", " + Keras3Node(type, "l", config, Keras3Tensor("image")), "l"));
}

std::string TextOf(const absl::StatusOr<KerasModel>& read) {
  return read.ok() ? read->model.layers(1).ShortDebugString() : std::string(read.status().message());
}

TEST(KerasCategories, ConfigsOfBothDialects) {
  struct Case {
    std::string type, config, text;
  };
  const std::vector<Case> cases = {
      {"Discretization",
       R"("bin_boundaries": [0.5, 1.0], "num_bins": null, "epsilon": 0.01, "output_mode": "int", "sparse": false)",
       "discretization { bin_boundaries: 0.5 bin_boundaries: 1 output_mode: INT }"},
      {"CategoryEncoding", R"("num_tokens": 7, "output_mode": "multi_hot")",
       "category_encoding { num_tokens: 7 output_mode: MULTI_HOT }"},
      {"Hashing", R"("num_bins": 5, "salt": [133, 137], "mask_value": "3", "output_mode": "one_hot", "sparse": false)",
       R"(hashing { num_bins: 5 mask_value: "3" salt: 133 salt: 137 output_mode: ONE_HOT })"},
      {"Hashing", R"("num_bins": 5, "salt": 133, "mask_value": -3)",
       R"(hashing { num_bins: 5 mask_value: "-3" salt: 133 })"},
      {"IntegerLookup",
       R"("invert": false, "max_tokens": 9, "num_oov_indices": 2, "oov_token": -1, "mask_token": null, "output_mode":
       "tf_idf", "sparse": false, "pad_to_max_tokens": true, "vocabulary_dtype": "int64", "idf_weights": [0.5, 1.5],
       "vocabulary": [3, 12345678901], "vocabulary_size": 4)",
       "integer_lookup { vocabulary: 3 vocabulary: 12345678901 num_oov_indices: 2 oov_token: -1 max_tokens: 9 "
       "output_mode: TF_IDF idf_weights: 0.5 idf_weights: 1.5 pad_to_max_tokens: true }"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(TextOf(ReadKeras2(c.type, c.config)), "name: \"l\" inputs: \"input_1\" " + c.text);
    EXPECT_EQ(TextOf(ReadKeras3(c.type, c.config)), "name: \"l\" inputs: \"image\" " + c.text);
  }
}

TEST(KerasCategories, WhatIsLackedIsRefused) {
  struct Case {
    std::string type, config, error;
  };
  const std::vector<Case> cases = {
      {"Discretization", R"("bin_boundaries": ["a"])", "bin_boundaries: \"a\" is not a number"},
      {"Discretization", R"("bin_boundaries": [1], "sparse": true)", "sparse: true"},
      {"CategoryEncoding", R"("num_tokens": 7, "output_mode": "binary")", "output_mode: binary is not known"},
      {"Hashing", R"("num_bins": 5, "salt": [1, 2, 3])", "salt: [1,2,3] is not one or two numbers"},
      {"Hashing", R"("num_bins": 5, "salt": -1)", "salt: -1 is not a whole number from 0"},
      {"IntegerLookup", R"("vocabulary": [1], "invert": true)",
       "invert: true is not supported; leave it out: it gives tokens for indices"},
      {"IntegerLookup", R"("vocabulary": "tokens.txt")", "vocabulary: \"tokens.txt\" is not a list of whole numbers"},
      {"IntegerLookup", R"("vocabulary": [1, "b"])", "vocabulary: \"b\" is not a whole number"},
      {"Dense", R"("units": 3)", "dtype: \"int64\" is not supported"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(TextOf(ReadKeras2(c.type, c.config)), HasSubstr(c.error)) << c.type;
    EXPECT_THAT(TextOf(ReadKeras2(c.type, c.config)), HasSubstr("layer \"l\" (" + c.type + "): ")) << c.type;
  }
}

// Every field, with values that are not its default.
TEST(KerasCategories, ComeBackAsTheyWere) {
  const std::vector<std::string> layers = {
      "discretization { bin_boundaries: [-1.5, 0.1, 2] epsilon: 0.5 }",
      "discretization { bin_boundaries: [0.1, 2] num_bins: 3 output_mode: ONE_HOT }",
      "discretization { bin_boundaries: 3 output_mode: MULTI_HOT }",
      "discretization { bin_boundaries: 3 output_mode: COUNT }",
      "category_encoding { num_tokens: 7 }",
      "category_encoding { num_tokens: 7 output_mode: COUNT }",
      "category_encoding { num_tokens: 7 output_mode: ONE_HOT }",
      "hashing { num_bins: 5 }",
      "hashing { num_bins: 5 mask_value: '4' salt: [7, 18446744073709551615] output_mode: COUNT }",
      "integer_lookup { vocabulary: [4, -7] }",
      "integer_lookup { vocabulary: [4, -7] num_oov_indices: 0 mask_token: 3 oov_token: 5 max_tokens: 6 }",
      "integer_lookup { vocabulary: [4, -7] output_mode: TF_IDF idf_weights: [0.25, 0.3] }",
      "integer_lookup { vocabulary: 4 output_mode: COUNT max_tokens: 6 pad_to_max_tokens: true }",
      "hashed_crossing { num_bins: 9 } inputs: ['y', 'z']",
      "hashed_crossing { num_bins: 9 output_mode: ONE_HOT } inputs: ['y', 'z']",
  };
  for (const std::string& layer : layers) {
    SCOPED_TRACE(layer);
    const auto model = FromText<v1::Model>(
        "layers { name: 'x' input { shape: 1 } } layers { name: 'y' dense { units: 1 } } layers { name: 'z' inputs: "
        "'x' dense { units: 1 } } layers { name: 'sum' inputs: ['y', 'z'] add {} } layers { name: 'l' " +
        layer + " }");
    v1::Model used = model;
    if (used.layers(4).inputs_size() == 2) used.mutable_layers()->DeleteSubrange(3, 1);
    const auto graph = Graph::Build(used);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto written = KerasModelJson("m", *graph);
    ASSERT_TRUE(written.ok()) << written.status();
    const auto read = ReadKerasModel(*written);
    ASSERT_TRUE(read.ok()) << read.status();
    const auto again = Graph::Build(read->model);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->output().layer.DebugString(), graph->output().layer.DebugString());
  }
}

TEST(KerasCategories, IndicesAreWholeNumbersInKeras) {
  const auto graph = Graph::Build(FromText<v1::Model>(
      "layers { input { shape: 4 } } layers { hashing { num_bins: 5 salt: 3 } } layers { category_encoding { "
      "num_tokens: 5 } }"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::string json = KerasModelJson("m", *graph).value();
  EXPECT_THAT(json, HasSubstr("\"dtype\":\"int64\""));
  EXPECT_THAT(json, HasSubstr("\"salt\":[3,3]"));
}

}  // namespace
}  // namespace cairn
