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

// A random job (replicas, partitions, steps, mode, durability, checkpoints). The values of asynchronous jobs start at
// zero, so that their sums are exact.
v1::JobSpec RandomJob(Rng& rng, int ps);
// Sets the job's durability and backups, for a cluster with this many ps.
void RandomDurability(Rng& rng, int ps, v1::JobSpec& spec);
v1::DataInfo DataOf(int64_t train_examples);

// The gradient (sum over `examples`) of a replica at a step.
//   synchronous: depends on the values, the step and the replica with full float32 noise: another order of additions, a
//   stale value or a repeated update changes bits. asynchronous: -examples * (unit + 1), so that with learning rate
//   1 every applied push adds exactly unit + 1; a unit is a replica, or with local_sync a group of replicas.
// `begin`: the index of the first of `values` in the parameter space. FLOAT16 jobs sometimes overflow: synchronous ones
// if the scale is large, asynchronous ones (whose scale depends on the order of pushes) in certain steps.
void FillGradient(const v1::JobSpec& spec, int64_t step, ReplicaId replica, int64_t examples,
                  absl::Span<const float> values, absl::Span<float> gradient, int64_t begin = 0, float loss_scale = 0);

using Gradient = std::optional<std::vector<float>>;  // nullopt: no examples
// The sum over the tree; leaves are by replica.
Gradient NaiveSum(const std::vector<Gradient>& leaves, const GradientRounding& rounding = {});
// SGD, with momentum if the job has it.
void NaiveUpdate(const v1::JobSpec& spec, const std::vector<float>& sum, int64_t examples, std::vector<float>& values,
                 std::vector<float>& moments);

// The expected values, computed independently of the code under test: naive tree, naive optimizer.
class Reference {
 public:
  // before: a job with other replicas, whose first `steps_before` steps this one inherits.
  Reference(const v1::JobSpec& spec, const Graph& graph, const StepPlan& plan, const Reference* before = nullptr,
            int64_t steps_before = 0);

  // Synchronous: the whole parameter space after this many steps.
  const std::vector<float>& AfterSteps(uint64_t steps) const { return trajectory_[steps]; }
  const std::vector<float>& MomentsAfter(uint64_t steps) const { return moments_[steps]; }  // the optimizer's slot
  uint64_t steps() const { return trajectory_.size() - 1; }
  // Asynchronous: the value after this many updates of each unit. All variables have the same value.
  float Sum(absl::Span<const uint64_t> sequences) const;
  bool IsVariable(int64_t number) const { return is_variable_[static_cast<size_t>(number)]; }

 private:
  std::vector<bool> is_variable_;
  struct Scale {
    float scale = 0;
    int finite_steps = 0;
  };
  std::vector<std::vector<float>> trajectory_, moments_;
  std::vector<Scale> scales_;                // by number of steps
  std::vector<std::vector<float>> counted_;  // by unit and sequence: the total that it has added
};

}  // namespace cairn::sim
