// Augmenter: applies a job's data.augmentation to one training example. Steps that mix several are left to BatchMixer
// (common/data/batch_mixer.h).
//
// Immutable and thread-safe. Invariants:
//   1. Apply is a pure function of (seed, pass, example, the example's numbers): every worker, thread and processor
//      computes the same bits. Each step has its own random numbers (RandomStream::kAugment, counter: example, pass,
//      step, draw), so appending a step does not change the previous ones.
//   2. The shape does not change, unless the model's input has a different shape: then the first random_crop produces
//      it.
// The layers are Keras' (keras.layers.RandomFlip, ...), with the same factors, fill modes and order of arithmetic; see
// job.proto.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cairn/v1/data.pb.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/data/warp.h"
#include "common/tensor/buffer.h"

namespace cairn {

// The random numbers of one step.
class AugmentDraws {
 public:
  AugmentDraws(std::array<uint32_t, 2> key, uint64_t pass, uint64_t example, uint32_t step);
  uint32_t Bits();
  // In [low, high), from 24 random bits; `low` if they are equal.
  float Uniform(float low, float high) { return low + (high - low) * ToUniform(Bits()); }
  // In [0, n). n >= 1.
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(static_cast<uint64_t>(Bits()) * static_cast<uint64_t>(n) >> 32);
  }

 private:
  const std::array<uint32_t, 2> key_;
  PhiloxBlock counter_;
  PhiloxBlock block_{};
  size_t at_ = 4;
};

class Augmenter {
 public:
  // input_shape: that of the model, [height, width, channels]; examples have the ExampleShape that follows from it
  // (common/model/data_check.h). Returns null if there is nothing to do. Errors: INVALID_ARGUMENT, as CheckAugmentation
  // there.
  static absl::StatusOr<std::shared_ptr<const Augmenter>> Make(const v1::Data& data, const Shape& input_shape,
                                                               uint64_t seed);

  // numbers: holds the example, then the model's input; must have room for the larger of the two.
  void Apply(uint64_t pass, uint64_t example, float* numbers) const;
  int64_t example_size() const { return example_.size(); }
  int64_t input_size() const { return input_.size(); }

 private:
  Augmenter(const v1::Data& data, const PictureShape3& example, const PictureShape3& input, uint64_t seed);
  // shape: that of the picture before the step; set to that after it.
  void ApplyStep(const v1::Augmentation& step, AugmentDraws& draws, PictureShape3* shape, float* numbers) const;

  const std::vector<v1::Augmentation> steps_;
  const PictureShape3 example_, input_;
  const std::array<uint32_t, 2> key_;
};

}  // namespace cairn
