// U-Net (Ronneberger, Fischer and Brox 2015) with padded convolutions, so that its output, a class for each pixel, has
// the size of its input.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/ready_made/layer_writer.h"
#include "common/model/ready_made/models.h"

namespace cairn {
namespace {

constexpr int kDepth = 4;            // how often the size is halved
constexpr int32_t kFiltersMin = 64;  // at the first level; it doubles at each level below

void DoubleConvolution(LayerWriter& w, const std::string& name, int32_t filters) {
  for (int i = 1; i <= 2; ++i)
    w.Conv2D(absl::StrCat(name, "_conv", i), filters, 3, 1, v1::SAME).set_activation(v1::RELU);
}

}  // namespace

v1::Model MakeUnet(const std::vector<int32_t>& input_shape, int32_t classes) {
  LayerWriter w("unet", input_shape);
  w.Rescaling(1.0f / 255);
  std::vector<std::string> across;
  for (int level = 0; level < kDepth; ++level) {
    const std::string name = absl::StrCat("down", level + 1);
    DoubleConvolution(w, name, kFiltersMin << level);
    across.push_back(w.last());
    w.MaxPooling2D(name + "_pool", 2, 2);
  }
  DoubleConvolution(w, "middle", kFiltersMin << kDepth);
  for (int level = kDepth; level-- > 0;) {
    const std::string name = absl::StrCat("up", level + 1);
    v1::Conv2DTranspose& up = *w.Append(name + "_up").mutable_conv2d_transpose();
    up.set_filters(kFiltersMin << level);
    up.add_kernel_size(2);
    up.add_strides(2);
    w.Concatenate(name + "_concat", across[static_cast<size_t>(level)], w.last());
    DoubleConvolution(w, name, kFiltersMin << level);
  }
  w.Conv2D("predictions", classes, 1).set_activation(v1::SOFTMAX);
  return w.Take();
}

}  // namespace cairn
