// The simulated job: a tiny model, and gradients that are a cheap pure function, so that the exact result is known.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/ids.h"
#include "common/model/graph.h"
#include "common/model/step_plan.h"
#include "common/tensor/summation_tree.h"
#include "tests/sim/rng.h"

namespace cairn::sim {

inline constexpr int64_t kInputs = 5;
inline constexpr int64_t kValidationExamples = 11;

// A job of a random shape (replicas, partitions, steps, mode, durability, checkpoints). Asynchronous jobs start at
// zero, so that their sums are exact.
v1::JobSpec RandomJob(Rng& rng, int ps);
// How its updates are kept, where so many ps are there.
void RandomDurability(Rng& rng, int ps, v1::JobSpec& spec);
v1::DataInfo DataOf(int64_t train_examples);

// The gradient (sum over `examples`) of a replica at a step.
//   synchronous: depends on the values, the step and the replica with full float32 noise: any other order of additions,
//   any stale value, any repeated update changes bits. asynchronous: -examples * (unit + 1), so that with learning rate
//   1 every applied push adds exactly unit + 1; a unit is a replica, with local_sync a group of them.
// `begin`: the place of the first of `values` in the parameter space. FLOAT16 jobs overflow here and there: synchronous
// ones where the scale is large, asynchronous ones (whose scale depends on who came first) in certain steps.
void FillGradient(const v1::JobSpec& spec, int64_t step, ReplicaId replica, int64_t examples,
                  absl::Span<const float> values, absl::Span<float> gradient, int64_t begin = 0, float loss_scale = 0);

using Gradient = std::optional<std::vector<float>>;  // none: no examples
// The sum over the tree of those that are there; by replica.
Gradient NaiveSum(const std::vector<Gradient>& leaves, const GradientRounding& rounding = {});
// SGD, with momentum where the job has it.
void NaiveUpdate(const v1::JobSpec& spec, const std::vector<float>& sum, int64_t examples, std::vector<float>& values,
                 std::vector<float>& moments);

// What the values have to be, written independently of the code under test: naive tree, naive optimizer.
class Reference {
 public:
  // before: a job with other replicas, whose first `steps_before` steps this one takes over.
  Reference(const v1::JobSpec& spec, const Graph& graph, const StepPlan& plan, const Reference* before = nullptr,
            int64_t steps_before = 0);

  // Synchronous: of the whole parameter space after so many steps.
  const std::vector<float>& AfterSteps(uint64_t steps) const { return trajectory_[steps]; }
  const std::vector<float>& MomentsAfter(uint64_t steps) const { return moments_[steps]; }  // the optimizer's slot
  uint64_t steps() const { return trajectory_.size() - 1; }
  // Asynchronous: with so many updates of each unit. All variables have the same value.
  float Sum(absl::Span<const uint64_t> sequences) const;
  bool IsVariable(int64_t number) const { return is_variable_[static_cast<size_t>(number)]; }

 private:
  std::vector<bool> is_variable_;
  struct Scale {
    float scale = 0;
    int finite_steps = 0;
  };
  std::vector<std::vector<float>> trajectory_, moments_;
  std::vector<Scale> scales_;                // after so many steps
  std::vector<std::vector<float>> counted_;  // by unit and sequence: what it has added
};

}  // namespace cairn::sim
