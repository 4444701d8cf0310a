// Recolours, sharpens and blurs pictures of floats in 0 .. 255: the arithmetic of Keras' augmentation layers
// (keras/src/layers/preprocessing/image_preprocessing).
//
// Free functions; any thread. Every processor computes the same bits: float32 in a fixed order. Functions that need
// colours require 3 channels. Results are clipped to 0 .. 255 where Keras does so.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "common/data/warp.h"

namespace cairn {

// Multiplies the saturation (of hue, saturation, value) by `factor`, which is at least 0.
void Saturate(const PictureShape3& shape, float factor, float* numbers);
// Rotates the hue by `turns` of a full turn, -1 .. 1.
void ShiftHue(const PictureShape3& shape, float turns, float* numbers);
// Sets every channel to 0.2989 red + 0.5870 green + 0.1140 blue. A picture of one channel is left unchanged.
void MakeGrey(const PictureShape3& shape, float* numbers);
// x + share (grey - x).
void Degenerate(const PictureShape3& shape, float share, float* numbers);
void Invert(const PictureShape3& shape, float* numbers);
// Keeps the `bits` (1 .. 8) highest bits of the integer part of each number.
void Posterize(const PictureShape3& shape, int bits, float* numbers);
// Adds `addition`, then inverts all values that are not below the threshold.
void Solarize(const PictureShape3& shape, float addition, float threshold, float* numbers);
// Maps each channel linearly so that its minimum becomes 0 and its maximum 255.
void StretchContrast(const PictureShape3& shape, float* numbers);
// Equalizes the histogram of each channel with `bins` bins (at least 2).
void Equalize(const PictureShape3& shape, int bins, float* numbers);
// x + (1 - sharpness) (smoothed - x). Smoothing weighs the centre by 5/13 and its neighbours by 1/13; beyond the
// borders are zeros.
void Sharpen(const PictureShape3& shape, float sharpness, float* numbers);

// A Gaussian kernel of `pixels` (odd) and this deviation, normalized to a sum of 1.
struct Gaussian {
  int64_t pixels = 3;
  float sigma = 1;
};
// Beyond the borders are zeros. BlurUnclipped: of any numbers.
void BlurUnclipped(const PictureShape3& shape, const Gaussian& across, const Gaussian& down, float* numbers);
void Blur(const PictureShape3& shape, const Gaussian& across, const Gaussian& down, float* numbers);

}  // namespace cairn
