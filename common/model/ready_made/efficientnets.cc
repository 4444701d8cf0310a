// keras.applications' EfficientNetB0 (Tan and Le 2019) and EfficientNetV2S (Tan and Le 2021), including the top.
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/ready_made/layer_writer.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

constexpr float kBatchNormEpsilon = 1e-3f;
constexpr float kDropConnect = 0.2f;  // of the last block; that of the others grows with their number

struct Stage {
  int32_t kernel, repeats, filters, expansion, strides;
  bool fused;     // V2: one convolution in place of a pointwise and a depthwise one
  bool squeezes;  // squeeze and excitation, to a quarter of the block's input
};

// What the two networks do differently.
struct Family {
  float momentum;
  bool pads;              // strided depthwise convolutions have a layer that pads their input
  const char* depthwise;  // the name of depthwise convolutions
};

class EfficientNetWriter {
 public:
  EfficientNetWriter(const std::string& name, const std::vector<int32_t>& input_shape, const Family& family)
      : family_(family), w_(name, input_shape), height_(input_shape[0]), width_(input_shape[1]) {}

  LayerWriter& writer() { return w_; }

  // A convolution without a bias, batch normalization and, if it is named, an activation.
  void Convolution(const std::string& name, int32_t filters, int32_t kernel, int32_t strides, const std::string& norm,
                   const std::string& activation) {
    v1::Conv2D& conv = w_.Conv2D(name, filters, kernel, strides, TakePadding(strides));
    conv.set_use_bias(false);
    Initialize(conv.mutable_kernel_initializer());
    w_.BatchNormalization(norm, kBatchNormEpsilon, family_.momentum);
    if (!activation.empty()) w_.Activation(activation, v1::SILU);
  }

  // Pads the input of the next convolution, which has strides of 2.
  void Pad(const std::string& name, int32_t kernel) {
    const int32_t half = kernel / 2, top = half - 1 + height_ % 2, left = half - 1 + width_ % 2;
    w_.ZeroPadding2D(name, {top, half, left, half});
    padded_ = true;
  }

  // filters: the stem's.
  void Stages(const std::vector<Stage>& stages, int32_t filters) {
    int blocks = 0, block = 0;
    for (const Stage& stage : stages) blocks += stage.repeats;
    channels_ = filters;
    for (size_t i = 0; i < stages.size(); ++i) {
      for (int j = 0; j < stages[i].repeats; ++j) {
        Stage one = stages[i];
        if (j > 0) one.strides = 1;
        const float drop = kDropConnect * static_cast<float>(block++) / static_cast<float>(blocks);
        Block(absl::StrCat("block", i + 1, std::string(1, static_cast<char>('a' + j)), "_"), one, drop);
      }
    }
  }

  void Top(int32_t classes) {
    Convolution("top_conv", 1280, 1, 1, "top_bn", "top_activation");
    w_.GlobalAveragePooling2D("avg_pool");
    w_.Dropout("top_dropout", 0.2f);
    v1::Initializer* const initializer = w_.Dense("predictions", classes, v1::SOFTMAX).mutable_kernel_initializer();
    initializer->set_kind(v1::Initializer::VARIANCE_SCALING);
    initializer->set_scale(1.0f / 3);
    initializer->set_mode(v1::Initializer::FAN_OUT);
    initializer->set_distribution(v1::Initializer::DISTRIBUTION_UNIFORM);
  }

 private:
  static void Initialize(v1::Initializer* initializer) {
    initializer->set_kind(v1::Initializer::VARIANCE_SCALING);
    initializer->set_scale(2);
    initializer->set_mode(v1::Initializer::FAN_OUT);
  }

  // Of a convolution with these strides.
  v1::Padding TakePadding(int32_t strides) {
    const v1::Padding padding = padded_ ? v1::VALID : v1::SAME;
    padded_ = false;
    if (strides == 2) {
      height_ = (height_ + 1) / 2;
      width_ = (width_ + 1) / 2;
    }
    return padding;
  }

  void Depthwise(const std::string& name, const Stage& stage) {
    if (family_.pads && stage.strides == 2) Pad(name + "dwconv_pad", stage.kernel);
    v1::DepthwiseConv2D& conv =
        w_.DepthwiseConv2D(name + family_.depthwise, stage.kernel, stage.strides, TakePadding(stage.strides));
    conv.set_use_bias(false);
    Initialize(conv.mutable_depthwise_initializer());
    w_.BatchNormalization(name + "bn", kBatchNormEpsilon, family_.momentum);
    w_.Activation(name + "activation", v1::SILU);
  }

  void SqueezeAndExcite(const std::string& name, int32_t filters) {
    const std::string input = w_.last();
    w_.GlobalAveragePooling2D(name + "se_squeeze");
    w_.Reshape(name + "se_reshape", {1, 1, filters});
    for (const auto& [part, count, activation] :
         {std::tuple("se_reduce", channels_ / 4, v1::SILU), std::tuple("se_expand", filters, v1::SIGMOID)}) {
      v1::Conv2D& conv = w_.Conv2D(name + part, count, 1, 1, v1::SAME);
      conv.set_activation(activation);
      Initialize(conv.mutable_kernel_initializer());
    }
    w_.Multiply(name + "se_excite", input, w_.last());
  }

  void Block(const std::string& name, const Stage& stage, float drop) {
    const std::string input = w_.last();
    const int32_t filters = channels_ * stage.expansion;
    if (stage.expansion != 1) {
      const int32_t kernel = stage.fused ? stage.kernel : 1, strides = stage.fused ? stage.strides : 1;
      Convolution(name + "expand_conv", filters, kernel, strides, name + "expand_bn", name + "expand_activation");
    }
    if (!stage.fused) Depthwise(name, stage);
    if (stage.squeezes) SqueezeAndExcite(name, filters);
    const bool alone = stage.fused && stage.expansion == 1;  // the block's only convolution
    Convolution(name + "project_conv", stage.filters, alone ? stage.kernel : 1, alone ? stage.strides : 1,
                name + "project_bn", alone ? name + "project_activation" : "");
    if (stage.strides == 1 && channels_ == stage.filters) {
      if (drop > 0) w_.DropPath(name + "drop", drop);
      w_.Add(name + "add", w_.last(), input);
    }
    channels_ = stage.filters;
  }

  const Family family_;
  LayerWriter w_;
  int32_t height_, width_;  // of the last layer's output, without padding
  int32_t channels_ = 0;
  bool padded_ = false;
};

}  // namespace

// As for weights="imagenet": the second rescaling is a part of what these were trained with.
v1::Model MakeEfficientNetB0(const std::vector<int32_t>& input_shape, int32_t classes) {
  EfficientNetWriter net("efficientnetb0", input_shape, {.momentum = 0.99f, .pads = true, .depthwise = "dwconv"});
  LayerWriter& w = net.writer();
  w.Rescaling(1.0f / 255);
  w.Append("normalization").mutable_normalization();
  if (input_shape[2] == 3) {
    v1::Rescaling& rescaling = *w.Append("rescaling_1").mutable_rescaling();
    for (const double deviation : {0.229, 0.224, 0.225})
      rescaling.add_scales(static_cast<float>(1 / std::sqrt(deviation)));
  }
  net.Pad("stem_conv_pad", 3);
  net.Convolution("stem_conv", 32, 3, 2, "stem_bn", "stem_activation");
  net.Stages({{3, 1, 16, 1, 1, false, true},
              {3, 2, 24, 6, 2, false, true},
              {5, 2, 40, 6, 2, false, true},
              {3, 3, 80, 6, 2, false, true},
              {5, 3, 112, 6, 1, false, true},
              {5, 4, 192, 6, 2, false, true},
              {3, 1, 320, 6, 1, false, true}},
             32);
  net.Top(classes);
  return w.Take();
}

v1::Model MakeEfficientNetV2S(const std::vector<int32_t>& input_shape, int32_t classes) {
  EfficientNetWriter net("efficientnetv2-s", input_shape, {.momentum = 0.9f, .pads = false, .depthwise = "dwconv2"});
  LayerWriter& w = net.writer();
  w.Rescaling(1.0f / 128, -1);
  net.Convolution("stem_conv", 24, 3, 2, "stem_bn", "stem_activation");
  net.Stages({{3, 2, 24, 1, 1, true, false},
              {3, 4, 48, 4, 2, true, false},
              {3, 4, 64, 4, 2, true, false},
              {3, 6, 128, 4, 2, false, true},
              {3, 9, 160, 6, 1, false, true},
              {3, 15, 256, 6, 2, false, true}},
             24);
  net.Top(classes);
  return w.Take();
}

}  // namespace cairn
