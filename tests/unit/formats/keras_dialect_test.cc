// Goal: training=False on a Dropout, or training=True on a RandomFlip, is either what the user wrote or what an old
// Keras wrote unasked, which the description shows. Each case and its expected result is written down here.
#include "common/formats/keras_dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/formats/keras_model.h"
#include "tests/unit/formats/keras_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kGiven[] = R"("training": false)";

// A chain of what stands between the input [8, 8, 3] and a dense layer: class and keywords of the call.
struct Link {
  std::string type, keywords;
};

std::string Chain(const std::vector<Link>& links, const std::string& dense = "") {
  std::string layers = Keras3Input("image", "[null, 8, 8, 3]"), last = "image";
  for (const Link& link : links) {
    const std::string name = absl::StrCat(link.type, layers.size());
    absl::StrAppend(
        &layers, ",",
        Keras3Node(link.type, name, link.type == "Dropout" ? R"("rate": 0.5)" : "", Keras3Tensor(last), link.keywords));
    last = name;
  }
  absl::StrAppend(&layers, ",", Keras3Node("Flatten", "flat", "", Keras3Tensor(last)), ",",
                  Keras3Node("Dense", "out", absl::StrCat(R"("units": 2)", dense), Keras3Tensor("flat")));
  return Keras3Functional(layers, "out");
}

std::string OfVersion(const std::string& version, const std::string& json) {
  return absl::StrCat(R"({"keras_version": ")", version, R"(", )", json.substr(1));
}

// The dropouts that are left out, in order.
std::vector<int> Inferred(const std::string& json) {
  const absl::StatusOr<KerasModel> read = ReadKerasModel(json);
  EXPECT_TRUE(read.ok()) << read.status();
  std::vector<int> inferred;
  int place = 0;
  for (const v1::Layer& layer : read->model.layers()) {
    if (!layer.has_dropout()) continue;
    if (layer.has_training()) inferred.push_back(place);
    ++place;
  }
  return inferred;
}

TEST(KerasDialect, WithoutAnythingToTellByItIsUnasked) {
  EXPECT_THAT(Inferred(Chain({{"Dropout", kGiven}})), IsEmpty());
  EXPECT_THAT(Inferred(Chain({{"Dropout", kGiven}, {"ReLU", ""}, {"Dropout", kGiven}})), IsEmpty());
}

TEST(KerasDialect, ADropoutWithoutItShowsThatOthersWereGivenIt) {
  EXPECT_THAT(Inferred(Chain({{"Dropout", kGiven}, {"Dropout", ""}})), ElementsAre(0));
  EXPECT_THAT(Inferred(Chain({{"RandomFlip", ""}, {"Dropout", kGiven}})), ElementsAre(0));
}

TEST(KerasDialect, SoDoesABatchNormalizationWithoutAMask) {
  EXPECT_THAT(Inferred(Chain({{"BatchNormalization", ""}, {"Dropout", kGiven}})), ElementsAre(0));
  EXPECT_THAT(Inferred(Chain({{"BatchNormalization", R"("mask": null)"}, {"Dropout", kGiven}})), IsEmpty());
}

TEST(KerasDialect, TheVersionSaysItWhereItIsKnown) {
  const std::string json = Chain({{"Dropout", kGiven}});
  EXPECT_THAT(Inferred(OfVersion("3.10.0", json)), ElementsAre(0));
  EXPECT_THAT(Inferred(OfVersion("3.9.2", json)), IsEmpty());
  EXPECT_THAT(Inferred(OfVersion("4.0", json)), ElementsAre(0));
  EXPECT_THAT(Inferred(OfVersion("nightly", json)), IsEmpty());
  // Loaded and saved again by a later one.
  const std::string again = Chain({{"BatchNormalization", R"("mask": null)"}, {"Dropout", kGiven}});
  EXPECT_THAT(Inferred(OfVersion("3.12.0", again)), IsEmpty());
}

TEST(KerasDialect, SoDoesAnOptionThatLaterOnesWrite) {
  EXPECT_THAT(Inferred(Chain({{"Dropout", kGiven}}, R"(, "quantization_config": null)")), ElementsAre(0));
}

TEST(KerasDialect, ModelsInsideModelsShowItToo) {
  const std::string inner = absl::StrCat(Keras3Input("inner", "[null, 8, 8, 3]"), ",",
                                         Keras3Node("BatchNormalization", "bn", "", Keras3Tensor("inner")), ",",
                                         Keras3Node("Dropout", "drop", R"("rate": 0.5)", Keras3Tensor("bn"), kGiven));
  const std::string base =
      absl::StrReplaceAll(Keras3Functional(inner, "drop", R"([["inner", 0, 0]])"), {{R"("net")", R"("base")"}});
  const std::string json = Keras3Functional(
      absl::StrCat(Keras3Input("image", "[null, 8, 8, 3]"), ",", base.substr(0, base.size() - 1),
                   R"(, "name": "base", "inbound_nodes": [{"args": [)", Keras3Tensor("image"), R"(], "kwargs": {}}]},)",
                   Keras3Node("Dropout", "behind", R"("rate": 0.5)", Keras3Tensor("base"), kGiven), ",",
                   Keras3Node("Flatten", "flat", "", Keras3Tensor("behind")), ",",
                   Keras3Node("Dense", "out", R"("units": 2)", Keras3Tensor("flat"))),
      "out");
  EXPECT_THAT(Inferred(json), ElementsAre(0, 1));
}

TEST(KerasDialect, AnAugmentationThatWasAskedToGoOnWhenItIsEvaluatedIsRefused) {
  const std::string flips = R"("training": true)";
  EXPECT_TRUE(ReadKerasModel(Chain({{"RandomFlip", flips}})).ok());
  EXPECT_THAT(
      std::string(ReadKerasModel(Chain({{"RandomFlip", flips}, {"BatchNormalization", ""}})).status().message()),
      HasSubstr("(RandomFlip): it is called with training=true, which is not supported"));
}

// Anything that is not a model is not changed.
TEST(KerasDialect, WhatIsNoModelIsLeftAlone) {
  for (const char* text : {"null", "[]", "{}", R"({"config": []})", R"({"config": {"layers": [null, {}, []]}})",
                           R"({"config": {"layers": [{"inbound_nodes": [null, {}, {"kwargs": null}]}]}})",
                           R"({"config": {"layers": [{"class_name": 3, "inbound_nodes": [{"kwargs": {}}]}]}})",
                           R"({"keras_version": 3, "config": {"layers": {}}})"}) {
    const Json model = Json::parse(text);
    EXPECT_EQ(WithoutUnaskedArguments(model), model) << text;
  }
}

}  // namespace
}  // namespace cairn
