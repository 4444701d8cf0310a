// Goal: PyTorch's layout has its names and shapes, each number in its place, and comes back as it was.
#include "common/formats/torch_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "common/formats/weights.h"
#include "common/model/ready_made/ready_made.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

Graph Build(const std::string& text) { return Graph::Build(FromText<v1::Model>(text)).value(); }

Buffer Numbered(const Graph& graph) {
  Buffer space = Buffer::Zeros(static_cast<size_t>(graph.space_size()) * sizeof(float));
  for (int64_t i = 0; i < graph.space_size(); ++i)
    space.mutable_floats()[static_cast<size_t>(i)] = static_cast<float>(i);
  return space;
}

const char kModel[] = R"(
  layers { name: "image" input { shape: [6, 4, 3] } }
  layers { name: "conv" conv2d { filters: 5 kernel_size: [3, 2] padding: SAME } }
  layers { name: "bn" batch_normalization { } }
  layers { name: "depthwise" depthwise_conv2d { kernel_size: 3 padding: SAME depth_multiplier: 2 use_bias: false } }
  layers { name: "up" conv2d_transpose { filters: 4 kernel_size: 2 strides: 2 } }
  layers { name: "pool" max_pooling2d { pool_size: 4 } }
  layers { name: "flat" flatten {} }
  layers { name: "drop" dropout { rate: 0.5 } }
  layers { name: "fc1" dense { units: 7 activation: RELU } }
  layers { name: "fc2" dense { units: 2 } })";

struct Values {
  explicit Values(const Graph& graph) : graph(graph), space(Numbered(graph)) {}
  // Element of a variable in Keras' layout.
  float Keras(const std::string& name, const Shape& at) const {
    for (const Variable& v : graph.variables()) {
      if (v.name != name) continue;
      int64_t index = 0;
      for (size_t i = 0; i < at.size(); ++i) index = index * v.shape[i] + at[i];
      return space.floats()[static_cast<size_t>(v.offset + index)];
    }
    CAIRN_CHECK(false, "no variable " + name);
    return 0;
  }
  const Graph& graph;
  const Buffer space;
};

float At(const Safetensor& tensor, const Shape& at) {
  int64_t index = 0;
  for (size_t i = 0; i < at.size(); ++i) index = index * tensor.shape[i] + at[i];
  return tensor.data.floats()[static_cast<size_t>(index)];
}

TEST(TorchLayout, PutsEveryNumberInItsPlace) {
  const Graph graph = Build(kModel);
  const Values values(graph);
  const auto written = ToTorchLayout(graph, values.space.floats());
  ASSERT_TRUE(written.ok()) << written.status();
  std::map<std::string, Safetensor> t;
  for (const Safetensor& tensor : *written) t[tensor.name] = tensor;
  ASSERT_EQ(t["conv.weight"].shape, (Shape{5, 3, 3, 2}));
  EXPECT_EQ(At(t["conv.weight"], {4, 2, 1, 0}), values.Keras("conv/kernel", {1, 0, 2, 4}));
  EXPECT_EQ(At(t["conv.weight"], {1, 0, 2, 1}), values.Keras("conv/kernel", {2, 1, 0, 1}));
  EXPECT_EQ(At(t["conv.bias"], {3}), values.Keras("conv/bias", {3}));
  EXPECT_EQ(At(t["bn.weight"], {2}), values.Keras("bn/gamma", {2}));
  EXPECT_EQ(At(t["bn.bias"], {2}), values.Keras("bn/beta", {2}));
  EXPECT_EQ(At(t["bn.running_mean"], {1}), values.Keras("bn/moving_mean", {1}));
  EXPECT_EQ(At(t["bn.running_var"], {4}), values.Keras("bn/moving_variance", {4}));
  // Group g of a grouped convolution makes the outputs g * multiplier .. : as Keras numbers them.
  ASSERT_EQ(t["depthwise.weight"].shape, (Shape{10, 1, 3, 3}));
  EXPECT_EQ(At(t["depthwise.weight"], {7, 0, 2, 1}), values.Keras("depthwise/kernel", {2, 1, 3, 1}));
  ASSERT_EQ(t["up.weight"].shape, (Shape{10, 4, 2, 2}));
  EXPECT_EQ(At(t["up.weight"], {9, 3, 1, 0}), values.Keras("up/kernel", {1, 0, 3, 9}));
  // The flattened picture is [3, 2, 4]: element (h, w, c) is input (h * 2 + w) * 4 + c in Keras, (c * 3 + h) * 2 + w
  // here.
  ASSERT_EQ(t["fc1.weight"].shape, (Shape{7, 24}));
  EXPECT_EQ(At(t["fc1.weight"], {6, (3 * 3 + 2) * 2 + 1}), values.Keras("fc1/kernel", {(2 * 2 + 1) * 4 + 3, 6}));
  EXPECT_EQ(At(t["fc1.weight"], {0, (1 * 3 + 0) * 2 + 1}), values.Keras("fc1/kernel", {(0 * 2 + 1) * 4 + 1, 0}));
  EXPECT_EQ(At(t["fc2.weight"], {1, 5}), values.Keras("fc2/kernel", {5, 1}));
}

TEST(TorchLayout, ComesBack) {
  char name[] = "/tmp/cairn_torch_XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string path = std::string(name) + "/m.safetensors";
  const Graph graph = Build(kModel);
  const Values values(graph);
  const auto written = ToTorchLayout(graph, values.space.floats());
  std::vector<SafetensorView> views;
  for (const Safetensor& t : *written) views.push_back({t.name, t.shape, t.data.floats()});
  const float unknown[] = {1};
  views.push_back({"fc3.weight", {1}, unknown});
  ASSERT_TRUE(WriteSafetensors(path, views, {}).ok());
  const auto loaded = LoadWeights(path, graph);
  std::filesystem::remove_all(name);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->tensors.size(), graph.variables().size());
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    const Variable& v = graph.variables()[i];
    EXPECT_EQ(loaded->tensors[i].name, v.name);
    EXPECT_EQ(loaded->tensors[i].shape, v.shape);
    EXPECT_EQ(loaded->tensors[i].data.floats(),
              values.space.floats().subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size)));
  }
}

// The names of torchvision's resnet18().state_dict(), but for num_batches_tracked.
TEST(TorchLayout, OfResnet18HasTorchvisionsNames) {
  const Graph graph = Graph::Build(*MakeReadyMade(FromText<v1::ReadyMade>("name: 'resnet18'"))).value();
  const auto written = ToTorchLayout(graph, Numbered(graph).floats());
  ASSERT_TRUE(written.ok());
  std::map<std::string, Shape> shapes;
  for (const Safetensor& t : *written) shapes[t.name] = t.shape;
  EXPECT_EQ(shapes.size(), 102u);  // 122 with the 20 counters
  EXPECT_EQ(shapes["conv1.weight"], (Shape{64, 3, 7, 7}));
  EXPECT_EQ(shapes["layer2.0.downsample.0.weight"], (Shape{128, 64, 1, 1}));
  EXPECT_EQ(shapes["layer2.0.downsample.1.running_var"], (Shape{128}));
  EXPECT_EQ(shapes["layer4.1.bn2.weight"], (Shape{512}));
  EXPECT_EQ(shapes["fc.weight"], (Shape{1000, 512}));
}

TEST(TorchLayout, SaysWhatDoesNotFit) {
  const Graph graph = Build("layers { input { shape: [4] } } layers { name: 'fc' dense { units: 2 } }");
  SafetensorsFile file;
  file.tensors.push_back({"fc.weight", v1::FLOAT32, {4, 2}, Buffer::Zeros(32)});
  EXPECT_TRUE(IsTorchLayout(file, graph));
  EXPECT_EQ(FromTorchLayout(file, graph).status().message(),
            "tensor \"fc.weight\": shape [4,2], [2,4] in the model (its variable \"fc/kernel\" in PyTorch's layout)");
  const Graph attention = Build(R"(layers { name: "x" input { shape: [4, 2] } }
    layers { name: "a" inputs: ["x", "x"] multi_head_attention { num_heads: 1 key_dim: 2 } })");
  EXPECT_EQ(ToTorchLayout(attention, Numbered(attention).floats()).status().message(),
            "layer \"a\": multi_head_attention has no counterpart in PyTorch's layout; use Keras'");
  EXPECT_EQ(LoadWeights("m.bin", graph).status().message(),
            "m.bin: is neither a checkpoint's directory nor a .safetensors, .keras, .h5 or .onnx file");
}

}  // namespace
}  // namespace cairn
