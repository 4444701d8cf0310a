// keras.applications' DenseNet121 (Huang et al. 2017) and Xception (Chollet 2017), including the top.
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/ready_made/layer_writer.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

// ---- DenseNet ----

constexpr float kDenseNetEpsilon = 1.001e-5f;
constexpr float kMomentum = 0.99f;  // Keras' default
constexpr int32_t kGrowth = 32;

void NormalizeAndActivate(LayerWriter& w, const std::string& name, const char* bn, const char* relu) {
  w.BatchNormalization(name + bn, kDenseNetEpsilon, kMomentum);
  w.Activation(name + relu, v1::RELU);
}

// The output is the input with kGrowth more channels.
void DenseLayer(LayerWriter& w, const std::string& name) {
  const std::string input = w.last();
  NormalizeAndActivate(w, name, "_0_bn", "_0_relu");
  w.Conv2D(name + "_1_conv", 4 * kGrowth, 1).set_use_bias(false);
  NormalizeAndActivate(w, name, "_1_bn", "_1_relu");
  w.Conv2D(name + "_2_conv", kGrowth, 3, 1, v1::SAME).set_use_bias(false);
  w.Concatenate(name + "_concat", input, w.last());
}

// ---- Xception ----

constexpr float kXceptionEpsilon = 1e-3f;

// Keras numbers the names that it creates: conv2d, conv2d_1, ...
std::string Numbered(const char* name, int count) { return count == 0 ? name : absl::StrCat(name, "_", count); }

class XceptionWriter {
 public:
  explicit XceptionWriter(const std::vector<int32_t>& input_shape) : w_("xception", input_shape) {}

  LayerWriter& writer() { return w_; }
  void BatchNorm(const std::string& name) { w_.BatchNormalization(name, kXceptionEpsilon, kMomentum); }
  void Convolution(const std::string& name, int32_t filters, int32_t strides) {
    w_.Conv2D(name, filters, 3, strides).set_use_bias(false);
    BatchNorm(name + "_bn");
    w_.Activation(name + "_act", v1::RELU);
  }
  void Separable(const std::string& name, int32_t filters) {
    v1::SeparableConv2D& conv = *w_.Append(name).mutable_separable_conv2d();
    conv.set_filters(filters);
    conv.add_kernel_size(3);
    conv.set_padding(v1::SAME);
    conv.set_use_bias(false);
    BatchNorm(name + "_bn");
  }
  // The shortcut of a block, which halves the size.
  std::string Shortcut(const std::string& from, int32_t filters) {
    w_.Conv2D(Numbered("conv2d", shortcuts_), filters, 1, 2, v1::SAME).set_use_bias(false);
    w_.From(from);
    BatchNorm(Numbered("batch_normalization", shortcuts_++));
    return w_.last();
  }
  void Add(const std::string& first, const std::string& second) { w_.Add(Numbered("add", sums_++), first, second); }

  // Two separable convolutions and a pooling, in parallel with a shortcut. activates: also before the first one.
  void Halve(int block, int32_t first, int32_t second, bool activates) {
    const std::string prefix = absl::StrCat("block", block), input = w_.last(), past = Shortcut(input, second);
    if (activates) {
      w_.Activation(prefix + "_sepconv1_act", v1::RELU);
      w_.From(input);
    }
    Separable(prefix + "_sepconv1", first);
    if (!activates) InputOf(prefix + "_sepconv1", input);
    w_.Activation(prefix + "_sepconv2_act", v1::RELU);
    Separable(prefix + "_sepconv2", second);
    w_.MaxPooling2D(prefix + "_pool", 3, 2, v1::SAME);
    Add(w_.last(), past);
  }

  void Middle(int block) {
    const std::string prefix = absl::StrCat("block", block), input = w_.last();
    for (int i = 1; i <= 3; ++i) {
      w_.Activation(absl::StrCat(prefix, "_sepconv", i, "_act"), v1::RELU);
      Separable(absl::StrCat(prefix, "_sepconv", i), 728);
    }
    Add(w_.last(), input);
  }

 private:
  void InputOf(const std::string& layer, const std::string& input) { w_.Find(layer)->add_inputs(input); }

  LayerWriter w_;
  int shortcuts_ = 0, sums_ = 0;
};

}  // namespace

v1::Model MakeDensenet121(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("densenet121", input_shape);
  w.ZeroPadding2D("zero_padding2d", {3, 3, 3, 3});
  w.Conv2D("conv1_conv", 64, 7, 2).set_use_bias(false);
  NormalizeAndActivate(w, "conv1", "_bn", "_relu");
  w.ZeroPadding2D("zero_padding2d_1", {1, 1, 1, 1});
  w.MaxPooling2D("pool1", 3, 2);
  constexpr int kLayers[] = {6, 12, 24, 16};
  int32_t channels = 64;
  for (int block = 0; block < 4; ++block) {
    for (int i = 1; i <= kLayers[block]; ++i) DenseLayer(w, absl::StrCat("conv", block + 2, "_block", i));
    channels += kGrowth * kLayers[block];
    if (block == 3) break;
    const std::string name = absl::StrCat("pool", block + 2);
    NormalizeAndActivate(w, name, "_bn", "_relu");
    channels /= 2;
    w.Conv2D(name + "_conv", channels, 1).set_use_bias(false);
    w.AveragePooling2D(name + "_pool", 2);
  }
  NormalizeAndActivate(w, "", "bn", "relu");
  w.GlobalAveragePooling2D("avg_pool");
  w.Dense("predictions", classes, v1::SOFTMAX);
  return w.Take();
}

v1::Model MakeXception(const std::vector<int32_t>& input_shape, int32_t classes) {
  XceptionWriter x(input_shape);
  x.Convolution("block1_conv1", 32, 2);
  x.Convolution("block1_conv2", 64, 1);
  x.Halve(2, 128, 128, /*activates=*/false);
  x.Halve(3, 256, 256, true);
  x.Halve(4, 728, 728, true);
  for (int block = 5; block <= 12; ++block) x.Middle(block);
  x.Halve(13, 728, 1024, true);
  LayerWriter& w = x.writer();
  for (const auto& [name, filters] : {std::pair("block14_sepconv1", 1536), std::pair("block14_sepconv2", 2048)}) {
    x.Separable(name, filters);
    w.Activation(absl::StrCat(name, "_act"), v1::RELU);
  }
  w.GlobalAveragePooling2D("avg_pool");
  w.Dense("predictions", classes, v1::SOFTMAX);
  return w.Take();
}

}  // namespace cairn
