// Pictures of floats moved, turned and scaled: the arithmetic below augmentation.
//
// Pure functions; any thread. The same bits on every processor: float32 in a fixed order (the build keeps the compiler
// from fusing), sine and cosine of our own.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "cairn/v1/data.pb.h"

namespace cairn {

struct PictureShape3 {
  int64_t height = 0, width = 0, channels = 0;
  int64_t row() const { return width * channels; }
  int64_t size() const { return height * width * channels; }
};

// Where the output's pixel (x, y) takes its value from: x_in = xx x + xy y + x0, y_in = yx x + yy y + y0.
struct Affine2 {
  float xx = 1, xy = 0, x0 = 0;
  float yx = 0, yy = 1, y0 = 0;
};

// A turn by `turns` of a full one about the picture's middle, counter-clockwise as seen; as
// keras.layers.RandomRotation.
Affine2 Rotation(const PictureShape3& shape, double turns);
// As keras.layers.RandomZoom: more than 1 shows more of the surroundings, less is a part enlarged.
Affine2 Zoom(const PictureShape3& shape, float height, float width);
// Moves the picture down by `down` and to the right by `right` pixels.
Affine2 Translation(float down, float right);

// out[y][x] = the bilinear value of `in` at the affine's place. `in` and `out` do not overlap. Beyond the borders the
// picture goes on by the fill mode:
//
//   REFLECT        d c b a | a b c d | d c b a        WRAP             a b c d | a b c d | a b c d
//   NEAREST_PIXEL  a a a a | a b c d | d d d d        FILL_CONSTANT    k k k k | a b c d | k k k k
void Warp(const PictureShape3& shape, const Affine2& affine, v1::FillMode fill_mode, float fill_value, const float* in,
          float* out);

// Where a part of a picture lies; it may be outside.
struct PicturePart {
  int64_t top = 0, left = 0;
  int64_t height = 0, width = 0;
};

// The part of `in` (zeros outside), resized to the size of `to` (bilinear, half-pixel centers) where that is another.
void CropAndResize(const PictureShape3& shape, const PicturePart& part, const PictureShape3& to, const float* in,
                   float* out);

// Of `turns` of a full turn, within 2^-50.
void SinCos(double turns, double* sine, double* cosine);

}  // namespace cairn
