// Moves, rotates and scales pictures of floats: the arithmetic of augmentation.
//
// Pure functions; any thread. Every processor computes the same bits: float32 in a fixed order (the build disables
// fused multiply-add), with our own sine and cosine.
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

// The input position from which the output's pixel (x, y) takes its value: x_in = xx x + xy y + x0, y_in = yx x + yy y
// + y0.
struct Affine2 {
  float xx = 1, xy = 0, x0 = 0;
  float yx = 0, yy = 1, y0 = 0;
};

// Rotates the picture about its centre by `turns` of a full turn, counter-clockwise as seen, as
// keras.layers.RandomRotation.
Affine2 Rotation(const PictureShape3& shape, double turns);
// As keras.layers.RandomZoom: a factor above 1 zooms out, below 1 zooms in.
Affine2 Zoom(const PictureShape3& shape, float height, float width);
// Moves the picture down by `down` and to the right by `right` pixels.
Affine2 Translation(float down, float right);

// out[y][x] = the bilinear value of `in` at the position that the affine map gives. `in` and `out` must not overlap.
// Beyond the borders the fill mode extends the picture:
//
//   REFLECT        d c b a | a b c d | d c b a        WRAP             a b c d | a b c d | a b c d
//   NEAREST_PIXEL  a a a a | a b c d | d d d d        FILL_CONSTANT    k k k k | a b c d | k k k k
void Warp(const PictureShape3& shape, const Affine2& affine, v1::FillMode fill_mode, float fill_value, const float* in,
          float* out);

// How far from its own place each pixel of the output takes its value, in pixels: [height, width] each.
struct Displacement {
  absl::Span<const float> across, down;
};
struct Sampling {
  v1::FillMode fill_mode = v1::FILL_MODE_UNSPECIFIED;
  float fill_value = 0;
  bool nearest = false;  // the nearest pixel instead of the bilinear value
};
// As Warp.
void Displace(const PictureShape3& shape, const Displacement& by, const Sampling& sampling, const float* in,
              float* out);

// The position of a part of a picture; it may be outside the picture.
struct PicturePart {
  int64_t top = 0, left = 0;
  int64_t height = 0, width = 0;
};

// Takes the part of `in` (zeros outside), and resizes it to the size of `to` (bilinear, half-pixel centers) if that
// differs.
void CropAndResize(const PictureShape3& shape, const PicturePart& part, const PictureShape3& to, const float* in,
                   float* out);

// The sine and cosine of `turns` full turns, within 2^-50.
void SinCos(double turns, double* sine, double* cosine);

}  // namespace cairn
