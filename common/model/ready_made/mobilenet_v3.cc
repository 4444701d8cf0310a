// keras.applications' MobileNetV3Large and MobileNetV3Small (Howard et al. 2019, alpha 1), including the top.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/ready_made/layer_writer.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

constexpr float kEpsilon = 1e-3f;
constexpr float kMomentum = 0.999f;

struct Block {
  double expansion;
  int32_t filters, kernel, strides;
  bool squeezes, hard;  // hard: its activation is hard swish, else ReLU
};

// The nearest multiple of 8, but not less than nine tenths.
int32_t Depth(double channels) {
  int32_t rounded = std::max(8, static_cast<int32_t>(channels + 4) / 8 * 8);
  if (rounded < 0.9 * channels) rounded += 8;
  return rounded;
}

class MobileNetV3Writer {
 public:
  MobileNetV3Writer(const std::string& name, const std::vector<int32_t>& input_shape)
      : w_(name, input_shape), height_((input_shape[0] + 1) / 2), width_((input_shape[1] + 1) / 2) {
    w_.Rescaling(1.0f / 127.5f, -1);
    w_.Conv2D("conv", channels_, 3, 2, v1::SAME).set_use_bias(false);
    BatchNorm("conv_bn");
    Activate(true);
  }

  void Append(int number, const Block& block) {
    const std::string input = w_.last();
    const std::string prefix = number == 0 ? "expanded_conv_" : absl::StrCat("expanded_conv_", number, "_");
    const int32_t expanded = Depth(channels_ * block.expansion);
    if (number > 0) {
      Pointwise(prefix + "expand", expanded);
      Activate(block.hard);
    }
    if (block.strides == 2) {
      const int32_t half = block.kernel / 2;
      w_.ZeroPadding2D(prefix + "depthwise_pad", {half - 1 + height_ % 2, half, half - 1 + width_ % 2, half});
      height_ = (height_ + 1) / 2;
      width_ = (width_ + 1) / 2;
    }
    w_.DepthwiseConv2D(prefix + "depthwise", block.kernel, block.strides, block.strides == 1 ? v1::SAME : v1::VALID)
        .set_use_bias(false);
    BatchNorm(prefix + "depthwise_bn");
    Activate(block.hard);
    if (block.squeezes) SqueezeAndExcite(prefix + "squeeze_excite_", expanded);
    Pointwise(prefix + "project", block.filters);
    if (block.strides == 1 && channels_ == block.filters) w_.Add(prefix + "add", input, w_.last());
    channels_ = block.filters;
  }

  v1::Model Finish(int32_t last, int32_t classes) {
    Pointwise("conv_1", Depth(channels_ * 6), "conv_1_bn");
    Activate(true);
    w_.Append("global_average_pooling2d").mutable_global_average_pooling2d()->set_keepdims(true);
    w_.Conv2D("conv_2", last, 1, 1, v1::SAME);
    Activate(true);
    w_.Dropout("dropout", 0.2f);
    w_.Conv2D("logits", classes, 1, 1, v1::SAME);
    w_.Flatten("flatten");
    w_.Activation("predictions", v1::SOFTMAX);
    return w_.Take();
  }

 private:
  void BatchNorm(const std::string& name) { w_.BatchNormalization(name, kEpsilon, kMomentum); }

  void Pointwise(const std::string& name, int32_t filters, const std::string& norm = "") {
    w_.Conv2D(name, filters, 1, 1, v1::SAME).set_use_bias(false);
    BatchNorm(norm.empty() ? name + "_bn" : norm);
  }

  void Activate(bool hard) {
    if (hard) {
      w_.Activation(w_.Numbered("activation"), v1::HARD_SILU);
    } else {
      w_.Activation(w_.Numbered("re_lu"), v1::RELU);
    }
  }

  // Keras writes the hard sigmoid as relu6(x + 3) / 6.
  void SqueezeAndExcite(const std::string& prefix, int32_t filters) {
    const std::string input = w_.last();
    w_.Append(prefix + "avg_pool").mutable_global_average_pooling2d()->set_keepdims(true);
    w_.Conv2D(prefix + "conv", Depth(filters * 0.25), 1, 1, v1::SAME);
    w_.Activation(prefix + "relu", v1::RELU);
    w_.Conv2D(prefix + "conv_1", filters, 1, 1, v1::SAME);
    w_.Operation(w_.Numbered("add"), v1::Operation::ADD, 3);
    w_.Activation(w_.Numbered("re_lu"), v1::RELU6);
    w_.Operation(w_.Numbered("multiply"), v1::Operation::MULTIPLY, 1.0f / 6);
    w_.Multiply(prefix + "mul", input, w_.last());
  }

  LayerWriter w_;
  int32_t height_, width_;  // of the last layer's output; Keras pads an even size on one side only
  int32_t channels_ = 16;
};

}  // namespace

v1::Model MakeMobileNetV3Large(const std::vector<int32_t>& input_shape, int32_t classes) {
  MobileNetV3Writer net("MobileNetV3Large", input_shape);
  int number = 0;
  for (const Block& block : std::initializer_list<Block>{{1, 16, 3, 1, false, false},
                                                         {4, 24, 3, 2, false, false},
                                                         {3, 24, 3, 1, false, false},
                                                         {3, 40, 5, 2, true, false},
                                                         {3, 40, 5, 1, true, false},
                                                         {3, 40, 5, 1, true, false},
                                                         {6, 80, 3, 2, false, true},
                                                         {2.5, 80, 3, 1, false, true},
                                                         {2.3, 80, 3, 1, false, true},
                                                         {2.3, 80, 3, 1, false, true},
                                                         {6, 112, 3, 1, true, true},
                                                         {6, 112, 3, 1, true, true},
                                                         {6, 160, 5, 2, true, true},
                                                         {6, 160, 5, 1, true, true},
                                                         {6, 160, 5, 1, true, true}}) {
    net.Append(number++, block);
  }
  return net.Finish(1280, classes);
}

v1::Model MakeMobileNetV3Small(const std::vector<int32_t>& input_shape, int32_t classes) {
  MobileNetV3Writer net("MobileNetV3Small", input_shape);
  int number = 0;
  for (const Block& block : std::initializer_list<Block>{{1, 16, 3, 2, true, false},
                                                         {72.0 / 16, 24, 3, 2, false, false},
                                                         {88.0 / 24, 24, 3, 1, false, false},
                                                         {4, 40, 5, 2, true, true},
                                                         {6, 40, 5, 1, true, true},
                                                         {6, 40, 5, 1, true, true},
                                                         {3, 48, 5, 1, true, true},
                                                         {3, 48, 5, 1, true, true},
                                                         {6, 96, 5, 2, true, true},
                                                         {6, 96, 5, 1, true, true},
                                                         {6, 96, 5, 1, true, true}}) {
    net.Append(number++, block);
  }
  return net.Finish(1024, classes);
}

}  // namespace cairn
