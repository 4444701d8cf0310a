// The simulated job: a tiny model, and gradients that are a cheap pure function, so that the exact result is known.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/base/ids.h"
#include "common/model/graph.h"
#include "common/model/step_plan.h"
#include "tests/sim/rng.h"

namespace cairn::sim {

inline constexpr int64_t kInputs = 5;
inline constexpr int64_t kValidationExamples = 11;

// A job of a random shape (replicas, partitions, steps, mode). Asynchronous jobs start at zero, so that their sums are exact.
v1::JobSpec RandomJob(Rng& rng);
bool IsSynchronous(const v1::JobSpec& spec);
v1::DataInfo DataOf(int64_t train_examples);

// The gradient (sum over `examples`) of a replica at a step.
//   synchronous: depends on the values, the step and the replica with full float32 noise: any other order of additions, any
//   stale value, any repeated update changes bits.
//   asynchronous: -examples * (replica + 1), so that with learning rate 1 every applied push adds exactly replica + 1.
void FillGradient(const v1::JobSpec& spec, int64_t step, ReplicaId replica, int64_t examples, absl::Span<const float> values,
                  absl::Span<float> gradient);

// The values after all steps, written independently of the code under test: naive tree, naive SGD.
std::vector<float> ExpectedValues(const v1::JobSpec& spec, const Graph& graph, const StepPlan& plan);

}  // namespace cairn::sim
