// The learning rate of a step: the schedules of keras.optimizers.schedules with Keras' formulas.
//
// Pure functions; any thread. Computed in float64 from the job's decimal numbers and rounded to float32 once. Keras
// computes in float32, so the last digits may differ.
#pragma once

#include <cstdint>

#include "cairn/v1/job.pb.h"
#include "cairn/v1/optimizer.pb.h"

namespace cairn {

// spec: must have its defaults filled in (ResolveOptimizer). step: counted from 0 over the whole job, so that a job
// resumed from a checkpoint continues its schedule. With r the optimizer's learning_rate and n = decay_steps:
//   none, constant             r
//   piecewise_constant_decay   values[i], i the number of boundaries < step
//   exponential_decay          r * decay_rate^p, p = step / n (staircase: rounded down)
//   polynomial_decay           (r - end) * (1 - s / n)^power + end, s = min(step, n); cycle: s = step, and
//                              n * ceil(step / n) instead of n
//   inverse_time_decay         r / (1 + decay_rate * p), p = step / n (staircase: rounded down)
//   cosine_decay               r * ((1 - alpha) * (1 + cos(pi * s / n)) / 2 + alpha), s = min(step, n)
//                              with warm-up: r + (target - r) * step / warmup_steps up to warmup_steps, then the same
//                              from target, counted from there
//   cosine_decay_restarts      periods of first_decay_steps * t_mul^i steps; in period i, f of it done:
//                              r * ((1 - alpha) * m_mul^i * (1 + cos(pi * f)) / 2 + alpha)
float LearningRateAt(const v1::JobSpec& spec, int64_t step);
float LearningRateAt(const v1::Optimizer& optimizer, int64_t step);

// Whether the moving average of the weights (optimizer.ema) replaces the weights after this step: after the last
// planned step, and every overwrite_frequency steps.
bool EmaOverwritesAfter(const v1::Optimizer& optimizer, int64_t step, int64_t total_steps);

}  // namespace cairn
