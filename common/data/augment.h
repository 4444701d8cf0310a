// Augmenter: a job's data.augmentation applied to one training example.
//
// Immutable and thread-safe. Invariants:
//   1. Apply is a pure function of (seed, pass, example, the example's numbers): the same bits on whatever worker,
//      thread and processor. Each step has draws of its own (RandomStream::kAugment, counter: example, pass, step,
//      draw): a step that is added at the end does not change those before it.
//   2. The shape stays what it was, but where the model's input is another: the first random_crop leads to that.
// The layers are Keras' (keras.layers.RandomFlip, ...): factors, fill modes, the order of arithmetic; see job.proto.
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

// A step's random numbers.
class AugmentDraws {
 public:
  AugmentDraws(std::array<uint32_t, 2> key, uint64_t pass, uint64_t example, uint32_t step);
  uint32_t Bits();
  // [low, high), 24 random bits; low where they are equal.
  float Uniform(float low, float high) { return low + (high - low) * ToUniform(Bits()); }
  // One of 0 .. n - 1, n >= 1.
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
  // input_shape: of the model, [height, width, channels]; examples have ExampleShape of it (common/model/data_check.h).
  // Null where there is nothing to do. Errors: INVALID_ARGUMENT, as CheckAugmentation there.
  static absl::StatusOr<std::shared_ptr<const Augmenter>> Make(const v1::Data& data, const Shape& input_shape,
                                                               uint64_t seed);

  // numbers: the example, then the model's input; room for the larger of the two.
  void Apply(uint64_t pass, uint64_t example, float* numbers) const;
  int64_t example_size() const { return example_.size(); }
  int64_t input_size() const { return input_.size(); }

 private:
  Augmenter(const v1::Data& data, const PictureShape3& example, const PictureShape3& input, uint64_t seed);
  // shape: of the picture before, then after the step.
  void ApplyStep(const v1::Augmentation& step, AugmentDraws& draws, PictureShape3* shape, float* numbers) const;

  const std::vector<v1::Augmentation> steps_;
  const PictureShape3 example_, input_;
  const std::array<uint32_t, 2> key_;
};

}  // namespace cairn
