// keras.applications' MobileNetV2 (Sandler et al. 2018, alpha 1) and VGG16 (Simonyan and Zisserman 2014), including the
// top.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/ready_made/layer_writer.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

constexpr float kEpsilon = 1e-3f;
constexpr float kMomentum = 0.999f;

int32_t HalfUp(int32_t n) { return (n + 1) / 2; }

struct MobileNet {
  LayerWriter w;
  int32_t height, width;  // of the last layer's output; Keras pads an even size on one side only
  int32_t channels;
};

void BatchNorm(LayerWriter& w, const std::string& name) { w.BatchNormalization(name, kEpsilon, kMomentum); }

void PointwiseConv(LayerWriter& w, const std::string& name, int32_t filters, v1::Padding padding) {
  w.Conv2D(name, filters, 1, 1, padding).set_use_bias(false);
}

void InvertedResidual(MobileNet& net, int block, int32_t filters, int32_t strides) {
  LayerWriter& w = net.w;
  const std::string input = w.last();
  const int32_t channels = net.channels;
  std::string prefix = "expanded_conv_";
  if (block > 0) {
    prefix = absl::StrCat("block_", block, "_");
    PointwiseConv(w, absl::StrCat(prefix, "expand"), 6 * channels, v1::SAME);
    BatchNorm(w, absl::StrCat(prefix, "expand_BN"));
    w.Activation(absl::StrCat(prefix, "expand_relu"), v1::RELU6);
  }
  if (strides == 2) {
    const int32_t top = net.height % 2, left = net.width % 2;
    w.ZeroPadding2D(absl::StrCat(prefix, "pad"), {top, 1, left, 1});
    net.height = HalfUp(net.height);
    net.width = HalfUp(net.width);
  }
  w.DepthwiseConv2D(absl::StrCat(prefix, "depthwise"), 3, strides, strides == 1 ? v1::SAME : v1::VALID)
      .set_use_bias(false);
  BatchNorm(w, absl::StrCat(prefix, "depthwise_BN"));
  w.Activation(absl::StrCat(prefix, "depthwise_relu"), v1::RELU6);
  PointwiseConv(w, absl::StrCat(prefix, "project"), filters, v1::SAME);
  BatchNorm(w, absl::StrCat(prefix, "project_BN"));
  if (channels == filters && strides == 1) w.Add(absl::StrCat(prefix, "add"), input, w.last());
  net.channels = filters;
}

}  // namespace

v1::Model MakeMobilenetV2(const std::vector<int32_t>& input_shape, int32_t classes) {
  MobileNet net{LayerWriter("mobilenet_v2", input_shape), HalfUp(input_shape[0]), HalfUp(input_shape[1]), 32};
  LayerWriter& w = net.w;
  w.Conv2D("Conv1", 32, 3, 2, v1::SAME).set_use_bias(false);
  BatchNorm(w, "bn_Conv1");
  w.Activation("Conv1_relu", v1::RELU6);
  struct Stage {
    int32_t filters, blocks, strides;
  };
  constexpr Stage kStages[] = {{16, 1, 1}, {24, 2, 2}, {32, 3, 2}, {64, 4, 2}, {96, 3, 1}, {160, 3, 2}, {320, 1, 1}};
  int block = 0;
  for (const Stage& stage : kStages) {
    for (int i = 0; i < stage.blocks; ++i) InvertedResidual(net, block++, stage.filters, i == 0 ? stage.strides : 1);
  }
  PointwiseConv(w, "Conv_1", 1280, v1::VALID);
  BatchNorm(w, "Conv_1_bn");
  w.Activation("out_relu", v1::RELU6);
  w.GlobalAveragePooling2D("global_average_pooling2d");
  w.Dense("predictions", classes, v1::SOFTMAX);
  return w.Take();
}

v1::Model MakeVgg16(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("vgg16", input_shape);
  constexpr int kConvolutions[] = {2, 2, 3, 3, 3};
  constexpr int32_t kFilters[] = {64, 128, 256, 512, 512};
  for (int block = 0; block < 5; ++block) {
    const std::string name = absl::StrCat("block", block + 1);
    for (int i = 1; i <= kConvolutions[block]; ++i) {
      w.Conv2D(absl::StrCat(name, "_conv", i), kFilters[block], 3, 1, v1::SAME).set_activation(v1::RELU);
    }
    w.MaxPooling2D(absl::StrCat(name, "_pool"), 2, 2);
  }
  w.Flatten("flatten");
  w.Dense("fc1", 4096, v1::RELU);
  w.Dense("fc2", 4096, v1::RELU);
  w.Dense("predictions", classes, v1::SOFTMAX);
  return w.Take();
}

}  // namespace cairn
