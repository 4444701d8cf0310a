// Goal: ready-made models have the parameters, layers and shapes of the models whose names they bear.
#include "common/model/ready_made/ready_made.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "common/model/graph.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

Graph Make(const std::string& wanted) {
  const absl::StatusOr<v1::Model> model = MakeReadyMade(FromText<v1::ReadyMade>(wanted));
  CAIRN_CHECK(model.ok(), std::string(model.status().message()));
  absl::StatusOr<Graph> graph = Graph::Build(*model);
  CAIRN_CHECK(graph.ok(), std::string(graph.status().message()));
  return *std::move(graph);
}

std::set<std::string> Names(const Graph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes()) names.insert(node.name);
  return names;
}

const Node& Find(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes()) {
    if (node.name == name) return node;
  }
  CAIRN_CHECK(false, "no layer " + name);
  return graph.nodes()[0];
}

struct Count {
  const char* name;
  int64_t trainable, other;
};

// Keras' are those of model.summary() and of the table at keras.io/api/applications (25.6M, 3.5M, 138.4M);
// torchvision's those of its documentation ("num_params"), which leaves out the moving statistics. The others were
// added up by hand: mlp 784*128+128 + 128*10+10; mnist_cnn 320 + 5408*64+64 + 650; lenet 156 + 2416 + 48120 + 10164 +
// 850; beans_cnn and tutorial_resnet by a few lines of Python over their lists of convolutions; unet by the sum over
// its levels, (9 in + 9 out + 2) out for each pair of convolutions and (4 in + 1) out for each step up. The vision
// transformers' are those of the papers' implementations. gpt_mini: a block has 12 w^2 + 13 w with w = 192, beside the
// tables of 256 tokens and 128 positions, the last normalization and the head, 256 w. lstm_text: keras.io's 2,757,761
// and 129 for a second output.
constexpr Count kCounts[] = {
    {"mlp", 101'770, 0},
    {"mnist_cnn", 347'146, 0},
    {"lenet", 61'706, 0},
    {"beans_cnn", 60'883, 352},
    {"resnet18", 11'689'512, 9'600},
    {"resnet34", 21'797'672, 17'024},
    {"resnet50", 25'583'592, 53'120},
    {"tutorial_resnet", 11'182'851, 9'600},
    {"mobilenet_v2", 3'504'872, 34'112},
    {"vgg16", 138'357'544, 0},
    {"densenet121", 7'978'856, 83'648},
    {"xception", 22'855'952, 54'528},
    {"unet", 31'031'810, 0},
    {"efficientnet_b0", 5'288'548, 42'023},
    {"efficientnetv2_s", 21'458'488, 153'872},
    {"convnext_tiny", 28'589'128, 0},
    {"mobilenet_v3_large", 5'483'032, 24'400},
    {"mobilenet_v3_small", 2'542'856, 12'112},
    {"vit_tiny", 5'717'416, 0},
    {"vit_base", 86'567'656, 0},
    {"gpt_mini", 6 * (12 * 192 * 192 + 13 * 192) + (256 + 128 + 2 + 256) * 192, 0},
    {"lstm_text", 2'757'890, 0},
};

TEST(ReadyMade, HasThePublishedNumberOfParameters) {
  ASSERT_EQ(std::size(kCounts), ReadyMadeModels().size());
  for (const Count& count : kCounts) {
    SCOPED_TRACE(count.name);
    const Graph graph = Make(std::string("name: '") + count.name + "'");
    EXPECT_EQ(graph.trainable_parameters(), count.trainable);
    EXPECT_EQ(graph.parameters(), count.trainable + count.other);
    EXPECT_EQ(graph.output().activation, v1::SOFTMAX);
  }
  EXPECT_EQ(Make("name: 'resnet50'").parameters(), 25'636'712);
  EXPECT_EQ(Make("name: 'mobilenet_v2'").parameters(), 3'538'984);
  EXPECT_EQ(Make("name: 'efficientnet_b0'").parameters(), 5'330'571);
  EXPECT_EQ(Make("name: 'efficientnetv2_s'").parameters(), 21'612'360);
  EXPECT_EQ(Make("name: 'mobilenet_v3_large'").parameters(), 5'507'432);
  EXPECT_EQ(Make("name: 'mobilenet_v3_small'").parameters(), 2'554'968);
}

// Names and shapes as keras.applications.ResNet50().summary() prints them: 177 layers.
TEST(ReadyMade, Resnet50IsKerasOne) {
  const Graph graph = Make("name: 'resnet50'");
  EXPECT_EQ(graph.nodes().size(), 177u);
  EXPECT_EQ(Find(graph, "conv1_pad").output, (Shape{230, 230, 3}));
  EXPECT_EQ(Find(graph, "conv1_conv").output, (Shape{112, 112, 64}));
  EXPECT_EQ(Find(graph, "pool1_pool").output, (Shape{56, 56, 64}));
  EXPECT_EQ(Find(graph, "conv2_block1_out").output, (Shape{56, 56, 256}));
  EXPECT_EQ(Find(graph, "conv3_block4_3_conv").output, (Shape{28, 28, 512}));
  EXPECT_EQ(Find(graph, "conv4_block6_add").output, (Shape{14, 14, 1024}));
  EXPECT_EQ(Find(graph, "conv5_block3_out").output, (Shape{7, 7, 2048}));
  EXPECT_EQ(Find(graph, "avg_pool").output, (Shape{2048}));
  EXPECT_FLOAT_EQ(Find(graph, "conv5_block1_0_bn").layer.batch_normalization().epsilon(), 1.001e-5f);
  EXPECT_TRUE(Find(graph, "conv5_block1_0_conv").layer.conv2d().use_bias());
  EXPECT_EQ(Find(graph, "conv3_block1_0_conv").window.strides[0], 2);
  EXPECT_EQ(Find(graph, "conv3_block1_1_conv").window.strides[0], 2);
  EXPECT_EQ(Find(graph, "predictions").output, (Shape{1000}));
}

// 156 layers with the top in Keras' count.
TEST(ReadyMade, MobilenetV2IsKerasOne) {
  const Graph graph = Make("name: 'mobilenet_v2'");
  EXPECT_EQ(graph.nodes().size(), 156u);
  const std::set<std::string> names = Names(graph);
  for (const char* name : {"Conv1", "bn_Conv1", "Conv1_relu", "expanded_conv_depthwise", "expanded_conv_project_BN",
                           "block_1_expand", "block_1_pad", "block_2_add", "block_16_project_BN", "Conv_1_bn",
                           "out_relu", "global_average_pooling2d", "predictions"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("block_16_add"));  // 160 to 320 channels
  EXPECT_EQ(Find(graph, "block_1_pad").output, (Shape{113, 113, 96}));
  EXPECT_EQ(Find(graph, "out_relu").output, (Shape{7, 7, 1280}));
  EXPECT_EQ(Find(graph, "out_relu").activation, v1::RELU6);
  // Odd sides are padded on both: 75 to 38.
  const Graph odd = Make("name: 'mobilenet_v2' input_shape: [150, 150, 3] classes: 7");
  EXPECT_EQ(Find(odd, "block_1_pad").output, (Shape{77, 77, 96}));
  EXPECT_EQ(Find(odd, "block_1_depthwise").output, (Shape{38, 38, 96}));
  EXPECT_EQ(odd.output().output, (Shape{7}));
}

// Keras' 429 and 134 layers with the input (its summaries).
TEST(ReadyMade, Densenet121AndXceptionAreKerasOnes) {
  const Graph dense = Make("name: 'densenet121'");
  EXPECT_EQ(dense.nodes().size(), 429u);
  EXPECT_EQ(Find(dense, "pool1").output, (Shape{56, 56, 64}));
  EXPECT_EQ(Find(dense, "conv2_block6_concat").output, (Shape{56, 56, 256}));
  EXPECT_EQ(Find(dense, "pool3_conv").output, (Shape{28, 28, 256}));
  EXPECT_EQ(Find(dense, "conv4_block24_concat").output, (Shape{14, 14, 1024}));
  EXPECT_EQ(Find(dense, "conv5_block16_concat").output, (Shape{7, 7, 1024}));
  EXPECT_FLOAT_EQ(Find(dense, "bn").layer.batch_normalization().epsilon(), 1.001e-5f);
  EXPECT_EQ(dense.parameters(), 8'062'504);
  const Graph xception = Make("name: 'xception'");
  EXPECT_EQ(xception.nodes().size(), 134u);
  EXPECT_EQ(Find(xception, "block1_conv2_act").output, (Shape{147, 147, 64}));
  EXPECT_EQ(Find(xception, "add").output, (Shape{74, 74, 128}));
  EXPECT_EQ(Find(xception, "add_2").output, (Shape{19, 19, 728}));
  EXPECT_EQ(Find(xception, "block12_sepconv3").output, (Shape{19, 19, 728}));
  EXPECT_EQ(Find(xception, "block14_sepconv2_act").output, (Shape{10, 10, 2048}));
  // Block 2 begins without an activation, the others with one; each beside a shortcut of the same input.
  const auto input = [&](const char* name) {
    return xception.nodes()[static_cast<size_t>(Find(xception, name).inputs[0])].name;
  };
  EXPECT_EQ(input("block2_sepconv1"), "block1_conv2_act");
  EXPECT_EQ(input("conv2d"), "block1_conv2_act");
  EXPECT_EQ(input("block3_sepconv1_act"), "add");
  EXPECT_EQ(input("conv2d_1"), "add");
  EXPECT_EQ(xception.parameters(), 22'910'480);
}

TEST(ReadyMade, UnetGivesAClassForEachPixel) {
  const Graph unet = Make("name: 'unet' input_shape: [48, 32, 1] classes: 5");
  EXPECT_EQ(Find(unet, "middle_conv2").output, (Shape{3, 2, 1024}));
  EXPECT_EQ(Find(unet, "up4_concat").output, (Shape{6, 4, 1024}));
  EXPECT_EQ(unet.output().output, (Shape{48, 32, 5}));
}

const Variable* VariableOf(const Graph& graph, const std::string& name) {
  for (const Variable& variable : graph.variables()) {
    if (variable.name == name) return &variable;
  }
  return nullptr;
}

TEST(ReadyMade, VitAddsPositionsAndAClassTokenToPatches) {
  const Graph vit = Make("name: 'vit_tiny' input_shape: [64, 48, 3] classes: 5");
  EXPECT_EQ(Find(vit, "patch_embedding").output, (Shape{4, 3, 192}));
  EXPECT_EQ(Find(vit, "tokens").output, (Shape{13, 192}));
  EXPECT_EQ(Find(vit, "positions").output, (Shape{13}));
  EXPECT_EQ(VariableOf(vit, "position_embedding/embeddings")->shape, (Shape{13, 192}));
  EXPECT_EQ(VariableOf(vit, "class_token/embeddings")->shape, (Shape{1, 192}));
  EXPECT_EQ(Find(vit, "block11_attention").layer.multi_head_attention().key_dim(), 64);
  EXPECT_EQ(Find(vit, "first").output, (Shape{192}));
}

TEST(ReadyMade, GptGivesTheNextTokenAtEachStep) {
  const Graph gpt = Make("name: 'gpt_mini' input_shape: [24] classes: 100");
  EXPECT_EQ(gpt.output().output, (Shape{24, 100}));
  EXPECT_EQ(VariableOf(gpt, "position_embedding/embeddings")->shape, (Shape{24, 192}));
  EXPECT_EQ(VariableOf(gpt, "token_embedding/embeddings")->shape, (Shape{100, 192}));
  EXPECT_TRUE(Find(gpt, "block5_attention").layer.multi_head_attention().use_causal_mask());
  EXPECT_EQ(VariableOf(gpt, "head/bias"), nullptr);
}

// torchvision's names, '_' for '.': `model.state_dict()` begins with conv1.weight, bn1.weight, ...,
// layer1.0.conv1.weight.
TEST(ReadyMade, Resnet18HasTorchvisionsNamesAndShapes) {
  const Graph graph = Make("name: 'resnet18'");
  const std::set<std::string> names = Names(graph);
  for (const char* name : {"conv1", "bn1", "layer1_0_conv1", "layer1_1_bn2", "layer2_0_downsample_0",
                           "layer2_0_downsample_1", "layer4_1_conv2", "fc"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("layer1_0_downsample_0"));
  EXPECT_EQ(Find(graph, "conv1").output, (Shape{112, 112, 64}));
  EXPECT_EQ(Find(graph, "maxpool").output, (Shape{56, 56, 64}));
  EXPECT_EQ(Find(graph, "layer4_1_relu2").output, (Shape{7, 7, 512}));
  EXPECT_EQ(Find(graph, "layer2_0_conv1").window.pad_begin[0], 0);  // padded by its own layer, alike on both sides
  EXPECT_EQ(Find(graph, "layer2_0_conv1_pad").output, (Shape{58, 58, 64}));
}

TEST(ReadyMade, TakesOtherShapesAndClasses) {
  for (const ReadyMadeInfo& info : ReadyMadeModels()) {
    SCOPED_TRACE(info.name);
    if (info.input_shape.size() != 3) continue;
    const Graph graph = Make(std::string("name: '") + info.name + "' input_shape: [64, 48, 3] classes: 5");
    EXPECT_EQ(graph.input_shape(), (Shape{64, 48, 3}));
    const bool each_pixel = std::string(info.name) == "unet";
    EXPECT_EQ(graph.output().output, each_pixel ? (Shape{64, 48, 5}) : (Shape{5}));
  }
  EXPECT_EQ(Make("name: 'mlp' input_shape: [64]").parameters(), 64 * 128 + 128 + 1290);
}

TEST(ReadyMade, SaysWhatIsWrong) {
  const std::string all =
      "mlp, mnist_cnn, lenet, beans_cnn, resnet18, resnet34, resnet50, tutorial_resnet, mobilenet_v2, vgg16, "
      "densenet121, xception, unet, efficientnet_b0, efficientnetv2_s, convnext_tiny, mobilenet_v3_large, "
      "mobilenet_v3_small, vit_tiny, vit_base, gpt_mini, lstm_text";
  const std::map<std::string, std::string> cases = {
      {"", "model.ready_made.name: missing; use one of " + all},
      {"name: 'resnet19'", "model.ready_made.name: \"resnet19\" is not known; use one of " + all},
      {"name: 'resnet18' input_shape: [32, 32]",
       "model.ready_made.input_shape: 2 numbers, but resnet18 takes [height, width, channels]; give it such a shape or "
       "leave it out"},
      {"name: 'mlp' input_shape: [1, 2, 3, 4]",
       "model.ready_made.input_shape: 4 numbers, but mlp takes [height, width, channels] or [features]; give it such a "
       "shape or leave it out"},
      {"name: 'gpt_mini' input_shape: [32, 32]",
       "model.ready_made.input_shape: 2 numbers, but gpt_mini takes [steps]; give it such a shape or leave it out"},
      {"name: 'vit_tiny' input_shape: [64, 60, 3]",
       "model.ready_made.input_shape: [64, 60, 3], but vit_tiny cuts pictures into 16x16; use sides that are multiples "
       "of 16"},
      {"name: 'gpt_mini' input_shape: [0]",
       "model.ready_made.input_shape: 0 is outside 1 .. 65536; use a shape such as [128]"},
      {"name: 'lenet' input_shape: [28, 0, 1]",
       "model.ready_made.input_shape: 0 is outside 1 .. 65536; use a shape such as [28, 28, 1]"},
      {"name: 'lenet' classes: 1",
       "model.ready_made.classes: 1 is outside 2 .. 16777216; use the number of classes of the data"},
      {"name: 'lenet' classes: -3",
       "model.ready_made.classes: -3 is outside 2 .. 16777216; use the number of classes of the data"},
  };
  for (const auto& [wanted, error] : cases) {
    SCOPED_TRACE(wanted);
    const absl::StatusOr<v1::Model> model = MakeReadyMade(FromText<v1::ReadyMade>(wanted));
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.status().message(), error);
  }
}

}  // namespace
}  // namespace cairn
