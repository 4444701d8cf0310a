// Goal: the oneDNN backend's NodeGroups join exactly the layers whose work another operation can do: never one whose
// input is also read elsewhere, and in training none whose backward pass would need what was overwritten.
#include <gtest/gtest.h>

#include "tests/unit/backend/named_graph.h"
#include "worker/backend/onednn/node_groups.h"

namespace cairn::onednn {
namespace {

constexpr char kInput[] = "layers { name: 'in' input { shape: [6, 6, 2] } } ";
constexpr char kOutput[] = "layers { name: 'flat' flatten {} } layers { name: 'out' dense { units: 3 } }";

std::string Model(const std::string& middle) { return kInput + middle + kOutput; }

TEST(OnednnNodeGroupsTest, AnActivationGoesWithTheLayerBeforeIt) {
  const NamedGraph model(
      Model("layers { name: 'conv' conv2d { filters: 3 kernel_size: 3 } } "
            "layers { name: 'relu' activation { activation: RELU } } "));
  const NodeGroups groups(model.graph(), {}, Mode::kTrain);
  EXPECT_TRUE(groups.Joined(model["relu"]));
  EXPECT_FALSE(groups.Joined(model["conv"]));
  EXPECT_EQ(groups.JoinedActivationLayer(model["conv"]), &model["relu"]);
  EXPECT_EQ(groups.ActivationWithJoined(model["conv"]).kind, v1::RELU);
  EXPECT_TRUE(groups.ActivationOf(model["conv"]).linear());
  EXPECT_TRUE(groups.Joined(model["flat"])) << "only another name";
}

TEST(OnednnNodeGroupsTest, NotWhereTheLayerIsReadTwice) {
  const NamedGraph model(
      Model("layers { name: 'conv' conv2d { filters: 2 kernel_size: 1 } } "
            "layers { name: 'relu' activation { activation: RELU } } "
            "layers { name: 'sum' inputs: ['conv', 'relu'] add {} } "));
  const NodeGroups groups(model.graph(), {}, Mode::kTrain);
  EXPECT_FALSE(groups.Joined(model["relu"]));
  EXPECT_EQ(groups.JoinedActivationLayer(model["conv"]), nullptr);
  EXPECT_EQ(groups.ReadersOf(model["conv"]).size(), 2u);
}

TEST(OnednnNodeGroupsTest, ALayerWithAnActivationOfItsOwnTakesNoOther) {
  const NamedGraph model(
      Model("layers { name: 'conv' conv2d { filters: 2 kernel_size: 1 activation: TANH } } "
            "layers { name: 'relu' activation { activation: RELU } } "));
  const NodeGroups groups(model.graph(), {}, Mode::kTrain);
  EXPECT_FALSE(groups.Joined(model["relu"]));
  EXPECT_EQ(groups.ActivationWithJoined(model["conv"]).kind, v1::TANH);
}

// The derivative of gelu needs x, which an operation that applies it to its own output overwrites.
TEST(OnednnNodeGroupsTest, WhatNeedsItsInputIsJoinedOutsideTrainingOnly) {
  const NamedGraph model(
      Model("layers { name: 'conv' conv2d { filters: 2 kernel_size: 1 } } "
            "layers { name: 'gelu' activation { activation: GELU } } "));
  EXPECT_FALSE(NodeGroups(model.graph(), {}, Mode::kTrain).Joined(model["gelu"]));
  EXPECT_TRUE(NodeGroups(model.graph(), {}, Mode::kPredict).Joined(model["gelu"]));
}

TEST(OnednnNodeGroupsTest, ANormalizationTakesReluAlone) {
  const std::string normalization = "layers { name: 'norm' batch_normalization {} } ";
  const NamedGraph relu(Model(normalization + "layers { name: 'f' activation { activation: RELU } } "));
  const NamedGraph tanh(Model(normalization + "layers { name: 'f' activation { activation: TANH } } "));
  EXPECT_TRUE(NodeGroups(relu.graph(), {}, Mode::kTrain).Joined(relu["f"]));
  EXPECT_FALSE(NodeGroups(tanh.graph(), {}, Mode::kTrain).Joined(tanh["f"]));
}

TEST(OnednnNodeGroupsTest, DropoutIsAnOperationInTrainingOnly) {
  const NamedGraph model(
      Model("layers { name: 'drop' dropout { rate: 0.5 } } layers { name: 'none' dropout {} } "
            "layers { name: 'off' training: false dropout { rate: 0.5 } } "));
  const NodeGroups train(model.graph(), {}, Mode::kTrain), predict(model.graph(), {}, Mode::kPredict);
  EXPECT_TRUE(train.Trains(model["drop"]));
  EXPECT_FALSE(train.Joined(model["drop"]));
  EXPECT_TRUE(train.Joined(model["none"])) << "its rate is 0";
  EXPECT_FALSE(train.Trains(model["off"]));
  EXPECT_TRUE(train.Joined(model["off"]));
  EXPECT_FALSE(predict.Trains(model["drop"]));
  EXPECT_TRUE(predict.Joined(model["drop"]));
}

TEST(OnednnNodeGroupsTest, PaddingGoesIntoTheWindowsThatFollow) {
  const NamedGraph conv(
      Model("layers { name: 'pad' zero_padding2d { padding: 1 } } "
            "layers { name: 'conv' conv2d { filters: 2 kernel_size: 3 } } "));
  const NodeGroups joined(conv.graph(), {}, Mode::kTrain);
  EXPECT_TRUE(joined.Joined(conv["pad"]));
  EXPECT_EQ(joined.JoinedPadding(conv["conv"]), &conv["pad"]);
  const NamedGraph pool(
      Model("layers { name: 'pad' zero_padding2d { padding: 1 } } "
            "layers { name: 'pool' max_pooling2d { pool_size: 2 } } "));
  const NodeGroups apart(pool.graph(), {}, Mode::kTrain);
  EXPECT_FALSE(apart.Joined(pool["pad"])) << "a maximum must see the zeros";
  EXPECT_EQ(apart.JoinedPadding(pool["pool"]), nullptr);
}

TEST(OnednnNodeGroupsTest, RescalingGoesWithTheInputThatNothingElseReads) {
  const NamedGraph first(Model("layers { name: 'scale' rescaling { scale: 0.5 } } "));
  EXPECT_EQ(NodeGroups(first.graph(), {}, Mode::kTrain).JoinedRescaling(first["in"]), &first["scale"]);
  const NamedGraph twice(
      Model("layers { name: 'scale' rescaling { scale: 0.5 } } "
            "layers { name: 'sum' inputs: ['in', 'scale'] add {} } "));
  EXPECT_EQ(NodeGroups(twice.graph(), {}, Mode::kTrain).JoinedRescaling(twice["in"]), nullptr);
}

TEST(OnednnNodeGroupsTest, TheLossTakesTheLastActivationExceptInPrediction) {
  const NamedGraph model(kInput + std::string("layers { name: 'flat' flatten {} } "
                                              "layers { name: 'out' dense { units: 3 activation: SOFTMAX } }"));
  LossPlan fused;
  fused.fused = fused.softmax = true;
  EXPECT_TRUE(NodeGroups(model.graph(), fused, Mode::kTrain).ActivationOf(model["out"]).linear());
  EXPECT_TRUE(NodeGroups(model.graph(), fused, Mode::kEvaluate).ActivationOf(model["out"]).linear());
  EXPECT_EQ(NodeGroups(model.graph(), fused, Mode::kPredict).ActivationOf(model["out"]).kind, v1::SOFTMAX);
  EXPECT_EQ(NodeGroups(model.graph(), {}, Mode::kTrain).ActivationOf(model["out"]).kind, v1::SOFTMAX);
}

}  // namespace
}  // namespace cairn::onednn
