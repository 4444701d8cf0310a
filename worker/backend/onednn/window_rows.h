// WindowRows: a convolution as a product of matrices. For each position of a window over images of `channels` numbers,
// a row with the numbers under the window, kernel place by kernel place as the rows of a kernel [sides.., in, out]
// stand; 0 beyond the edges.
//
// Immutable; any thread. An image is gathered or scattered on one thread, in a fixed order.
#pragma once

#include <cstdint>

#include "common/model/graph.h"

namespace cairn::onednn {

class WindowRows {
 public:
  // image: [sides.., channels], of `axes` sides. sides: of the positions.
  WindowRows(const Window& window, int axes, const Shape& image, const Shape& sides);

  int64_t positions() const { return positions_; }  // rows of an image
  int64_t width() const { return taps_ * channels_; }
  // images: one after the other; rows: [images, positions(), width()].
  void Gather(int64_t images, const float* from, float* rows) const;
  // The reverse: each number is added to the one that it was gathered from. to: is overwritten.
  void Scatter(int64_t images, const float* rows, float* to) const;

 private:
  // Calls fn(row, tap, pixel) for each tap of each position; pixel -1: beyond the edges.
  template <typename Fn>
  void ForEachTap(Fn fn) const;

  WindowAxis axes_[3];  // depth, height, width
  int64_t image_[3] = {1, 1, 1}, sides_[3] = {1, 1, 1};
  int64_t channels_ = 0, pixels_ = 1, positions_ = 1, taps_ = 1;
};

}  // namespace cairn::onednn
