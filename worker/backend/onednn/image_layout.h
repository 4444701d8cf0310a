// ImageLayout: the layout of an image (or of a sequence, an image of height 1): channels last, or in blocks of
// channels.
//
// The index of (n, c, p) is n * example_stride + c / block * block_stride + c % block + p * pixel_stride. Channels last
// is one block of all channels.
#pragma once

#include <cstdint>

#include "common/base/check.h"
#include "worker/backend/onednn/builder.h"

namespace cairn::onednn {

struct ImageLayout {
  explicit ImageLayout(const Desc& desc) {
    const dnnl::memory::dims dims = desc.dims();
    const auto& layout = desc.data.format_desc.blocking;
    CAIRN_CHECK(layout.inner_nblks == 0 || (layout.inner_nblks == 1 && layout.inner_idxs[0] == 1),
                "images are blocked by channel or not at all");
    examples = dims[0];
    channels = dims[1];
    pixels = dims[2] * dims[3];
    block = layout.inner_nblks == 1 ? layout.inner_blks[0] : 1;
    padded_channels = desc.data.padded_dims[1];
    example_stride = layout.strides[0];
    block_stride = layout.strides[1];
    pixel_stride = layout.strides[3];
    if (block == 1 && block_stride == 1) {
      block = padded_channels;
      block_stride = padded_channels;
    }
  }
  int64_t examples, channels, pixels;
  int64_t block, padded_channels, example_stride, block_stride, pixel_stride;
};

}  // namespace cairn::onednn
