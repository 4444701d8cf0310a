// Goal: the states that are computed of data are those of Keras' adapt(): the order of vocabularies with its ties,
// document frequencies, quantiles, means; what cannot be adapted is refused by the layer's name.
#include "common/data/adapt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/data/layer_state.h"
#include "common/model/graph.h"
#include "tests/unit/data/data_files.h"
#include "tests/unit/data/open_dataset.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

absl::StatusOr<v1::Model> Adapt(const std::string& model, const std::vector<std::string>& paths,
                                const std::string& data = "") {
  v1::JobSpec spec;
  *spec.mutable_model() = FromText<v1::Model>(model);
  *spec.mutable_data() = FromText<v1::Data>(data);
  CAIRN_ASSIGN_OR_RETURN(const std::set<std::string> names, HoldPlaces(spec.mutable_model()));
  CAIRN_RETURN_IF_ERROR(AdaptModel(names, paths, &spec).status());
  return spec.model();
}

std::vector<std::string> Words(const v1::Layer& layer) {
  const auto& tokens =
      layer.has_string_lookup() ? layer.string_lookup().vocabulary() : layer.text_vectorization().vocabulary();
  return {tokens.begin(), tokens.end()};
}

const v1::Layer& Last(const absl::StatusOr<v1::Model>& model) { return *model->layers().rbegin(); }

constexpr char kText[] = "layers { name: 't' input { text: true shape: 1 } } layers { name: 'l' ";

// Keras' documentation: [["a", "c", "d"], ["d", "z", "b"]] gives d, z, c, b, a.
TEST(Adapt, EquallyFrequentTokensFromTheLargestOn) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "a,c,d,0\nd,z,b,1\n");
  const auto model =
      Adapt("layers { name: 't' input { text: true shape: 3 } } layers { string_lookup {} }", {dir / "d.csv"});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Words(Last(model)), ElementsAre("d", "z", "c", "b", "a"));
  // Likewise for whole numbers: [[12, 1138, 42], [42, 1000, 36]].
  WriteFile(dir / "n.csv", "12,1138,42,0\n42,1000,36,1\n");
  const auto numbers = Adapt("layers { name: 't' input { shape: 3 } } layers { integer_lookup {} }", {dir / "n.csv"});
  ASSERT_TRUE(numbers.ok()) << numbers.status();
  EXPECT_THAT(Last(numbers).integer_lookup().vocabulary(), ElementsAre(42, 1138, 1000, 36, 12));
}

// The tokens that stand for none are left out, and max_tokens counts them: two with INT, one otherwise.
TEST(Adapt, VocabulariesOfTexts) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "said,y\n\"The cat, the DOG\",0\nthe cat [UNK],1\nA dog!,0\n,1\n");
  const std::string layer = std::string(kText) + "text_vectorization { ";
  const auto words = [&](const std::string& fields) {
    const auto model = Adapt(layer + fields + " } }", {dir / "d.csv"});
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? Words(Last(model)) : std::vector<std::string>();
  };
  const std::string length = "output_sequence_length: 5 ";
  EXPECT_THAT(words(length), ElementsAre("the", "dog", "cat", "unk", "a"));  // the brackets are punctuation
  EXPECT_THAT(words(length + "max_tokens: 4"), ElementsAre("the", "dog"));
  EXPECT_THAT(words("output_mode: COUNT max_tokens: 4"), ElementsAre("the", "dog", "cat"));
  EXPECT_THAT(words(length + "standardize: LOWER"), ElementsAre("the", "dog!", "dog", "cat,", "cat", "a", "[unk]"))
      << "[unk] is another token than [UNK]";
}

TEST(Adapt, WeightsOfDocuments) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "said,y\na a b,0\na,1\nc,1\n");
  const auto model =
      Adapt(std::string(kText) + "text_vectorization { output_mode: TF_IDF } }", {dir / "d.csv", dir / "d.csv"});
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Words(Last(model)), ElementsAre("a", "c", "b"));
  // log(1 + documents / (1 + documents with the token)) of six documents
  EXPECT_THAT(
      Last(model).text_vectorization().idf_weights(),
      ElementsAre(FloatEq(std::log(1 + 6.0 / 5)), FloatEq(std::log(1 + 6.0 / 3)), FloatEq(std::log(1 + 6.0 / 3))));
  EXPECT_TRUE(Graph::Build(*model).ok());
}

// Keras' documentation: [[-1.5, 1.0, 3.4, .5], [0.0, 3.0, 1.3, 0.0]] in 4 bins lie in [0, 2, 3, 2], [1, 3, 3, 1].
TEST(Adapt, BinsAsKerasDocuments) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "-1.5,1.0,3.4,.5,0\n0.0,3.0,1.3,0.0,1\n");
  const auto model =
      Adapt("layers { name: 't' input { shape: 4 } } layers { name: 'l' discretization { num_bins: 4 epsilon: 0.01 } }",
            {dir / "d.csv"});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto& boundaries = Last(model).discretization().bin_boundaries();
  EXPECT_EQ(boundaries.size(), 3);
  std::vector<int> bins;
  for (const float x : {-1.5f, 1.0f, 3.4f, .5f, 0.0f, 3.0f, 1.3f, 0.0f}) {
    bins.push_back(static_cast<int>(std::upper_bound(boundaries.begin(), boundaries.end(), x) - boundaries.begin()));
  }
  EXPECT_THAT(bins, ElementsAre(0, 2, 3, 2, 1, 3, 3, 1));
}

// Of 1000 numbers 0 .. 999 Keras 3's summary with epsilon 0.01 takes 10, 20, ..., 990 (values[10::10], each of weight
// 10). Of these 99 the quarters by cumulative weight lie at 24.75 values: between 250 and 240 in three quarters.
TEST(Adapt, BinsOfManyNumbers) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 1000);
  EXPECT_THAT(QuantileBoundaries(values, 0.01, 4), ElementsAre(247.5f, 495.0f, 742.5f));
  EXPECT_THAT(QuantileBoundaries({5}, 0.01, 3), ElementsAre());  // fewer numbers than bins
  EXPECT_THAT(QuantileBoundaries({5, 6}, 0.01, 3), ElementsAre(5));
}

TEST(Adapt, MeansOfAxes) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "0,7,4,0\n2,9,6,1\n0,7,4,0\n2,9,6,1\n");  // Keras' documentation: means 1, 8, 5
  const std::string input = "layers { name: 't' input { shape: 3 } } layers { name: 'l' normalization { ";
  const auto each = Adapt(input + "} }", {dir / "d.csv"});
  ASSERT_TRUE(each.ok()) << each.status();
  EXPECT_THAT(Last(each).normalization().mean(), ElementsAre(1, 8, 5));
  EXPECT_THAT(Last(each).normalization().variance(), ElementsAre(1, 1, 1));
  const auto all = Adapt(input + "all: true } }", {dir / "d.csv"});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(Last(all).normalization().mean(), ElementsAre(FloatEq(14.0f / 3)));
  EXPECT_THAT(Last(all).normalization().variance(), ElementsAre(FloatEq(1 + 74.0f / 9)));  // of 1, 8, 5, and 1 within
}

// Only what lacks its state is adapted, in a model with layers behind it, and with inputs that no such layer takes.
TEST(Adapt, OfAModelWithOtherLayers) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "age,said,town,y\n3,a b,x,0\n5,b,y,1\n");
  const auto model = Adapt(R"(
      layers { name: "said" input { text: true shape: 1 } }
      layers { name: "town" input { text: true shape: 1 } }
      layers { name: "age" input { shape: 1 } }
      layers { inputs: "said" text_vectorization { output_mode: COUNT } }
      layers { name: "towns" inputs: "town" string_lookup { vocabulary: ["z"] output_mode: ONE_HOT } }
      layers { name: "scaled" inputs: "age" normalization {} }
      layers { inputs: ["text_vectorization", "towns", "scaled"] concatenate {} }
      layers { dense { units: 1 } })",
                           {dir / "d.csv"},
                           "inputs { input: 'said' columns: 'said' } inputs { input: 'town' columns: 'town' } inputs { "
                           "input: 'age' columns: 'age' }");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Words(model->layers(3)), ElementsAre("b", "a"));
  EXPECT_THAT(Words(model->layers(4)), ElementsAre("z"));
  EXPECT_THAT(model->layers(5).normalization().mean(), ElementsAre(4));
  EXPECT_TRUE(Graph::Build(*model).ok());
}

TEST(Adapt, WhatCannotBeIsRefused) {
  TempFolder dir;
  WriteFile(dir / "d.csv", "said,y\n,0\n  ,1\n");
  WriteFile(dir / "n.csv", "1.5,0\n2,1\n");
  const auto error = [&](const std::string& model, const std::string& file) {
    return std::string(Adapt(model, {dir / file}).status().message());
  };
  EXPECT_THAT(error(std::string(kText) + "text_vectorization { output_mode: COUNT } }", "d.csv"),
              HasSubstr("layer \"l\": the data has no token"));
  EXPECT_THAT(error("layers { name: 't' input { shape: 1 } } layers { name: 'l' integer_lookup {} }", "n.csv"),
              HasSubstr("layer \"l\": example 0: 1.5 is not a whole number"));
  EXPECT_THAT(
      error("layers { name: 't' input { shape: 1 } } layers { name: 'd' dense { units: 1 } } layers { name: 'l' "
            "normalization {} }",
            "n.csv"),
      HasSubstr("layer \"l\": its input \"d\" is a layer's; only layers that take the model's inputs are adapted"));
  EXPECT_THAT(error("layers { name: 't' input { shape: 3 } } layers { name: 'l' normalization {} }", "n.csv"),
              HasSubstr("an example of " + dir.path()));
  EXPECT_THAT(error(std::string(kText) + "string_lookup { max_tokens: 1 } }", "d.csv"), HasSubstr("max_tokens"));
}

}  // namespace
}  // namespace cairn
