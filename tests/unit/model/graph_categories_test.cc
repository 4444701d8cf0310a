// Goal: layers of categories get the shapes that Keras gives them, their defaults too, and what does not fit is refused
// by the field's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/graph.h"
#include "common/model/vocabulary.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<Graph> Build(const std::string& layer, const std::string& shape) {
  return Graph::Build(FromText<v1::Model>(
      absl::StrCat("layers { name: 'x' input { shape: ", shape, " } } layers { name: 'y' inputs: 'x' ", layer, " }")));
}

Shape ShapeOf(const std::string& layer, const std::string& shape) {
  const absl::StatusOr<Graph> graph = Build(layer, shape);
  EXPECT_TRUE(graph.ok()) << layer << ": " << graph.status();
  return graph.ok() ? graph->output().output : Shape{};
}

std::string ErrorOf(const std::string& layer, const std::string& shape = "4") {
  const absl::StatusOr<Graph> graph = Build(layer, shape);
  return graph.ok() ? "accepted" : std::string(graph.status().message());
}

TEST(GraphCategories, HaveTheShapesOfKeras) {
  EXPECT_THAT(ShapeOf("discretization { bin_boundaries: [0, 1] }", "[2, 3]"), ElementsAre(2, 3));
  EXPECT_THAT(ShapeOf("discretization { bin_boundaries: [0, 1] output_mode: ONE_HOT }", "[2, 3]"),
              ElementsAre(2, 3, 3));
  EXPECT_THAT(ShapeOf("discretization { bin_boundaries: [0, 1] output_mode: COUNT }", "7"), ElementsAre(3));
  EXPECT_THAT(ShapeOf("category_encoding { num_tokens: 9 }", "7"), ElementsAre(9));
  EXPECT_THAT(ShapeOf("category_encoding { num_tokens: 9 output_mode: ONE_HOT }", "1"), ElementsAre(9));
  EXPECT_THAT(ShapeOf("category_encoding { num_tokens: 9 output_mode: ONE_HOT }", "[5, 1]"), ElementsAre(5, 9));
  EXPECT_THAT(ShapeOf("hashing { num_bins: 9 }", "[2, 3]"), ElementsAre(2, 3));
  EXPECT_THAT(ShapeOf("integer_lookup { vocabulary: [3, 4] }", "5"), ElementsAre(5));
  const std::string tokens = "integer_lookup { vocabulary: [3, 4] mask_token: 0 num_oov_indices: 2 output_mode: ";
  EXPECT_THAT(ShapeOf(tokens + "COUNT }", "5"), ElementsAre(4));  // the mask token counts nowhere
  EXPECT_THAT(ShapeOf(tokens + "MULTI_HOT max_tokens: 10 }", "5"), ElementsAre(4));
  EXPECT_THAT(ShapeOf(tokens + "MULTI_HOT max_tokens: 10 pad_to_max_tokens: true }", "5"), ElementsAre(10));
}

// Indices computed by hand from Keras' documentation of IntegerLookup.
TEST(GraphCategories, TokensHaveTheirIndices) {
  VocabularyOptions<int64_t> options;
  options.tokens = {12, 36, 1138};
  options.mask_token = 0;
  options.oov_token = -1;
  const auto indices = [&](std::vector<int64_t> tokens) {
    const auto vocabulary = Vocabulary<int64_t>::Make(options);
    EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
    for (int64_t& token : tokens) token = vocabulary->Find(token).value_or(-100);
    return tokens;
  };
  EXPECT_THAT(indices({0, 12, 36, 1138, 7}), ElementsAre(0, 2, 3, 4, 1));
  options.num_oov_indices = 2;
  EXPECT_THAT(indices({0, 12, 7, 8, -3}), ElementsAre(0, 3, 2, 1, 2));
  options.mode = v1::COUNT;
  EXPECT_THAT(indices({0, 12, 7, 8}), ElementsAre(kNoCategory, 2, 1, 0));
  options.num_oov_indices = 0;
  EXPECT_THAT(indices({12, 7}), ElementsAre(0, -100));
}

TEST(GraphCategories, WhatDoesNotFitIsRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"discretization {}", "bin_boundaries are missing; give them"},
      {"discretization { bin_boundaries: [1, 0] }", "bin_boundaries: 0 follows 1; give them rising"},
      {"discretization { bin_boundaries: [inf] }", "bin_boundaries inf is not finite"},
      {"discretization { bin_boundaries: [0, 1] num_bins: 4 }", "num_bins 4 with 2 bin_boundaries"},
      {"discretization { bin_boundaries: [0] epsilon: -1 }", "epsilon -1 is not a number from 0"},
      {"discretization { bin_boundaries: [0] output_mode: TF_IDF }", "output_mode: the layer has no TF_IDF; use INT"},
      {"category_encoding {}", "num_tokens 0 is not positive; use a number such as 10"},
      {"category_encoding { num_tokens: 20000000 }", "num_tokens 20000000 is too large"},
      {"category_encoding { num_tokens: 2 output_mode: INT }", "use MULTI_HOT, ONE_HOT, COUNT"},
      {"hashing { num_bins: -3 }", "num_bins -3 is not positive"},
      {"hashing { num_bins: 3 salt: [1, 2, 3] }", "salt has 3 numbers"},
      {"hashing { num_bins: 3 mask_value: 'none' }", "mask_value none is not a whole number"},
      {"integer_lookup {}", "vocabulary is empty; give its tokens"},
      {"integer_lookup { vocabulary: [3, 4, 3] }", "vocabulary holds 3 twice"},
      {"integer_lookup { vocabulary: [3, 0] mask_token: 0 }", "vocabulary holds 0, the mask_token, among its tokens"},
      {"integer_lookup { vocabulary: [3, -1] }", "vocabulary holds -1, the oov_token"},
      {"integer_lookup { vocabulary: 16777217 }", "vocabulary: 16777217 is beyond 16777216"},
      {"integer_lookup { vocabulary: 3 num_oov_indices: -1 }", "num_oov_indices -1 is not in [0, "},
      {"integer_lookup { vocabulary: [3, 4] max_tokens: 2 }", "vocabulary has 3 tokens with those in front, more than"},
      {"integer_lookup { vocabulary: 3 pad_to_max_tokens: true output_mode: COUNT }", "max_tokens is missing"},
      {"integer_lookup { vocabulary: 3 output_mode: TF_IDF }", "idf_weights has 0 numbers, vocabulary 1 tokens"},
      {"integer_lookup { vocabulary: 3 idf_weights: 1 }", "idf_weights are for output_mode TF_IDF"},
      {"integer_lookup { vocabulary: 3 mask_token: -1 }", "mask_token -1 is the oov_token too"},
  };
  for (const auto& [layer, error] : cases) {
    EXPECT_THAT(ErrorOf(layer), HasSubstr(error)) << layer;
    EXPECT_THAT(ErrorOf(layer), HasSubstr("layer \"y\": ")) << layer;
  }
  EXPECT_THAT(ErrorOf("category_encoding { num_tokens: 3 }", "[2, 3]"),
              HasSubstr("output_mode MULTI_HOT: its input is [2,3]; it takes [categories]"));
  EXPECT_THAT(ErrorOf("category_encoding { num_tokens: 3 output_mode: ONE_HOT }", "[2, 3, 4, 5]"),
              HasSubstr("output_mode ONE_HOT: its input is [2,3,4,5]"));
  EXPECT_THAT(ErrorOf("hashed_crossing { num_bins: 3 }"), HasSubstr("inputs"));
}

}  // namespace
}  // namespace cairn
