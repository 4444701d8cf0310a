// keras.applications' ConvNeXtTiny (Liu et al. 2022), including the top. Its LayerScale is a depthwise kernel of one
// pixel, as in models that are read from Keras.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/ready_made/layer_writer.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

constexpr float kEpsilon = 1e-6f;
constexpr float kScale = 1e-6f;  // of a block at the beginning of a training

void Block(LayerWriter& w, const std::string& name, int32_t filters) {
  const std::string input = w.last();
  w.Conv2D(name + "_depthwise_conv", filters, 7, 1, v1::SAME).set_groups(filters);
  w.LayerNormalization(name + "_layernorm", kEpsilon);
  w.Dense(name + "_pointwise_conv_1", 4 * filters, v1::LINEAR);
  w.Activation(name + "_gelu", v1::GELU);
  w.Dense(name + "_pointwise_conv_2", filters, v1::LINEAR);
  v1::DepthwiseConv2D& scale = w.DepthwiseConv2D(name + "_layer_scale", 1, 1, v1::VALID);
  scale.set_use_bias(false);
  scale.mutable_depthwise_initializer()->set_kind(v1::Initializer::CONSTANT);
  scale.mutable_depthwise_initializer()->set_value(kScale);
  w.Activation(name + "_identity", v1::LINEAR);
  w.Add(w.Numbered("add"), input, w.last());
}

}  // namespace

v1::Model MakeConvNeXtTiny(const std::vector<int32_t>& input_shape, int32_t classes) {
  const std::string name = "convnext_tiny";
  LayerWriter w(name, input_shape);
  if (input_shape[2] == 3) {
    v1::Normalization& norm = *w.Append(name + "_prestem_normalization").mutable_normalization();
    for (const double mean : {0.485, 0.456, 0.406}) norm.add_mean(static_cast<float>(mean * 255));
    for (const double deviation : {0.229, 0.224, 0.225}) {
      norm.add_variance(static_cast<float>(deviation * 255 * (deviation * 255)));
    }
  }
  const std::string picture = w.last();
  w.Conv2D(name + "_stem_conv", 96, 4, 4);
  w.LayerNormalization(name + "_stem_layernorm", kEpsilon);
  w.Enclose(name + "_stem", picture, 2);
  constexpr int kBlocks[] = {3, 3, 9, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int32_t filters = 96 << stage;
    if (stage > 0) {
      const std::string input = w.last();
      w.LayerNormalization(absl::StrCat(name, "_downsampling_layernorm_", stage - 1), kEpsilon);
      w.Conv2D(absl::StrCat(name, "_downsampling_conv_", stage - 1), filters, 2, 2);
      w.Enclose(absl::StrCat(name, "_downsampling_block_", stage - 1), input, 2);
    }
    for (int block = 0; block < kBlocks[stage]; ++block) {
      Block(w, absl::StrCat(name, "_stage_", stage, "_block_", block), filters);
    }
  }
  w.GlobalAveragePooling2D(name + "_head_gap");
  w.LayerNormalization(name + "_head_layernorm", kEpsilon);
  w.Dense(name + "_head_dense", classes, v1::SOFTMAX);
  return w.Take();
}

}  // namespace cairn
