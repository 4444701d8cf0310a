#include "common/data/batch_mixer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/data/distributions.h"
#include "common/model/mixed_labels.h"

namespace cairn {
namespace {

// The draws of a batch have step numbers that those of an example never have (kAugmentationsMax).
constexpr uint32_t kOfBatch = uint32_t{1} << 31;

AugmentDraws DrawsOfBatch(std::array<uint32_t, 2> key, const BatchMixer::Place& place, size_t step) {
  const uint64_t upper = place.piece >> 32 << 32;
  return {key, place.piece, upper | place.replica, kOfBatch + static_cast<uint32_t>(step)};
}

std::vector<size_t> Partners(size_t examples, AugmentDraws& draws) {
  std::vector<size_t> partners(examples);
  std::iota(partners.begin(), partners.end(), size_t{0});
  for (size_t i = examples; i > 1; --i) {
    std::swap(partners[i - 1], partners[static_cast<size_t>(draws.Below(static_cast<int64_t>(i)))]);
  }
  return partners;
}

// weight * own + (1 - weight) * other, stored in own.
void Blend(float weight, const float* other, int64_t n, float* own) {
  for (int64_t i = 0; i < n; ++i) own[i] = weight * own[i] + (1.0f - weight) * other[i];
}

struct Side {
  float begin = 0, length = 0;
};

Side DrawSide(AugmentDraws& draws, int64_t size, float ratio) {
  const float length = ratio * static_cast<float>(size);
  return {draws.Uniform(0, 1) * (static_cast<float>(size) - length), length};
}

// Copies the pixels of a rectangle; returns the share of the picture that is left.
float Paste(AugmentDraws& draws, float weight, const PictureShape3& shape, const float* other, float* own) {
  const float ratio = std::sqrt(1.0f - weight);
  const Side columns = DrawSide(draws, shape.width, ratio), rows = DrawSide(draws, shape.height, ratio);
  const auto within = [](const Side& side, int64_t i) {
    const float at = static_cast<float>(i);
    return at >= side.begin && at < side.begin + side.length;
  };
  for (int64_t y = 0; y < shape.height; ++y) {
    for (int64_t x = 0; within(rows, y) && x < shape.width; ++x) {
      if (!within(columns, x)) continue;
      const int64_t at = y * shape.row() + x * shape.channels;
      std::copy_n(other + at, shape.channels, own + at);
    }
  }
  return 1.0f - columns.length * rows.length / static_cast<float>(shape.width * shape.height);
}

}  // namespace

std::shared_ptr<const BatchMixer> BatchMixer::Make(const v1::Data& data, const Shape& input_shape, int64_t classes,
                                                   uint64_t seed) {
  if (!MixesExamples(data)) return nullptr;
  const PictureShape3 input = {input_shape[0], input_shape[1], input_shape[2]};
  return std::shared_ptr<const BatchMixer>(new BatchMixer(data, input, classes, seed));
}

BatchMixer::BatchMixer(const v1::Data& data, const PictureShape3& input, int64_t classes, uint64_t seed)
    : steps_(data.augmentation().begin(), data.augmentation().end()),
      input_(input),
      classes_(classes),
      key_(StreamKey(seed, RandomStream::kAugment)) {}

absl::Status BatchMixer::Spread(float* label) const {
  if (classes_ == 0) return absl::OkStatus();
  const float number = *label;
  if (!(number >= 0 && number < static_cast<float>(classes_) && number == std::floor(number))) {
    return absl::InvalidArgumentError(absl::StrCat("label ", number, " is not one of the model's classes 0 .. ",
                                                   classes_ - 1,
                                                   "; give the last layer more units or correct the data"));
  }
  std::fill_n(label, classes_, 0.0f);
  label[static_cast<int64_t>(number)] = 1;
  return absl::OkStatus();
}

void BatchMixer::Mix(const Place& place, float* inputs, float* labels, int64_t label_size) const {
  for (size_t step = 0; step < steps_.size(); ++step) {
    if (IsMix(steps_[step])) MixStep(step, place, inputs, labels, label_size);
  }
}

void BatchMixer::MixStep(size_t step, const Place& place, float* inputs, float* labels, int64_t label_size) const {
  const v1::Augmentation& mix = steps_[step];
  const auto examples = static_cast<int64_t>(place.examples.size());
  AugmentDraws of_batch = DrawsOfBatch(key_, place, step);
  const std::vector<size_t> partners = Partners(place.examples.size(), of_batch);
  double alpha = mix.mix_up().has_alpha() ? mix.mix_up().alpha() : 0.2f;
  if (mix.has_cut_mix()) {
    const auto& factor = mix.cut_mix().factor();
    const float high = factor.empty() ? 1.0f : factor[factor.size() - 1];
    alpha = static_cast<double>(of_batch.Uniform(factor.size() == 2 ? factor[0] : 0.0f, high)) + 1e-6;
  }
  const std::vector<float> inputs_before(inputs, inputs + examples * input_.size());
  const std::vector<float> labels_before(labels, labels + examples * label_size);
  for (int64_t i = 0; i < examples; ++i) {
    const auto other = static_cast<int64_t>(partners[static_cast<size_t>(i)]);
    AugmentDraws draws(key_, place.pass, place.examples[static_cast<size_t>(i)], static_cast<uint32_t>(step));
    float weight = DrawBeta(draws, alpha);
    const float* const other_input = inputs_before.data() + other * input_.size();
    float* const input = inputs + i * input_.size();
    if (mix.has_cut_mix()) {
      weight = Paste(draws, weight, input_, other_input, input);
    } else {
      Blend(weight, other_input, input_.size(), input);
    }
    Blend(weight, labels_before.data() + other * label_size, label_size, labels + i * label_size);
  }
}

}  // namespace cairn
