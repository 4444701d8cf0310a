#include "common/data/augment_colors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/data/colors.h"
#include "common/data/distributions.h"
#include "common/data/limits.h"
#include "common/data/perspective.h"

namespace cairn {
namespace {

using Factor = google::protobuf::RepeatedField<float>;

struct Range {
  float low = 0, high = 0;
};

// A single number f means [0, f].
Range FromZero(const Factor& factor, const Range& otherwise) {
  if (factor.empty()) return otherwise;
  return factor.size() == 2 ? Range{factor[0], factor[1]} : Range{0, factor[0]};
}

// A single number f means [-f, f].
Range Around(const Factor& factor) {
  return factor.size() == 2 ? Range{factor[0], factor[1]} : Range{-factor[0], factor[0]};
}

float Draw(AugmentDraws& draws, const Range& range) { return draws.Uniform(range.low, range.high); }

// Whether the step applies, with the probability of its factor (1 if unset).
template <typename Step>
bool Happens(AugmentDraws& draws, const Step& step) {
  return draws.Uniform(0, 1) < (step.has_factor() ? step.factor() : 1.0f);
}

void Saturation(const v1::RandomSaturation& step, AugmentDraws& draws, const PictureShape3& shape, float* numbers) {
  constexpr float kEpsilon = 1e-7f;  // keras.config.epsilon()
  const float factor = Draw(draws, Around(step.factor()));
  Saturate(shape, factor / (1 - factor + kEpsilon), numbers);
}

void Hue(const v1::RandomHue& step, AugmentDraws& draws, const PictureShape3& shape, float* numbers) {
  const float side = draws.Uniform(0, 1) > 0.5f ? -1.0f : 1.0f;
  ShiftHue(shape, side * Draw(draws, FromZero(step.factor(), {})) * 0.5f, numbers);
}

void Posterization(const v1::RandomPosterization& step, AugmentDraws& draws, const PictureShape3& shape,
                   float* numbers) {
  const Range range = step.factor_size() == 2 ? Range{step.factor(0), step.factor(1)} : Range{1, step.factor(0)};
  const int low = static_cast<int>(range.low), high = static_cast<int>(range.high);
  Posterize(shape, low == high ? low : low + static_cast<int>(draws.Below(high - low)), numbers);
}

void GaussianBlur(const v1::RandomGaussianBlur& step, AugmentDraws& draws, const PictureShape3& shape, float* numbers) {
  const bool blurred = Happens(draws, step);
  Gaussian both[2];
  for (int i = 0; i < 2; ++i) {
    const int sizes = step.kernel_size_size();
    both[i].pixels = sizes == 0 ? 3 : step.kernel_size(sizes == 1 ? 0 : i);
    both[i].sigma = Draw(draws, FromZero(step.sigma(), {0, 1})) + 1e-6f;
  }
  if (blurred) Blur(shape, both[0], both[1], numbers);
}

struct Span {
  float begin = 0, end = 0;
};

Span Cut(AugmentDraws& draws, int64_t side, float share) {
  const float length = share * static_cast<float>(side);
  const float begin = draws.Uniform(0, 1) * (static_cast<float>(side) - length);
  return {begin, begin + length};
}

void Erasing(const v1::RandomErasing& step, AugmentDraws& draws, const PictureShape3& shape, float* numbers) {
  const Range scale = FromZero(step.scale(), {0.02f, 0.33f});
  const float wide = std::sqrt(Draw(draws, scale)), high = std::sqrt(Draw(draws, scale));
  const Span columns = Cut(draws, shape.width, wide), rows = Cut(draws, shape.height, high);
  if (!Happens(draws, step)) return;
  const auto within = [](const Span& span, int64_t i) {
    return static_cast<float>(i) >= span.begin && static_cast<float>(i) < span.end;
  };
  for (int64_t y = 0; y < shape.height; ++y) {
    for (int64_t x = 0; within(rows, y) && x < shape.width; ++x) {
      for (int64_t c = 0; within(columns, x) && c < shape.channels; ++c) {
        const float fill = step.has_fill_value() ? step.fill_value() : DrawNormal(draws) * kPixelMax;
        numbers[y * shape.row() + x * shape.channels + c] = std::clamp(fill, 0.0f, kPixelMax);
      }
    }
  }
}

void Perspective(const v1::RandomPerspective& step, AugmentDraws& draws, const PictureShape3& shape, float* numbers) {
  const bool moved = Happens(draws, step);
  const float scale = step.has_scale() ? step.scale() : 1.0f;
  const double right = static_cast<double>(shape.width - 1), bottom = static_cast<double>(shape.height - 1);
  const std::array<Point2, 4> from = {{{0, 0}, {right, 0}, {0, bottom}, {right, bottom}}};
  std::array<Point2, 4> to = from;
  for (Point2& corner : to) {
    corner.x += corner.x * static_cast<double>(draws.Uniform(-0.5f * scale, 0.5f * scale));
    corner.y += corner.y * static_cast<double>(draws.Uniform(-0.5f * scale, 0.5f * scale));
  }
  const Projection projection = ProjectionOf(from, to);
  if (!moved || projection == Projection{}) return;
  const std::vector<float> before(numbers, numbers + shape.size());
  Project(shape, projection, step.nearest(), step.fill_value(), before.data(), numbers);
}

// Draws from `low` to 255 times `high`.
float Brightness(AugmentDraws& draws, const Factor& factor) {
  const Range range = FromZero(factor, {});
  return draws.Uniform(range.low, range.high * kPixelMax);
}

}  // namespace

bool ApplyColors(const v1::Augmentation& step, AugmentDraws& draws, const PictureShape3& shape, float* numbers) {
  switch (step.kind_case()) {
    case v1::Augmentation::kRandomSaturation: Saturation(step.random_saturation(), draws, shape, numbers); return true;
    case v1::Augmentation::kRandomHue: Hue(step.random_hue(), draws, shape, numbers); return true;
    case v1::Augmentation::kRandomGrayscale: {
      const v1::RandomGrayscale& grayscale = step.random_grayscale();
      if (draws.Uniform(0, 1) < (grayscale.has_factor() ? grayscale.factor() : 0.5f)) MakeGrey(shape, numbers);
      return true;
    }
    case v1::Augmentation::kRandomColorDegeneration:
      Degenerate(shape, Draw(draws, Around(step.random_color_degeneration().factor())), numbers);
      return true;
    case v1::Augmentation::kRandomInvert:
      if (Happens(draws, step.random_invert())) Invert(shape, numbers);
      return true;
    case v1::Augmentation::kRandomPosterization:
      Posterization(step.random_posterization(), draws, shape, numbers);
      return true;
    case v1::Augmentation::kRandomSharpness:
      Sharpen(shape, Draw(draws, FromZero(step.random_sharpness().factor(), {})) * 2, numbers);
      return true;
    case v1::Augmentation::kRandomGaussianBlur:
      GaussianBlur(step.random_gaussian_blur(), draws, shape, numbers);
      return true;
    case v1::Augmentation::kRandomErasing: Erasing(step.random_erasing(), draws, shape, numbers); return true;
    case v1::Augmentation::kRandomPerspective:
      Perspective(step.random_perspective(), draws, shape, numbers);
      return true;
    case v1::Augmentation::kAutoContrast: StretchContrast(shape, numbers); return true;
    case v1::Augmentation::kEqualization:
      Equalize(shape, step.equalization().has_bins() ? step.equalization().bins() : 256, numbers);
      return true;
    case v1::Augmentation::kSolarization: {
      const float addition = Brightness(draws, step.solarization().addition_factor());
      Solarize(shape, addition, Brightness(draws, step.solarization().threshold_factor()), numbers);
      return true;
    }
    default: return false;
  }
}

v1::Augmentation RandAugmentLayer(const v1::RandAugment& augment, int layer) {
  return AugmentLayer(0, augment.has_factor() ? augment.factor() : 0.5f, layer);
}

v1::Augmentation AugmentLayer(float low, float high, int layer) {
  const Range range = {low, high};
  v1::Augmentation step;
  const auto set = [&](Factor* factor) {
    factor->Add(range.low);
    factor->Add(range.high);
  };
  switch (layer) {
    case 0:
      set(step.mutable_random_shear()->mutable_x_factor());
      set(step.mutable_random_shear()->mutable_y_factor());
      break;
    case 1:
      set(step.mutable_random_translation()->mutable_height_factor());
      set(step.mutable_random_translation()->mutable_width_factor());
      break;
    case 2: set(step.mutable_random_rotation()->mutable_factor()); break;
    case 3: set(step.mutable_random_brightness()->mutable_factor()); break;
    case 4: set(step.mutable_random_color_degeneration()->mutable_factor()); break;
    case 5: set(step.mutable_random_contrast()->mutable_factor()); break;
    case 6: set(step.mutable_random_sharpness()->mutable_factor()); break;
    case 7: {
      const int bits = std::max(1, static_cast<int>(8 * range.high));
      step.mutable_random_posterization()->add_factor(static_cast<float>(bits));
      break;
    }
    case 8:
      set(step.mutable_solarization()->mutable_addition_factor());
      set(step.mutable_solarization()->mutable_threshold_factor());
      break;
    case 9: step.mutable_auto_contrast(); break;
    default: step.mutable_equalization();
  }
  return step;
}

std::vector<v1::Augmentation> ColorJitterSteps(const v1::RandomColorJitter& jitter) {
  std::vector<v1::Augmentation> steps;
  if (jitter.brightness_factor_size() > 0)
    *steps.emplace_back().mutable_random_brightness()->mutable_factor() = jitter.brightness_factor();
  if (jitter.contrast_factor_size() > 0)
    *steps.emplace_back().mutable_random_contrast()->mutable_factor() = jitter.contrast_factor();
  if (jitter.saturation_factor_size() > 0)
    *steps.emplace_back().mutable_random_saturation()->mutable_factor() = jitter.saturation_factor();
  if (jitter.hue_factor_size() > 0) *steps.emplace_back().mutable_random_hue()->mutable_factor() = jitter.hue_factor();
  return steps;
}

}  // namespace cairn
