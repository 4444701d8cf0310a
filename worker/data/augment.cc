#include "worker/data/augment.h"

#include <algorithm>
#include <cstring>

#include "common/model/data_check.h"

namespace cairn {
namespace {

constexpr float kValueMax = 255;  // pixels are 0 .. 255, Keras' default value_range

struct Range {
  float low = 0, high = 0;
};

// One number f stands for [-f, f].
Range RangeOf(const google::protobuf::RepeatedField<float>& factor) {
  if (factor.size() == 2) return {factor[0], factor[1]};
  return {-factor[0], factor[0]};
}

float Draw(AugmentDraws& draws, const Range& range) { return draws.Uniform(range.low, range.high); }

// Where a warped picture comes from: one a thread, as large as the largest example.
float* Scratch(int64_t numbers) {
  static thread_local std::vector<float> scratch;
  if (static_cast<int64_t>(scratch.size()) < numbers) scratch.resize(static_cast<size_t>(numbers));
  return scratch.data();
}

}  // namespace

AugmentDraws::AugmentDraws(std::array<uint32_t, 2> key, uint64_t pass, uint64_t example, uint32_t step)
    : key_(key),
      // Passes fit 32 bits; an example's upper bits, which no data set of today has, share a word with the step and the
      // draw.
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

Augmenter::Augmenter(const v1::Data& data, const PictureShape3& shape, uint64_t seed)
    : steps_(data.augmentation().begin(), data.augmentation().end()),
      shape_(shape),
      key_(StreamKey(seed, RandomStream::kAugment)) {}

absl::StatusOr<std::shared_ptr<const Augmenter>> Augmenter::Make(const v1::Data& data, const Shape& example_shape,
                                                                 uint64_t seed) {
  if (data.augmentation().empty()) return std::shared_ptr<const Augmenter>();
  CAIRN_RETURN_IF_ERROR(CheckAugmentation(data, example_shape));
  const PictureShape3 shape{example_shape[0], example_shape[1], example_shape[2]};
  return std::shared_ptr<const Augmenter>(new Augmenter(data, shape, seed));
}

void Augmenter::Apply(uint64_t pass, uint64_t example, float* numbers) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    AugmentDraws draws(key_, pass, example, static_cast<uint32_t>(i));
    ApplyStep(steps_[i], draws, numbers);
  }
}

void Augmenter::ApplyStep(const v1::Augmentation& step, AugmentDraws& draws, float* numbers) const {
  switch (step.kind_case()) {
    case v1::Augmentation::kRandomFlip:
      return Flip(step.random_flip(), draws, numbers);
    case v1::Augmentation::kRandomRotation: {
      const v1::RandomRotation& rotation = step.random_rotation();
      const float turns = Draw(draws, RangeOf(rotation.factor()));
      return WarpBy(Rotation(shape_, turns), rotation.fill_mode(), rotation.fill_value(), numbers);
    }
    case v1::Augmentation::kRandomZoom: {
      const v1::RandomZoom& zoom = step.random_zoom();
      const float height = 1 + Draw(draws, RangeOf(zoom.height_factor()));
      const float width = zoom.width_factor().empty() ? height : 1 + Draw(draws, RangeOf(zoom.width_factor()));
      return WarpBy(Zoom(shape_, height, width), zoom.fill_mode(), zoom.fill_value(), numbers);
    }
    case v1::Augmentation::kRandomTranslation: {
      const v1::RandomTranslation& translation = step.random_translation();
      const float down = Draw(draws, RangeOf(translation.height_factor())) * static_cast<float>(shape_.height);
      const float right = Draw(draws, RangeOf(translation.width_factor())) * static_cast<float>(shape_.width);
      return WarpBy(Translation(down, right), translation.fill_mode(), translation.fill_value(), numbers);
    }
    case v1::Augmentation::kRandomCrop:
      return Crop(step.random_crop(), draws, numbers);
    case v1::Augmentation::kRandomBrightness:
      return Brighten(step.random_brightness(), draws, numbers);
    case v1::Augmentation::kRandomContrast:
      return Contrast(step.random_contrast(), draws, numbers);
    case v1::Augmentation::kCutout:
      return CutOut(step.cutout(), draws, numbers);
    case v1::Augmentation::KIND_NOT_SET:
      break;
  }
}

// Each direction with probability 1/2. Both bits are drawn whatever the mode is.
void Augmenter::Flip(const v1::RandomFlip& flip, AugmentDraws& draws, float* numbers) const {
  const bool horizontal = draws.Bits() >> 31 != 0 && flip.mode() != v1::RandomFlip::VERTICAL;
  const bool vertical = draws.Bits() >> 31 != 0 && flip.mode() != v1::RandomFlip::HORIZONTAL;
  if (vertical) {
    for (int64_t y = 0; y < shape_.height / 2; ++y) {
      float* row = numbers + y * shape_.row();
      std::swap_ranges(row, row + shape_.row(), numbers + (shape_.height - 1 - y) * shape_.row());
    }
  }
  if (!horizontal) return;
  for (int64_t y = 0; y < shape_.height; ++y) {
    float* row = numbers + y * shape_.row();
    for (int64_t x = 0; x < shape_.width / 2; ++x) {
      float* left = row + x * shape_.channels;
      std::swap_ranges(left, left + shape_.channels, row + (shape_.width - 1 - x) * shape_.channels);
    }
  }
}

void Augmenter::WarpBy(const Affine2& affine, v1::FillMode mode, float fill, float* numbers) const {
  float* before = Scratch(shape_.size());
  std::memcpy(before, numbers, static_cast<size_t>(shape_.size()) * sizeof(float));
  Warp(shape_, affine, mode, fill, before, numbers);
}

void Augmenter::Crop(const v1::RandomCrop& crop, AugmentDraws& draws, float* numbers) const {
  const int64_t top = draws.Below(shape_.height + 2 * crop.padding() - crop.height() + 1) - crop.padding();
  const int64_t left = draws.Below(shape_.width + 2 * crop.padding() - crop.width() + 1) - crop.padding();
  float* before = Scratch(shape_.size());
  std::memcpy(before, numbers, static_cast<size_t>(shape_.size()) * sizeof(float));
  CropAndResize(shape_, top, left, crop.height(), crop.width(), before, numbers);
}

void Augmenter::Brighten(const v1::RandomBrightness& brightness, AugmentDraws& draws, float* numbers) const {
  const float delta = Draw(draws, RangeOf(brightness.factor())) * kValueMax;
  for (int64_t i = 0; i < shape_.size(); ++i) numbers[i] = std::clamp(numbers[i] + delta, 0.0f, kValueMax);
}

// (x - mean) f + mean, with the mean of each channel.
void Augmenter::Contrast(const v1::RandomContrast& contrast, AugmentDraws& draws, float* numbers) const {
  const float low = contrast.factor(0), high = contrast.factor_size() == 2 ? contrast.factor(1) : low;
  const float factor = draws.Uniform(1 - low, 1 + high);
  const int64_t pixels = shape_.height * shape_.width, channels = shape_.channels;
  std::vector<double> sums(static_cast<size_t>(channels), 0.0);
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < channels; ++c) sums[c] += numbers[i * channels + c];
  }
  std::vector<float> means;
  for (double sum : sums) means.push_back(static_cast<float>(sum / static_cast<double>(pixels)));
  for (int64_t i = 0; i < pixels; ++i, numbers += channels) {
    for (int64_t c = 0; c < channels; ++c) {
      numbers[c] = std::clamp((numbers[c] - means[c]) * factor + means[c], 0.0f, kValueMax);
    }
  }
}

// The square's middle is any pixel, so that a part of it may fall outside.
void Augmenter::CutOut(const v1::Cutout& cutout, AugmentDraws& draws, float* numbers) const {
  const int64_t top = draws.Below(shape_.height) - cutout.size() / 2;
  const int64_t left = draws.Below(shape_.width) - cutout.size() / 2;
  const int64_t x_begin = std::max<int64_t>(left, 0), x_end = std::min(left + cutout.size(), shape_.width);
  for (int64_t y = std::max<int64_t>(top, 0); y < std::min(top + cutout.size(), shape_.height); ++y) {
    float* row = numbers + y * shape_.row();
    std::fill(row + x_begin * shape_.channels, row + std::max(x_begin, x_end) * shape_.channels, cutout.fill_value());
  }
}

}  // namespace cairn
