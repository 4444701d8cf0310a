// The optimizers, as one pass over a partition's memory: mean gradient, slots and values together.
//
// Formulas and defaults are those of keras.optimizers (Keras 2.15 / 3), in float32 and in the order of operations
// written above each loop in optimizer.cc. As in Keras, an update of a trainable variable w is, in this order:
//   g = clip(gradient / examples)    where clipvalue > 0
//   w = w - w * weight_decay * lr    where weight_decay > 0 and the segment decays
//   w = the rule's (w, g)
//   a = momentum * a + (1 - momentum) * w    with ema; in the first update of all a = w
//   w = a                            where ema_overwrite
// Pure functions of their arguments; any thread. Invariants:
//   1. Element i depends on element i alone, except for a whole segment's (server/core/whole_rules.h); no operation is
//      fused or reordered: the bits are equal on every x86-64.
//   2. The new values are written over the gradient, the old values
//      are left as they are: they may still be on their way to a
//      worker, and are kept as the version before.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/model/graph.h"
#include "common/tensor/buffer.h"

namespace cairn {

// A run of a partition's numbers that one rule updates; offsets are within the partition. What no segment names is
// padding and stays 0.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
  bool moving_average = false;  // v = momentum * v + (1 - momentum) * mean; the optimizer does not touch it
  float momentum = 0;           // moving_average
  bool decays = true;           // weight decay applies to it
  bool frozen = false;          // keeps its values, and its slots theirs, whatever comes
  // A variable that is updated as a whole (UpdatedAsAWhole in common/model/optimizer_variables.h), with its shape.
  bool whole = false;
  Shape shape = {};
};

enum class UpdateRule {
  kSgd,
  kMomentum,
  kNesterov,
  kAdagrad,
  kRmsProp,
  kAdam,
  kAdamW,
  kAdadelta,
  kAdamax,
  kNadam,
  kFtrl,
  kLion,
  kLamb,
  kAdafactor,
  kMuon,
  kScheduleFreeAdamW
};

// The numbers of kFtrl alone.
struct FtrlRule {
  double learning_rate_power = 0;  // 0, -0.5 or -1, whose powers are roots
  double l1 = 0, l2 = 0, l2_shrinkage = 0, beta = 0;
};

// The numbers of kAdafactor alone.
struct AdafactorRule {
  double beta_2_decay = 0, epsilon_1 = 0, epsilon_2 = 0, clip_threshold = 0;
};

// The numbers of kMuon alone; segments that are not whole are updated as by kAdamW.
struct MuonRule {
  double a = 0, b = 0, c = 0;
  double rms_rate = 0;  // 0: the step is not scaled
  double adam_lr_ratio = 1, adam_weight_decay = 0;
  int steps = 0;
  bool nesterov = false;
};

// What only one of the rules has.
struct OwnNumbers {
  FtrlRule ftrl;
  AdafactorRule adafactor;
  MuonRule muon;
  uint64_t warmup_steps = 0;  // kScheduleFreeAdamW
};

// An optimizer with every default filled in; as Keras does, what depends on its numbers alone (1 - beta_2) is computed
// in double. The learning rate is not here: it comes with each update.
struct OptimizerRule {
  UpdateRule rule = UpdateRule::kSgd;
  double momentum = 0;                   // kMomentum, kNesterov, kMuon, kRmsProp (0: no slot for it)
  double rho = 0;                        // kRmsProp, kAdadelta
  bool centered = false;                 // kRmsProp
  double beta_1 = 0, beta_2 = 0;         // kAdam and its kin, kLion, kLamb
  bool amsgrad = false;                  // kAdam, kAdamW
  bool corrected_epsilon = false;        // kAdam, kAdamW
  double epsilon = 0;                    // all that divide but kFtrl and kAdafactor
  double initial_accumulator_value = 0;  // kAdagrad, kFtrl: of the first slot
  OwnNumbers own;
  double weight_decay = 0;
  float clipvalue = 0;  // > 0: each number of the mean gradient is clipped to [-clipvalue, clipvalue]
  bool ema = false;     // the last slot is the moving average of the values
  double ema_momentum = 0;

  static OptimizerRule From(const v1::Optimizer& optimizer);
  // Slots: float32 tensors of the partition's size, stored with the values.
  //   kSgd 0 · kMomentum, kNesterov 1 (velocity) · kAdagrad 1 (accumulator)
  //   kAdam, kAdamW 2 or 3 (m, v, with amsgrad the largest v) · kAdamax 2 (m, the norm) · kNadam 2 (m, v)
  //   kAdadelta 2 (mean squares of gradients, of changes) · kFtrl 2 (accumulator, linear) · kLion 1 (m)
  //   kLamb 2 (m, v) · kMuon 2 (momentum, and v where it is not whole) · kScheduleFreeAdamW 2 (z, v)
  //   kAdafactor 1 (mean squares: common/model/optimizer_variables.h)
  //   kRmsProp 1 to 3 (mean square, then velocity where momentum > 0, then mean gradient where centered)
  //   and one more, the last, with ema
  int slots() const { return rule_slots() + (ema ? 1 : 0); }
  int rule_slots() const;
  float initial_slot_value(int slot) const {
    return slot == 0 && rule_slots() > 0 ? static_cast<float>(initial_accumulator_value) : 0.0f;
  }
};

// One update. values, gradient and every slot have the same size.
struct Update {
  uint64_t step = 0;      // of this update, from 1: the version that it leads to, less the updates that were left out
  uint64_t examples = 0;  // > 0; the gradient is a sum over them
  float learning_rate = 0;
  bool ema_overwrite =
      false;  // the new values are the moving average, after it has taken in what the rule made of them
  absl::Span<const float> values;
  absl::Span<float> gradient;  // in: the summed gradient; out: the new values
  std::vector<absl::Span<float>> slots;
  // Empty, or for each slot nothing (it holds the old values), or the old values: the slot's memory is new then. They
  // are copied a block at a time, just before the block is updated: that costs little more than writing to new memory.
  std::vector<absl::Span<const float>> copied_from;
};
void ApplyUpdate(const OptimizerRule& rule, absl::Span<const Segment> segments, const Update& update);
// The values of segments that the optimizer updates become the moving average; an update without examples that has
// ema_overwrite does no more.
void OverwriteWithAverage(absl::Span<const Segment> segments, absl::Span<const float> average,
                          absl::Span<float> values);

}  // namespace cairn
