// What a window covers, and which windows cover a place.
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

  // A place of a window: how far its pixel lies from the window's step over the picture, padding included.
  struct Tap {
    int32_t y, x;
  };
  CAIRN_DEVICE Tap TapOf(int32_t place) const {
    return {place / kernel[1] * dilation[0] - pad[0], place % kernel[1] * dilation[1] - pad[1]};
  }
  // The input's number under the tap of the output's pixel `row` (over all examples); below 0: it lies outside the
  // picture.
  CAIRN_DEVICE int64_t InputUnder(const Tap& tap, int64_t row, int64_t channel) const {
    int64_t rest, example;
    const int32_t x = static_cast<int32_t>(out.width.Split(row, &rest)) * strides[1] + tap.x;
    const int32_t y = static_cast<int32_t>(out.height.Split(rest, &example)) * strides[0] + tap.y;
    return y < 0 || y >= height() || x < 0 || x >= width() ? -1 : in.Index(example, y, x, channel);
  }

  CAIRN_DEVICE bool Inside(int32_t y, int32_t x) const { return y >= 0 && y < height() && x >= 0 && x < width(); }
  // fn(y, x, place within the window) for what window (out_y, out_x) covers of the picture, row by row; kAll: and of
  // the padding.
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
  // fn(out, k) for the windows along axis `d` that cover the padded place with their k-th tap, in their order. Taps
  // that lie side by side are `stride` apart among those of one place: no division for each of them.
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
  // fn(out_y, out_x, place within that window) for the windows that cover (y, x), row by row.
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
