// The maxima of windows of an image that do not overlap, and their gradients: several times as fast as oneDNN's pooling
// where vectors have eight numbers, with its bits.
//
// Thread-safe. Bits are those of oneDNN 2.6: the first of equal numbers is the maximum; a NaN never is; a window
// without a number above the least float has that float, and its gradient goes to its first place. -0 becomes 0 on the
// way back.
#pragma once

#include <cstdint>

namespace cairn::onednn {

// An image in memory: [height, width, channels]. All sizes are at least 1, and every window lies in the image.
struct WindowGrid {
  int64_t height, width;  // of the image
  int64_t channels;       // neighbours in memory: all, or a block of them
  int64_t rows, columns;  // of the windows
  int64_t window_height, window_width;
  int64_t row_step, column_step;  // from one window to the next; at least its size unless there is one window only

  int64_t image_numbers() const { return height * width * channels; }
  int64_t window_numbers() const { return rows * columns * channels; }  // one for each window and channel
};

inline constexpr int64_t kPlacesOfByte = 256;  // window_height * window_width is at most that

// y [rows, columns, channels]: the maxima of x; places, likewise: where in its window each was. places may be null.
void MaximaOfWindows(const WindowGrid& grid, const float* x, float* y, uint8_t* places);
// dx [height, width, channels]: dy where the maximum was, 0 elsewhere.
void MaximaBackward(const WindowGrid& grid, const float* dy, const uint8_t* places, float* dx);

}  // namespace cairn::onednn
