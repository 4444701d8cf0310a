// Residual networks (He et al. 2015).
#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/ready_made/layer_writer.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

constexpr float kFromBytes = 1.0f / 255;

// ---- torchvision's resnet18 and resnet34: its names with '_' for '.' (see formats/torch_layout.h) ----

constexpr float kTorchEpsilon = 1e-5f;
constexpr float kTorchMomentum = 0.9f;  // torch defines it as 1 - momentum: 0.1

void TorchBatchNorm(LayerWriter& w, const std::string& name) {
  w.BatchNormalization(name, kTorchEpsilon, kTorchMomentum);
}

// A convolution without bias. torch pads both sides equally, whereas SAME with strides puts the odd pixel at the end;
// hence the separate padding layer.
void TorchConv(LayerWriter& w, const std::string& name, int32_t filters, int32_t kernel, int32_t strides,
               const std::string& from = "") {
  if (strides > 1 && kernel > 1) {
    w.ZeroPadding2D(absl::StrCat(name, "_pad"), {kernel / 2});
    if (!from.empty()) w.From(from);
  }
  v1::Conv2D& conv = w.Conv2D(name, filters, kernel, strides, strides == 1 ? v1::SAME : v1::VALID);
  conv.set_use_bias(false);
  conv.mutable_kernel_initializer()->set_kind(v1::Initializer::HE_NORMAL);
  if (!from.empty() && (strides == 1 || kernel == 1)) w.From(from);
}

void BasicBlock(LayerWriter& w, const std::string& name, int32_t filters, int32_t strides) {
  const std::string input = w.last();
  std::string shortcut = input;
  TorchConv(w, absl::StrCat(name, "_conv1"), filters, 3, strides);
  TorchBatchNorm(w, absl::StrCat(name, "_bn1"));
  w.Activation(absl::StrCat(name, "_relu1"), v1::RELU);
  TorchConv(w, absl::StrCat(name, "_conv2"), filters, 3, 1);
  TorchBatchNorm(w, absl::StrCat(name, "_bn2"));
  const std::string residual = w.last();
  if (strides > 1) {
    TorchConv(w, absl::StrCat(name, "_downsample_0"), filters, 1, strides, input);
    TorchBatchNorm(w, absl::StrCat(name, "_downsample_1"));
    shortcut = w.last();
  }
  w.Add(absl::StrCat(name, "_add"), shortcut, residual);
  w.Activation(absl::StrCat(name, "_relu2"), v1::RELU);
}

v1::Model TorchResnet(const std::string& name, std::initializer_list<int> blocks,
                      const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w(name, input_shape);
  w.Rescaling(kFromBytes);
  TorchConv(w, "conv1", 64, 7, 2);
  TorchBatchNorm(w, "bn1");
  w.Activation("relu", v1::RELU);
  w.ZeroPadding2D("maxpool_pad", {1});  // its input is never negative, so this equals torch's padding with -infinity
  w.MaxPooling2D("maxpool", 3, 2);
  int stage = 0;
  for (const int count : blocks) {
    ++stage;
    for (int block = 0; block < count; ++block) {
      BasicBlock(w, absl::StrCat("layer", stage, "_", block), 64 << (stage - 1), block == 0 && stage > 1 ? 2 : 1);
    }
  }
  w.GlobalAveragePooling2D("avgpool");
  w.Dense("fc", classes, v1::SOFTMAX);
  return w.Take();
}

// ---- keras.applications.ResNet50 ----

constexpr float kKerasResnetEpsilon = 1.001e-5f;
constexpr float kKerasMomentum = 0.99f;

void KerasConvBatchNorm(LayerWriter& w, const std::string& name, int32_t filters, int32_t kernel, int32_t strides,
                        const std::string& from = "") {
  w.Conv2D(absl::StrCat(name, "_conv"), filters, kernel, strides, kernel > 1 ? v1::SAME : v1::VALID);
  if (!from.empty()) w.From(from);
  w.BatchNormalization(absl::StrCat(name, "_bn"), kKerasResnetEpsilon, kKerasMomentum);
}

void BottleneckBlock(LayerWriter& w, const std::string& name, int32_t filters, int32_t strides, bool projects) {
  const std::string input = w.last();
  std::string shortcut = input;
  if (projects) {
    KerasConvBatchNorm(w, absl::StrCat(name, "_0"), 4 * filters, 1, strides);
    shortcut = w.last();
  }
  KerasConvBatchNorm(w, absl::StrCat(name, "_1"), filters, 1, strides, input);
  w.Activation(absl::StrCat(name, "_1_relu"), v1::RELU);
  KerasConvBatchNorm(w, absl::StrCat(name, "_2"), filters, 3, 1);
  w.Activation(absl::StrCat(name, "_2_relu"), v1::RELU);
  KerasConvBatchNorm(w, absl::StrCat(name, "_3"), 4 * filters, 1, 1);
  w.Add(absl::StrCat(name, "_add"), shortcut, w.last());
  w.Activation(absl::StrCat(name, "_out"), v1::RELU);
}

// ---- the models of tutorials ----

void TutorialBlock(LayerWriter& w, const std::string& name, int32_t filters, int32_t strides) {
  const std::string input = w.last();
  std::string shortcut = input;
  w.Conv2D(absl::StrCat(name, "_conv1"), filters, 3, strides, v1::SAME);
  w.BatchNormalization(absl::StrCat(name, "_bn1"), 1e-3f, kKerasMomentum);
  w.Activation(absl::StrCat(name, "_relu1"), v1::RELU);
  w.Conv2D(absl::StrCat(name, "_conv2"), filters, 3, 1, v1::SAME);
  w.BatchNormalization(absl::StrCat(name, "_bn2"), 1e-3f, kKerasMomentum);
  const std::string residual = w.last();
  if (strides > 1) {
    w.Conv2D(absl::StrCat(name, "_shortcut_conv"), filters, 1, strides, v1::SAME);
    w.From(input);
    w.BatchNormalization(absl::StrCat(name, "_shortcut_bn"), 1e-3f, kKerasMomentum);
    shortcut = w.last();
  }
  w.Add(absl::StrCat(name, "_add"), residual, shortcut);
  w.Activation(absl::StrCat(name, "_out"), v1::RELU);
}

}  // namespace

v1::Model MakeResnet18(const std::vector<int32_t>& input_shape, int32_t classes) {
  return TorchResnet("resnet18", {2, 2, 2, 2}, input_shape, classes);
}

v1::Model MakeResnet34(const std::vector<int32_t>& input_shape, int32_t classes) {
  return TorchResnet("resnet34", {3, 4, 6, 3}, input_shape, classes);
}

v1::Model MakeResnet50(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("resnet50", input_shape);
  w.ZeroPadding2D("conv1_pad", {3});
  w.Conv2D("conv1_conv", 64, 7, 2);
  w.BatchNormalization("conv1_bn", kKerasResnetEpsilon, kKerasMomentum);
  w.Activation("conv1_relu", v1::RELU);
  w.ZeroPadding2D("pool1_pad", {1});
  w.MaxPooling2D("pool1_pool", 3, 2);
  constexpr int kBlocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    for (int block = 1; block <= kBlocks[stage]; ++block) {
      BottleneckBlock(w, absl::StrCat("conv", stage + 2, "_block", block), 64 << stage, block == 1 && stage > 0 ? 2 : 1,
                      block == 1);
    }
  }
  w.GlobalAveragePooling2D("avg_pool");
  w.Dense("predictions", classes, v1::SOFTMAX);
  return w.Take();
}

v1::Model MakeTutorialResnet(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("tutorial_resnet", input_shape);
  w.Rescaling(kFromBytes);
  w.Conv2D("conv1", 64, 7, 2, v1::SAME);
  w.BatchNormalization("bn1", 1e-3f, kKerasMomentum);
  w.Activation("relu1", v1::RELU);
  w.MaxPooling2D("pool1", 3, 2, v1::SAME);
  for (int stage = 0; stage < 4; ++stage) {
    for (int block = 1; block <= 2; ++block) {
      TutorialBlock(w, absl::StrCat("stage", stage + 1, "_block", block), 64 << stage, stage > 0 && block == 1 ? 2 : 1);
    }
  }
  w.GlobalAveragePooling2D("avg_pool");
  w.Dense("predictions", classes, v1::SOFTMAX);
  return w.Take();
}

}  // namespace cairn
