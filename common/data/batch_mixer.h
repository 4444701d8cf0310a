// BatchMixer: mix_up and cut_mix, the last steps of data.augmentation, which mix each example of a replica's batch with
// another one of it (or itself), as keras.layers.MixUp and CutMix do.
//
// Immutable and thread-safe. Invariants:
//   1. Mix is a pure function of (seed, pass, piece, replica, the examples and their numbers): every worker, thread and
//      processor computes the same bits. Who is mixed with whom depends on (seed, step, replica), how much on (seed,
//      pass, example).
//   2. With gradient accumulation a batch is a piece of a step (StepPlan::Piece).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/data/augment.h"
#include "common/data/warp.h"
#include "common/tensor/buffer.h"

namespace cairn {

class BatchMixer {
 public:
  // classes: numbers of a mixed label that is a class number in the data; 0: labels are averaged as they are. Returns
  // null if nothing is mixed. `data` must be checked (CheckAugmentation).
  static std::shared_ptr<const BatchMixer> Make(const v1::Data& data, const Shape& input_shape, int64_t classes,
                                                uint64_t seed);

  // The numbers of a label in a batch; size: those in the data.
  int64_t label_size(int64_t size) const { return classes_ > 0 ? classes_ : size; }
  // label: holds a class number if there are classes; it becomes the distribution that has it alone. Errors:
  // INVALID_ARGUMENT: it is no class.
  absl::Status Spread(float* label) const;

  struct Place {
    uint64_t pass = 0;
    uint64_t piece = 0;  // numbered across all steps
    uint32_t replica = 0;
    std::vector<uint64_t> examples;  // of the batch, in order
  };
  // inputs: [examples, input]; labels: [examples, label_size].
  void Mix(const Place& place, float* inputs, float* labels, int64_t label_size) const;

 private:
  BatchMixer(const v1::Data& data, const PictureShape3& input, int64_t classes, uint64_t seed);
  void MixStep(size_t step, const Place& place, float* inputs, float* labels, int64_t label_size) const;

  const std::vector<v1::Augmentation> steps_;
  const PictureShape3 input_;
  const int64_t classes_;
  const std::array<uint32_t, 2> key_;
};

}  // namespace cairn
