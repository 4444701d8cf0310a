// Dynamic loss scaling of FLOAT16 jobs (JobSpec.loss_scaling), with the rule of Keras' LossScaleOptimizer.
//
// Pure functions and a plain value. The scale is part of every partition's state: it is stored with the values in the
// log, backups, images and checkpoints, and is sent with them (VALUES). In a synchronous job, whether a step's gradient
// is finite is determined in the same way as a norm that spans partitions (clip_norm.h): either all partitions skip a
// step or none does, and their states are equal at the same version.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/status.h"
#include "common/model/clip_norm.h"
#include "common/model/limits.h"

namespace cairn {

struct LossScaleRule {
  float initial = 1 << 15;
  uint32_t growth_steps = 2000;
};
// nullopt if the job has no loss scale. `spec` must be resolved.
std::optional<LossScaleRule> LossScaleRuleOf(const v1::JobSpec& spec);
// Fills in defaults. Errors: INVALID_ARGUMENT, `loss_scaling.initial_scale: 3 is not a power of two ...`.
absl::Status ResolveLossScaling(v1::JobSpec* spec);

// Whether a gradient may have been multiplied by `scale`; false for NaN.
inline bool IsLossScale(float scale) { return scale >= 1 && scale <= kLossScaleMax; }

struct LossScale {
  float scale = 0;  // for the next gradients; 0: the job has no loss scale
  uint32_t finite_steps = 0;
  uint64_t skipped = 0;

  static LossScale Initial(const LossScaleRule& rule) { return {rule.initial, 0, 0}; }
  // The state in an image. The initial state if the image has none (its job had no loss scale) or an invalid one.
  static LossScale From(const LossScaleRule& rule, const v1::LossScaleState& state);
  v1::LossScaleState ToProto() const;

  // Records that an update was applied, or skipped, whose gradient was computed with the scale `used`. Asynchronous
  // replicas compute with older scales: of several gradients for which the same scale was too large, only the first
  // halves it.
  void Update(const LossScaleRule& rule, float used, bool finite);

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// The scopes that are measured in a step's gradient before it is applied: those of clipping, and, if the job has a loss
// scale, the scope that tells whether all numbers except moving averages are finite.
std::vector<ClipScope> StepScopesOf(const Graph& graph, const v1::JobSpec& spec, int64_t begin, int64_t end);

}  // namespace cairn
