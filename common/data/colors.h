// Pictures of floats 0 .. 255 recoloured, sharpened and blurred: the arithmetic of Keras' layers below augmentation
// (keras/src/layers/preprocessing/image_preprocessing).
//
// Free functions; any thread. The same bits on every processor: float32 in a fixed order. Where they need colours the
// picture has 3 channels. Results are cut to 0 .. 255 where Keras does it.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/data/warp.h"

namespace cairn {

// The saturation (of hue, saturation, value) becomes `factor` times what it was, at least 0.
void Saturate(const PictureShape3& shape, float factor, float* numbers);
// The hue moves by `turns` of a full one, -1 .. 1.
void ShiftHue(const PictureShape3& shape, float turns, float* numbers);
// Every channel becomes 0.2989 red + 0.5870 green + 0.1140 blue; a picture of one channel stays.
void MakeGrey(const PictureShape3& shape, float* numbers);
// x + share (grey - x).
void Degenerate(const PictureShape3& shape, float share, float* numbers);
void Invert(const PictureShape3& shape, float* numbers);
// Keeps the first `bits` (1 .. 8) of the whole part of each number.
void Posterize(const PictureShape3& shape, int bits, float* numbers);
// What is below the threshold after the addition stays, the rest is inverted.
void Solarize(const PictureShape3& shape, float addition, float threshold, float* numbers);
// Each channel's smallest number becomes 0, its largest 255.
void StretchContrast(const PictureShape3& shape, float* numbers);
// Each channel by the distribution of its numbers over `bins` (at least 2).
void Equalize(const PictureShape3& shape, int bins, float* numbers);
// x + (1 - sharpness) (smoothed - x), smoothed by 5/13 in the middle and 1/13 around it; beyond the borders are zeros.
void Sharpen(const PictureShape3& shape, float sharpness, float* numbers);

// A Gaussian of so many pixels (odd) and this deviation, whose weights' sum is 1.
struct Gaussian {
  int64_t pixels = 3;
  float sigma = 1;
};
// Zeros beyond the borders.
void Blur(const PictureShape3& shape, const Gaussian& across, const Gaussian& down, float* numbers);

}  // namespace cairn
