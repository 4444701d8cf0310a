#include "worker/backend/onednn/window_rows.h"

#include <cstring>

#include "common/model/window.h"
#include "worker/backend/onednn/kernels.h"

namespace cairn::onednn {

WindowRows::WindowRows(const Window& window, int axes, const Shape& image, const Shape& sides)
    : channels_(image.back()) {
  for (int i = 0; i < axes; ++i) {
    const int at = 3 - axes + i;
    axes_[at] = AxisOf(window, axes, i);
    image_[at] = image[static_cast<size_t>(i)];
    sides_[at] = sides[static_cast<size_t>(i)];
    pixels_ *= image_[at];
    positions_ *= sides_[at];
    taps_ *= axes_[at].kernel;
  }
}

template <typename Fn>
void WindowRows::ForEachTap(Fn fn) const {
  const auto place = [&](int axis, int64_t position, int64_t tap) {
    const int64_t at = position * axes_[axis].stride + tap * axes_[axis].dilation - axes_[axis].pad_begin;
    return at < image_[axis] ? at : -1;  // below 0: before the edge
  };
  for (int64_t row = 0; row < positions_; ++row) {
    const int64_t z = row / (sides_[1] * sides_[2]), y = row / sides_[2] % sides_[1], x = row % sides_[2];
    int64_t tap = 0;
    for (int64_t kz = 0; kz < axes_[0].kernel; ++kz) {
      const int64_t iz = place(0, z, kz);
      for (int64_t ky = 0; ky < axes_[1].kernel; ++ky) {
        const int64_t iy = place(1, y, ky);
        for (int64_t kx = 0; kx < axes_[2].kernel; ++kx) {
          const int64_t ix = place(2, x, kx);
          const bool within = iz >= 0 && iy >= 0 && ix >= 0;
          fn(row, tap++, within ? (iz * image_[1] + iy) * image_[2] + ix : -1);
        }
      }
    }
  }
}

void WindowRows::Gather(int64_t images, const float* from, float* rows) const {
  const size_t bytes = static_cast<size_t>(channels_) * sizeof(float);
#pragma omp parallel for schedule(static) if (images * positions_ * width() >= kParallelNumbersMin)
  for (int64_t n = 0; n < images; ++n) {
    const float* const image = from + n * pixels_ * channels_;
    float* const own = rows + n * positions_ * width();
    ForEachTap([&](int64_t row, int64_t tap, int64_t pixel) {
      float* const to = own + row * width() + tap * channels_;
      if (pixel < 0) {
        std::memset(to, 0, bytes);
      } else {
        std::memcpy(to, image + pixel * channels_, bytes);
      }
    });
  }
}

void WindowRows::Scatter(int64_t images, const float* rows, float* to) const {
#pragma omp parallel for schedule(static) if (images * positions_ * width() >= kParallelNumbersMin)
  for (int64_t n = 0; n < images; ++n) {
    float* const image = to + n * pixels_ * channels_;
    const float* const own = rows + n * positions_ * width();
    std::memset(image, 0, static_cast<size_t>(pixels_ * channels_) * sizeof(float));
    ForEachTap([&](int64_t row, int64_t tap, int64_t pixel) {
      if (pixel < 0) return;
      const float* const d = own + row * width() + tap * channels_;
      float* const sum = image + pixel * channels_;
      for (int64_t c = 0; c < channels_; ++c) sum[c] += d[c];
    });
  }
}

}  // namespace cairn::onednn
