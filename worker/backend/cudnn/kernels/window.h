// Which positions a window covers, and which windows cover a position.
#pragma once

#include "worker/backend/cudnn/kernels/places.h"

namespace cairn::cudnn::kernels {

struct Geometry {
  Places in, out;
  int32_t kernel[2], strides[2], dilation[2], pad[2];
  explicit Geometry(const Window& w) : in(w.in, Count(w, w.in)), out(w.out, Count(w, w.out)) {
    for (int d = 0; d < 2; ++d) {
      kernel[d] = static_cast<int32_t>(w.kernel[d]);
      strides[d] = static_cast<int32_t>(w.strides[d]);
      dilation[d] = static_cast<int32_t>(w.dilation[d]);
      pad[d] = static_cast<int32_t>(w.pad[d]);
    }
  }
  CAIRN_DEVICE int32_t height() const { return static_cast<int32_t>(in.height.divisor()); }
  CAIRN_DEVICE int32_t width() const { return static_cast<int32_t>(in.width.divisor()); }

  // A position in a window: the distance of its pixel from the origin of the window in the padded image.
  struct Tap {
    int32_t y, x;
  };
  CAIRN_DEVICE Tap TapOf(int32_t place) const {
    return {place / kernel[1] * dilation[0] - pad[0], place % kernel[1] * dilation[1] - pad[1]};
  }
  // The index of the input number under the tap, for the output pixel `row` (counted over all examples); negative: it
  // is outside the image.
  CAIRN_DEVICE int64_t InputUnder(const Tap& tap, int64_t row, int64_t channel) const {
    int64_t rest, example;
    const int32_t x = static_cast<int32_t>(out.width.Split(row, &rest)) * strides[1] + tap.x;
    const int32_t y = static_cast<int32_t>(out.height.Split(rest, &example)) * strides[0] + tap.y;
    return y < 0 || y >= height() || x < 0 || x >= width() ? -1 : in.Index(example, y, x, channel);
  }

  CAIRN_DEVICE bool Inside(int32_t y, int32_t x) const { return y >= 0 && y < height() && x >= 0 && x < width(); }
  // Calls fn(y, x, index within the window) for each pixel that window (out_y, out_x) covers, row by row; kAll: also
  // for those of the padding.
  template <bool kAll = false, class Fn>
  CAIRN_DEVICE void ForEachTap(int64_t out_y, int64_t out_x, Fn fn) const {
    const int32_t y0 = static_cast<int32_t>(out_y) * strides[0] - pad[0],
                  x0 = static_cast<int32_t>(out_x) * strides[1] - pad[1];
    for (int32_t ky = 0; ky < kernel[0]; ++ky) {
      const int32_t y = y0 + ky * dilation[0];
      if (!kAll && (y < 0 || y >= height())) continue;
      for (int32_t kx = 0; kx < kernel[1]; ++kx) {
        const int32_t x = x0 + kx * dilation[1];
        if (kAll || (x >= 0 && x < width())) fn(y, x, ky * kernel[1] + kx);
      }
    }
  }
  // Calls fn(out, k) for each window along axis `d` whose k-th tap covers the position in the padded image, in their
  // order. The taps of neighbouring windows at one position are `stride` apart, so that no division is needed for each.
  template <class Fn>
  CAIRN_DEVICE void ForEachCovering(int d, int32_t place, int64_t size, Fn fn) const {
    const bool dense = dilation[d] == 1;
    const int32_t window = place / strides[d], first = dense ? place - window * strides[d] : 0,
                  step = dense ? strides[d] : 1;
    int32_t turn = -1;
    while (first + (turn + 1) * step < kernel[d]) ++turn;
    for (; turn >= 0; --turn) {
      const int32_t k = first + turn * step, from = place - k * dilation[d],
                    to = dense ? window - turn : from / strides[d];
      if (from >= 0 && (dense || from % strides[d] == 0) && to < size) fn(to, k);
    }
  }
  // Calls fn(out_y, out_x, index within that window) for each window that covers (y, x), row by row.
  template <class Fn>
  CAIRN_DEVICE void ForEachWindow(int64_t in_y, int64_t in_x, Fn fn) const {
    const int32_t y = static_cast<int32_t>(in_y) + pad[0], x = static_cast<int32_t>(in_x) + pad[1];
    ForEachCovering(0, y, out.height.divisor(), [&](int32_t out_y, int32_t ky) {
      ForEachCovering(1, x, out.width.divisor(),
                      [&](int32_t out_x, int32_t kx) { fn(out_y, out_x, ky * kernel[1] + kx); });
    });
  }
};

}  // namespace cairn::cudnn::kernels
