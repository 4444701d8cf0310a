#include "common/data/augment.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/data/augment_chains.h"
#include "common/data/augment_colors.h"
#include "common/data/limits.h"
#include "common/model/data_check.h"

namespace cairn {
namespace {

struct Range {
  float low = 0, high = 0;
};

// A single number f means [-f, f].
Range RangeOf(const google::protobuf::RepeatedField<float>& factor) {
  if (factor.size() == 2) return {factor[0], factor[1]};
  return {-factor[0], factor[0]};
}

float Draw(AugmentDraws& draws, const Range& range) { return draws.Uniform(range.low, range.high); }

// Holds the source of a warp. One buffer per thread, as large as the largest example.
float* Scratch(int64_t numbers) {
  static thread_local std::vector<float> scratch;
  if (static_cast<int64_t>(scratch.size()) < numbers) scratch.resize(static_cast<size_t>(numbers));
  return scratch.data();
}

// Flips in each direction with probability 1/2. Both bits are drawn in every mode.
void Flip(const v1::RandomFlip& flip, const PictureShape3& shape, AugmentDraws& draws, float* numbers) {
  const bool horizontal = draws.Bits() >> 31 != 0 && flip.mode() != v1::RandomFlip::VERTICAL;
  const bool vertical = draws.Bits() >> 31 != 0 && flip.mode() != v1::RandomFlip::HORIZONTAL;
  if (vertical) {
    for (int64_t y = 0; y < shape.height / 2; ++y) {
      float* row = numbers + y * shape.row();
      std::swap_ranges(row, row + shape.row(), numbers + (shape.height - 1 - y) * shape.row());
    }
  }
  if (!horizontal) return;
  for (int64_t y = 0; y < shape.height; ++y) {
    float* row = numbers + y * shape.row();
    for (int64_t x = 0; x < shape.width / 2; ++x) {
      float* left = row + x * shape.channels;
      std::swap_ranges(left, left + shape.channels, row + (shape.width - 1 - x) * shape.channels);
    }
  }
}

void WarpBy(const Affine2& affine, const PictureShape3& shape, v1::FillMode mode, float fill, float* numbers) {
  float* before = Scratch(shape.size());
  std::memcpy(before, numbers, static_cast<size_t>(shape.size()) * sizeof(float));
  Warp(shape, affine, mode, fill, before, numbers);
}

// Shears in both axes with the same sign.
void Shear(const v1::RandomShear& shear, const PictureShape3& shape, AugmentDraws& draws, float* numbers) {
  const float side = draws.Uniform(0, 1) > 0.5f ? -1.0f : 1.0f;
  Affine2 affine;
  affine.yx = shear.y_factor().empty() ? 0 : Draw(draws, RangeOf(shear.y_factor())) * side;
  affine.xy = shear.x_factor().empty() ? 0 : Draw(draws, RangeOf(shear.x_factor())) * side;
  WarpBy(affine, shape, shear.fill_mode(), shear.fill_value(), numbers);
}

void Crop(const v1::RandomCrop& crop, const PictureShape3& shape, const PictureShape3& to, AugmentDraws& draws,
          float* numbers) {
  const int64_t top = draws.Below(shape.height + 2 * crop.padding() - crop.height() + 1) - crop.padding();
  const int64_t left = draws.Below(shape.width + 2 * crop.padding() - crop.width() + 1) - crop.padding();
  float* before = Scratch(shape.size());
  std::memcpy(before, numbers, static_cast<size_t>(shape.size()) * sizeof(float));
  CropAndResize(shape, {top, left, crop.height(), crop.width()}, to, before, numbers);
}

void Brighten(const v1::RandomBrightness& brightness, const PictureShape3& shape, AugmentDraws& draws, float* numbers) {
  const float delta = Draw(draws, RangeOf(brightness.factor())) * kPixelMax;
  for (int64_t i = 0; i < shape.size(); ++i) numbers[i] = std::clamp(numbers[i] + delta, 0.0f, kPixelMax);
}

// (x - mean) f + mean, with the mean of each channel.
void Contrast(const v1::RandomContrast& contrast, const PictureShape3& shape, AugmentDraws& draws, float* numbers) {
  const float low = contrast.factor(0), high = contrast.factor_size() == 2 ? contrast.factor(1) : low;
  const float factor = draws.Uniform(1 - low, 1 + high);
  const int64_t pixels = shape.height * shape.width, channels = shape.channels;
  std::vector<double> sums(static_cast<size_t>(channels), 0.0);
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < channels; ++c) sums[c] += numbers[i * channels + c];
  }
  std::vector<float> means;
  for (double sum : sums) means.push_back(static_cast<float>(sum / static_cast<double>(pixels)));
  for (int64_t i = 0; i < pixels; ++i, numbers += channels) {
    for (int64_t c = 0; c < channels; ++c) {
      numbers[c] = std::clamp((numbers[c] - means[c]) * factor + means[c], 0.0f, kPixelMax);
    }
  }
}

// The square's centre may be any pixel, so a part of it may be outside.
void CutOut(const v1::Cutout& cutout, const PictureShape3& shape, AugmentDraws& draws, float* numbers) {
  const int64_t top = draws.Below(shape.height) - cutout.size() / 2;
  const int64_t left = draws.Below(shape.width) - cutout.size() / 2;
  const int64_t x_begin = std::max<int64_t>(left, 0), x_end = std::min(left + cutout.size(), shape.width);
  for (int64_t y = std::max<int64_t>(top, 0); y < std::min(top + cutout.size(), shape.height); ++y) {
    float* row = numbers + y * shape.row();
    std::fill(row + x_begin * shape.channels, row + std::max(x_begin, x_end) * shape.channels, cutout.fill_value());
  }
}

}  // namespace

AugmentDraws::AugmentDraws(std::array<uint32_t, 2> key, uint64_t pass, uint64_t example, uint32_t step)
    : key_(key),
      // Passes fit in 32 bits. The upper bits of the example's index, which no data set uses today, share a word with
      // the step and the draw.
      counter_{static_cast<uint32_t>(example), static_cast<uint32_t>(pass), step,
               static_cast<uint32_t>(example >> 32) << 8} {}

uint32_t AugmentDraws::Bits() {
  if (at_ == 4) {
    block_ = Philox(key_, counter_);
    ++counter_[3];
    at_ = 0;
  }
  return block_[at_++];
}

Augmenter::Augmenter(const v1::Data& data, const PictureShape3& example, const PictureShape3& input, uint64_t seed)
    : steps_(data.augmentation().begin(), data.augmentation().end()),
      example_(example),
      input_(input),
      key_(StreamKey(seed, RandomStream::kAugment)) {}

absl::StatusOr<std::shared_ptr<const Augmenter>> Augmenter::Make(const v1::Data& data, const Shape& input_shape,
                                                                 uint64_t seed) {
  if (data.augmentation().empty()) return std::shared_ptr<const Augmenter>();
  CAIRN_RETURN_IF_ERROR(CheckAugmentation(data, input_shape));
  const auto picture = [](const Shape& shape) { return PictureShape3{shape[0], shape[1], shape[2]}; };
  return std::shared_ptr<const Augmenter>(
      new Augmenter(data, picture(ExampleShape(data, input_shape)), picture(input_shape), seed));
}

void Augmenter::Apply(uint64_t pass, uint64_t example, float* numbers) const {
  PictureShape3 shape = example_;
  for (size_t i = 0; i < steps_.size(); ++i) {
    AugmentDraws draws(key_, pass, example, static_cast<uint32_t>(i));
    ApplyStep(steps_[i], draws, &shape, numbers);
  }
}

void Augmenter::ApplyStep(const v1::Augmentation& step, AugmentDraws& draws, PictureShape3* shape,
                          float* numbers) const {
  switch (step.kind_case()) {
    case v1::Augmentation::kRandomFlip: return Flip(step.random_flip(), *shape, draws, numbers);
    case v1::Augmentation::kRandomRotation: {
      const v1::RandomRotation& rotation = step.random_rotation();
      const float turns = Draw(draws, RangeOf(rotation.factor()));
      return WarpBy(Rotation(*shape, turns), *shape, rotation.fill_mode(), rotation.fill_value(), numbers);
    }
    case v1::Augmentation::kRandomZoom: {
      const v1::RandomZoom& zoom = step.random_zoom();
      const float height = 1 + Draw(draws, RangeOf(zoom.height_factor()));
      const float width = zoom.width_factor().empty() ? height : 1 + Draw(draws, RangeOf(zoom.width_factor()));
      return WarpBy(Zoom(*shape, height, width), *shape, zoom.fill_mode(), zoom.fill_value(), numbers);
    }
    case v1::Augmentation::kRandomTranslation: {
      const v1::RandomTranslation& translation = step.random_translation();
      const float down = Draw(draws, RangeOf(translation.height_factor())) * static_cast<float>(shape->height);
      const float right = Draw(draws, RangeOf(translation.width_factor())) * static_cast<float>(shape->width);
      return WarpBy(Translation(down, right), *shape, translation.fill_mode(), translation.fill_value(), numbers);
    }
    case v1::Augmentation::kRandomCrop:
      Crop(step.random_crop(), *shape, input_, draws, numbers);
      *shape = input_;
      return;
    case v1::Augmentation::kRandomBrightness: return Brighten(step.random_brightness(), *shape, draws, numbers);
    case v1::Augmentation::kRandomContrast: return Contrast(step.random_contrast(), *shape, draws, numbers);
    case v1::Augmentation::kCutout: return CutOut(step.cutout(), *shape, draws, numbers);
    case v1::Augmentation::kRandomShear: return Shear(step.random_shear(), *shape, draws, numbers);
    case v1::Augmentation::kRandomColorJitter:
      for (const v1::Augmentation& one : ColorJitterSteps(step.random_color_jitter()))
        ApplyStep(one, draws, shape, numbers);
      return;
    case v1::Augmentation::kRandAugment: {
      const v1::RandAugment& augment = step.rand_augment();
      for (int i = 0; i < (augment.has_num_ops() ? augment.num_ops() : 2); ++i) {
        const int layer = static_cast<int>(draws.Below(kRandAugmentLayers));
        ApplyStep(RandAugmentLayer(augment, layer), draws, shape, numbers);
      }
      return;
    }
    case v1::Augmentation::kAugMix:
      return ApplyAugMix(
          step.aug_mix(), draws, *shape,
          [&](const v1::Augmentation& one, float* chain) { ApplyStep(one, draws, shape, chain); }, numbers);
    case v1::Augmentation::kRandomElasticTransform:
      return ApplyElastic(step.random_elastic_transform(), draws, *shape, numbers);
    case v1::Augmentation::kMixUp:
    case v1::Augmentation::kCutMix: return;  // BatchMixer
    default: break;
  }
  CAIRN_CHECK(ApplyColors(step, draws, *shape, numbers), "CheckAugmentation let a step pass that is not known");
}

}  // namespace cairn
