#include "common/data/colors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/data/elementary.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

float Cut(float x) { return std::clamp(x, 0.0f, kPixelMax); }

using Pixel = std::array<float, 3>;

// The hue is in turns, 0 .. 1.
Pixel HsvOf(const float* rgb) {
  const float r = rgb[0], g = rgb[1], b = rgb[2];
  const float value = std::max(std::max(r, g), b), range = value - std::min(std::min(r, g), b);
  if (!(range > 0)) return {0, 0, value};
  const float norm = 1.0f / (6.0f * range);
  float hue = value == g ? norm * (b - r) + 2.0f / 6.0f : norm * (r - g) + 4.0f / 6.0f;
  if (value == r) hue = norm * (g - b);
  if (hue < 0) hue += 1;
  return {hue, value > 0 ? range / value : 0.0f, value};
}

void SetHsv(const Pixel& hsv, float* rgb) {
  const auto [hue, saturation, value] = hsv;
  const float turn = (hue - std::floor(hue)) * 6.0f, rest = 1.0f - saturation;
  const float shares[] = {std::clamp(std::fabs(turn - 3.0f) - 1.0f, 0.0f, 1.0f),
                          std::clamp(2.0f - std::fabs(turn - 2.0f), 0.0f, 1.0f),
                          std::clamp(2.0f - std::fabs(turn - 4.0f), 0.0f, 1.0f)};
  for (int c = 0; c < 3; ++c) rgb[c] = value * (rest + saturation * shares[c]);
}

template <typename Change>
void EachPixel(const PictureShape3& shape, float* numbers, const Change& change) {
  for (int64_t i = 0; i < shape.height * shape.width; ++i, numbers += shape.channels) change(numbers);
}

float GreyOf(const float* rgb) { return rgb[0] * 0.2989f + rgb[1] * 0.5870f + rgb[2] * 0.1140f; }

std::vector<float> WeightsOf(const Gaussian& gaussian) {
  std::vector<float> weights;
  float sum = 0;
  for (int64_t i = 0; i < gaussian.pixels; ++i) {
    const float x = (static_cast<float>(i) - static_cast<float>(gaussian.pixels - 1) / 2) / gaussian.sigma;
    // So far out the weight is 0 whatever the exponent is.
    weights.push_back(static_cast<float>(ExactExp(std::max(-0.5 * static_cast<double>(x) * x, -700.0))));
    sum += weights.back();
  }
  for (float& weight : weights) weight /= sum;
  return weights;
}

// out[i] = sum of weights[k] in[i + (k - middle) * step] over a line of `count` numbers with distance `step`.
void Smooth(const std::vector<float>& weights, int64_t count, int64_t step, const float* in, float* out) {
  const int64_t taps = static_cast<int64_t>(weights.size()), middle = taps / 2;
  for (int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int64_t k = std::max<int64_t>(0, middle - i); k < std::min(taps, count + middle - i); ++k) {
      sum += weights[static_cast<size_t>(k)] * in[(i + k - middle) * step];
    }
    out[i * step] = sum;
  }
}

}  // namespace

void Saturate(const PictureShape3& shape, float factor, float* numbers) {
  EachPixel(shape, numbers, [factor](float* rgb) {
    Pixel hsv = HsvOf(rgb);
    hsv[1] = Cut(hsv[1] * factor);
    SetHsv(hsv, rgb);
  });
}

void ShiftHue(const PictureShape3& shape, float turns, float* numbers) {
  EachPixel(shape, numbers, [turns](float* rgb) {
    const float scaled[] = {rgb[0] / kPixelMax, rgb[1] / kPixelMax, rgb[2] / kPixelMax};
    Pixel hsv = HsvOf(scaled);
    hsv[0] += turns;
    if (hsv[0] > 1) hsv[0] -= 1;
    if (hsv[0] < 0) hsv[0] += 1;
    SetHsv(hsv, rgb);
    for (int c = 0; c < 3; ++c) rgb[c] = std::clamp(rgb[c], 0.0f, 1.0f) * kPixelMax;
  });
}

void MakeGrey(const PictureShape3& shape, float* numbers) {
  if (shape.channels != 3) return;
  EachPixel(shape, numbers, [](float* rgb) { std::fill(rgb, rgb + 3, GreyOf(rgb)); });
}

void Degenerate(const PictureShape3& shape, float share, float* numbers) {
  EachPixel(shape, numbers, [&](float* pixel) {
    const float grey = shape.channels == 3 ? GreyOf(pixel) : pixel[0];
    for (int64_t c = 0; c < shape.channels; ++c) pixel[c] = Cut(pixel[c] + share * (grey - pixel[c]));
  });
}

void Invert(const PictureShape3& shape, float* numbers) {
  for (int64_t i = 0; i < shape.size(); ++i) numbers[i] = kPixelMax - numbers[i];
}

void Posterize(const PictureShape3& shape, int bits, float* numbers) {
  const int lost = 8 - bits;
  for (int64_t i = 0; i < shape.size(); ++i) {
    numbers[i] = static_cast<float>(static_cast<int>(Cut(numbers[i])) >> lost << lost);
  }
}

void Solarize(const PictureShape3& shape, float addition, float threshold, float* numbers) {
  for (int64_t i = 0; i < shape.size(); ++i) {
    const float x = Cut(numbers[i] + addition);
    numbers[i] = x < threshold ? x : kPixelMax - x;
  }
}

void StretchContrast(const PictureShape3& shape, float* numbers) {
  const int64_t channels = shape.channels;
  for (int64_t c = 0; c < channels; ++c) {
    float low = numbers[c], high = numbers[c];
    for (int64_t i = c; i < shape.size(); i += channels) {
      low = std::min(low, numbers[i]);
      high = std::max(high, numbers[i]);
    }
    if (!(high > low)) continue;
    const float scale = kPixelMax / (high - low), offset = -low * scale;
    for (int64_t i = c; i < shape.size(); i += channels) numbers[i] = Cut(numbers[i] * scale + offset);
  }
}

void Equalize(const PictureShape3& shape, int bins, float* numbers) {
  const int64_t channels = shape.channels;
  const float last = static_cast<float>(bins - 1);
  std::vector<int64_t> counts;
  std::vector<float> table(static_cast<size_t>(bins));
  for (int64_t c = 0; c < channels; ++c) {
    counts.assign(static_cast<size_t>(bins), 0);
    for (int64_t i = c; i < shape.size(); i += channels) {
      ++counts[static_cast<size_t>(std::clamp(numbers[i] * last / kPixelMax, 0.0f, last))];
    }
    if (std::count_if(counts.begin(), counts.end(), [](int64_t n) { return n > 0; }) <= 1) continue;
    int64_t below = 0, first = 0;
    const int64_t all = shape.height * shape.width;
    for (size_t bin = 0; bin < table.size(); ++bin) {
      below += counts[bin];
      if (first == 0) first = below;
      const double share =
          static_cast<double>(below - first) * 255 / static_cast<double>(std::max<int64_t>(all - first, 1));
      table[bin] = static_cast<float>(std::clamp(std::nearbyint(share), 0.0, 255.0));
    }
    for (int64_t i = c; i < shape.size(); i += channels) {
      numbers[i] = table[static_cast<size_t>(std::clamp(numbers[i] / kPixelMax * last, 0.0f, last))];
    }
  }
}

void Sharpen(const PictureShape3& shape, float sharpness, float* numbers) {
  constexpr float kAround = 1.0f / 13.0f, kMiddle = 5.0f / 13.0f;
  const std::vector<float> before(numbers, numbers + shape.size());
  for (int64_t y = 0; y < shape.height; ++y) {
    for (int64_t x = 0; x < shape.width; ++x) {
      for (int64_t c = 0; c < shape.channels; ++c) {
        float smoothed = 0;
        for (int64_t v = std::max<int64_t>(y - 1, 0); v <= std::min(y + 1, shape.height - 1); ++v) {
          for (int64_t u = std::max<int64_t>(x - 1, 0); u <= std::min(x + 1, shape.width - 1); ++u) {
            const float weight = u == x && v == y ? kMiddle : kAround;
            smoothed += weight * before[static_cast<size_t>(v * shape.row() + u * shape.channels + c)];
          }
        }
        float& number = numbers[y * shape.row() + x * shape.channels + c];
        number = Cut(number + (1.0f - sharpness) * (smoothed - number));
      }
    }
  }
}

void BlurUnclipped(const PictureShape3& shape, const Gaussian& across, const Gaussian& down, float* numbers) {
  std::vector<float> between(static_cast<size_t>(shape.size()));
  const std::vector<float> right = WeightsOf(across), below = WeightsOf(down);
  for (int64_t y = 0; y < shape.height; ++y) {
    for (int64_t c = 0; c < shape.channels; ++c) {
      const int64_t line = y * shape.row() + c;
      Smooth(right, shape.width, shape.channels, numbers + line, between.data() + line);
    }
  }
  for (int64_t i = 0; i < shape.row(); ++i) Smooth(below, shape.height, shape.row(), between.data() + i, numbers + i);
}

void Blur(const PictureShape3& shape, const Gaussian& across, const Gaussian& down, float* numbers) {
  BlurUnclipped(shape, across, down, numbers);
  for (int64_t i = 0; i < shape.size(); ++i) numbers[i] = Cut(numbers[i]);
}

}  // namespace cairn
