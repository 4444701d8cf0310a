// Dynamic loss scaling of FLOAT16 jobs (JobSpec.loss_scaling), with the rule of Keras' LossScaleOptimizer.
//
// Pure functions and a plain value. The scale is a part of every partition's state: it goes with the values through the
// log, backups, images and checkpoints, and is told with them (VALUES). In a synchronous job whether a step's gradient
// is finite is found out as a norm that spans partitions is (clip_norm.h): all of them leave a step out, or none, and
// their states are the same at the same version.
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
// Nothing where the job has no loss scale. `spec` is resolved.
std::optional<LossScaleRule> LossScaleRuleOf(const v1::JobSpec& spec);
// Fills in defaults. Errors: INVALID_ARGUMENT, `loss_scaling.initial_scale: 3 is no power of two ...`.
absl::Status ResolveLossScaling(v1::JobSpec* spec);

// What a gradient may have been multiplied by; NaN is not.
inline bool IsLossScale(float scale) { return scale >= 1 && scale <= kLossScaleMax; }

struct LossScale {
  float scale = 0;  // of the next gradients; 0: the job has none
  uint32_t finite_steps = 0;
  uint64_t skipped = 0;

  static LossScale Initial(const LossScaleRule& rule) { return {rule.initial, 0, 0}; }
  // The state of an image; where it holds none (of a job that had no loss scale), or none that can be, the initial one.
  static LossScale From(const LossScaleRule& rule, const v1::LossScaleState& state);
  v1::LossScaleState ToProto() const;

  // An update whose gradient was computed with the scale `used` was made, or left out. Asynchronous replicas compute
  // with older scales: of several gradients that one scale was too large for, the first halves it.
  void Update(const LossScaleRule& rule, float used, bool finite);

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// What is measured of a step's gradient before it is applied: the scopes of clipping, and that all numbers but moving
// averages are finite where the job has a loss scale.
std::vector<ClipScope> StepScopesOf(const Graph& graph, const v1::JobSpec& spec, int64_t begin, int64_t end);

}  // namespace cairn
