// Goal: the cuDNN backend's NodeGroups join exactly the layers that another one's launches compute: activations, the
// Add behind a batch normalization, the pads of a window; and never where the joined value is read elsewhere as well.
#include <gtest/gtest.h>

#include "common/model/inner_node.h"
#include "tests/unit/backend/named_graph.h"
#include "worker/backend/cudnn/node_groups.h"

namespace cairn::cudnn {
namespace {

constexpr char kInput[] = "layers { name: 'in' input { shape: [6, 6, 2] } } ";
constexpr char kOutput[] = "layers { name: 'flat' flatten {} } layers { name: 'out' dense { units: 3 } }";

std::string Model(const std::string& middle) { return kInput + middle + kOutput; }

LoweringOptions OptionsOf(Mode mode) {
  LoweringOptions options;
  options.examples = 4;
  options.mode = mode;
  return options;
}

// One that is kept beside its options: NodeGroups refers to them.
struct Groups {
  explicit Groups(const NamedGraph& model, Mode mode = Mode::kTrain)
      : options(OptionsOf(mode)), groups(model.graph(), options) {}
  const LoweringOptions options;
  const NodeGroups groups;
};

TEST(CudnnNodeGroupsTest, AnActivationGoesWithTheLayerBeforeIt) {
  const NamedGraph model(
      Model("layers { name: 'conv' conv2d { filters: 2 kernel_size: 1 } } "
            "layers { name: 'tanh' activation { activation: TANH } } "
            "layers { name: 'relu' activation { activation: RELU } } "));
  const Groups of(model);
  EXPECT_TRUE(of.groups.Joined(model["tanh"]));
  EXPECT_EQ(of.groups.ComputedBy(model["tanh"]), model["conv"].id);
  EXPECT_EQ(of.groups.JoinedActivation(model["conv"]).kind, v1::TANH);
  EXPECT_FALSE(of.groups.Joined(model["relu"])) << "one is enough";
  EXPECT_EQ(of.groups.ComputedBy(model["relu"]), model["relu"].id);
  EXPECT_TRUE(of.groups.Joined(model["flat"]));
  EXPECT_EQ(of.groups.ComputedBy(model["flat"]), model["relu"].id);
}

TEST(CudnnNodeGroupsTest, NotWhereTheLayerIsReadTwice) {
  const NamedGraph model(
      Model("layers { name: 'conv' conv2d { filters: 2 kernel_size: 1 } } "
            "layers { name: 'relu' activation { activation: RELU } } "
            "layers { name: 'sum' inputs: ['conv', 'relu'] add {} } "));
  const Groups of(model);
  EXPECT_FALSE(of.groups.Joined(model["relu"]));
  EXPECT_TRUE(of.groups.JoinedActivation(model["conv"]).linear());
  EXPECT_EQ(of.groups.OnlyReader(model["conv"]), nullptr);
  EXPECT_EQ(of.groups.OnlyReader(model["relu"]), &model["sum"]);
  EXPECT_EQ(of.groups.OnlyReader(model["out"]), nullptr) << "the loss reads it";
}

// conv -> norm \.
//               add -> relu
// in ---------- /
constexpr char kResidual[] =
    "layers { name: 'conv' conv2d { filters: 2 kernel_size: 1 } } layers { name: 'norm' batch_normalization {} } "
    "layers { name: 'sum' inputs: ['in', 'norm'] add {} } layers { name: 'relu' activation { activation: RELU } } ";

TEST(CudnnNodeGroupsTest, ANormalizationTakesTheAddAndTheReluBehindIt) {
  const NamedGraph model(Model(kResidual));
  const Groups of(model);
  EXPECT_TRUE(of.groups.Joined(model["sum"]));
  EXPECT_TRUE(of.groups.Joined(model["relu"]));
  EXPECT_EQ(of.groups.ComputedBy(model["sum"]), model["norm"].id);
  EXPECT_EQ(of.groups.ComputedBy(model["relu"]), model["norm"].id);
}

TEST(CudnnNodeGroupsTest, AnAddOfOneValueTwiceIsNotTaken) {
  const NamedGraph model(
      Model("layers { name: 'norm' batch_normalization {} } "
            "layers { name: 'sum' inputs: ['norm', 'norm'] add {} } "));
  EXPECT_FALSE(Groups(model).groups.Joined(model["sum"]));
}

TEST(CudnnNodeGroupsTest, TheLaterNormalizationOfAnAddComputesTheOther) {
  const NamedGraph model(
      Model("layers { name: 'a' conv2d { filters: 2 kernel_size: 1 } } "
            "layers { name: 'na' batch_normalization {} } "
            "layers { name: 'b' inputs: 'in' conv2d { filters: 2 kernel_size: 1 } } "
            "layers { name: 'nb' batch_normalization {} } "
            "layers { name: 'sum' inputs: ['na', 'nb'] add {} } "));
  const Groups of(model);
  EXPECT_EQ(of.groups.ComputedBy(model["sum"]), model["nb"].id);
  EXPECT_TRUE(of.groups.NormalizedByOther(model["na"]));
  EXPECT_FALSE(of.groups.NormalizedByOther(model["nb"]));
  EXPECT_FALSE(of.groups.NormalizedByOther(model["a"])) << "no normalization";
}

TEST(CudnnNodeGroupsTest, NotWhereOneOfThemIsFrozen) {
  const NamedGraph model(
      Model("layers { name: 'a' conv2d { filters: 2 kernel_size: 1 } } "
            "layers { name: 'na' trainable: false batch_normalization {} } "
            "layers { name: 'b' inputs: 'in' conv2d { filters: 2 kernel_size: 1 } } "
            "layers { name: 'nb' batch_normalization {} } "
            "layers { name: 'sum' inputs: ['na', 'nb'] add {} } "));
  const Groups of(model);
  EXPECT_FALSE(of.groups.NormalizedByOther(model["na"]));
  EXPECT_FALSE(of.groups.TakesStatistics(model["na"]));
  EXPECT_TRUE(of.groups.TakesStatistics(model["nb"]));
}

TEST(CudnnNodeGroupsTest, ABiasBeforeANormalizationHasNoGradientInTraining) {
  const NamedGraph model(Model(kResidual));
  EXPECT_TRUE(Groups(model).groups.BiasGoesToNormalization(model["conv"]));
  EXPECT_FALSE(Groups(model, Mode::kEvaluate).groups.BiasGoesToNormalization(model["conv"]));
  EXPECT_FALSE(Groups(model).groups.BiasGoesToNormalization(model["out"]));
  const NamedGraph between(
      Model("layers { name: 'conv' conv2d { filters: 2 kernel_size: 1 activation: TANH } } "
            "layers { name: 'norm' batch_normalization {} } "));
  EXPECT_FALSE(Groups(between).groups.BiasGoesToNormalization(between["conv"]));
}

TEST(CudnnNodeGroupsTest, TheWindowHasThePadsOfThePaddingBeforeIt) {
  const NamedGraph model(
      Model("layers { name: 'pad' zero_padding2d { padding: 1 } } "
            "layers { name: 'conv' conv2d { filters: 2 kernel_size: 3 } } "));
  const Groups of(model);
  ASSERT_TRUE(of.groups.Joined(model["pad"]));
  const kernels::Window window = of.groups.WindowOf(model["conv"]);
  EXPECT_EQ(window.examples, 4);
  EXPECT_EQ(window.in[0], 6);
  EXPECT_EQ(window.out[0], 6);
  EXPECT_EQ(window.pad[0], 1);
  EXPECT_EQ(window.pad[1], 1);
}

TEST(CudnnNodeGroupsTest, APaddingThatSomethingElseReadsStaysALayer) {
  const NamedGraph model(
      Model("layers { name: 'pad' zero_padding2d { padding: 1 } } "
            "layers { name: 'conv' conv2d { filters: 2 kernel_size: 1 } } "
            "layers { name: 'sum' inputs: ['pad', 'conv'] add {} } "));
  const Groups of(model);
  EXPECT_FALSE(of.groups.Joined(model["pad"]));
  EXPECT_EQ(of.groups.WindowOf(model["conv"]).pad[0], 0);
  EXPECT_EQ(of.groups.WindowOf(model["conv"]).in[0], 8);
}

// The normalization sees only the layer around it.
TEST(CudnnNodeGroupsTest, TheBiasOfALayerWithinAnotherOneIsItsOwn) {
  const NamedGraph model(
      Model("layers { name: 'plain' dense { units: 2 } } layers { batch_normalization {} } "
            "layers { name: 'steps' time_distributed { layer { dense { units: 2 } } } } "
            "layers { batch_normalization {} } "));
  const Groups of(model);
  EXPECT_TRUE(of.groups.BiasGoesToNormalization(model["plain"]));
  EXPECT_FALSE(of.groups.BiasGoesToNormalization(model["steps"]));
  EXPECT_FALSE(of.groups.BiasGoesToNormalization(InnerNode(model["steps"])));
}

TEST(CudnnNodeGroupsTest, AGatedUnitIsALayerOfItsOwn) {
  const NamedGraph model(
      Model("layers { name: 'd' dense { units: 4 } } layers { name: 'glu' activation { activation: GLU } } "));
  EXPECT_FALSE(Groups(model).groups.Joined(model["glu"]));
}

TEST(CudnnNodeGroupsTest, DropoutIsALaunchInTrainingOnly) {
  const NamedGraph model(
      Model("layers { name: 'drop' dropout { rate: 0.5 } } "
            "layers { name: 'off' training: false dropout { rate: 0.5 } } "));
  EXPECT_FALSE(Groups(model).groups.Joined(model["drop"]));
  EXPECT_TRUE(Groups(model).groups.Joined(model["off"]));
  EXPECT_TRUE(Groups(model, Mode::kPredict).groups.Joined(model["drop"]));
}

}  // namespace
}  // namespace cairn::cudnn
