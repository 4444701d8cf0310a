// SubsetReference: the possible states of a partition of a job with backup_replicas: each version follows from the
// previous one by the gradients of at least R - b replicas, each once. Which ones depends on timing, per partition.
//
// If gradients are clipped by norms that span partitions, the norm of each partition may come from any such set of
// replicas: all combinations are tried, which is why RandomJob keeps their number small. Each norm is also tried
// independently: after a failover a partition has another sum; one norm may then use a factor that was already applied
// elsewhere, and another norm one of the new sum.
//
// It remembers every state seen: an update that was not acknowledged may be made again from other replicas.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "common/model/clip_norm.h"
#include "common/model/graph.h"
#include "tests/sim/job.h"

namespace cairn::sim {

class SubsetReference {
 public:
  SubsetReference(const v1::JobSpec& spec, const Graph& graph, const StepPlan& plan,
                  const std::vector<v1::PartitionRange>& ranges);

  // Whether a copy may have these values. A state that follows from a known one becomes known.
  bool Allows(uint32_t partition, uint64_t version, absl::Span<const float> values, absl::Span<const float> moments);
  // Whether a copy was seen with these values.
  bool Knows(uint32_t partition, uint64_t version, absl::Span<const float> values) const;
  // Whether a step can have counted this many examples.
  bool MayCount(int64_t step, int64_t examples) const;

 private:
  struct State {
    std::vector<float> values, moments;
  };
  bool Same(uint32_t partition, const std::vector<float>& a, absl::Span<const float> b) const;
  bool InSubset(uint32_t subset, int32_t replica) const { return (subset >> replica & 1) != 0; }
  struct Sum {
    std::vector<float> gradient;
    uint64_t examples = 0;
  };
  std::optional<Sum> SumOf(uint32_t partition, const State& before, int64_t step, uint32_t subset) const;
  std::vector<NormRecord> NormsOf(uint32_t partition, const Sum& sum) const;
  bool AnyClipped(uint64_t version, uint32_t other, NormBook& book, const std::function<bool(NormBook&)>& test) const;
  // The observed state of a copy.
  struct Found {
    absl::Span<const float> values, moments;  // moments: may be empty
  };
  bool Is(uint32_t partition, const State& state, const Found& found) const;
  bool Leads(uint32_t partition, const State& before, uint64_t version, uint32_t subset, bool each_by_itself,
             const Found& found, State* after) const;

  const v1::JobSpec spec_;
  const StepPlan plan_;
  const std::vector<v1::PartitionRange> ranges_;
  std::vector<bool> is_variable_;
  std::vector<std::vector<ClipScope>> clip_scopes_;            // by partition; empty: gradients are not clipped by norm
  std::vector<uint32_t> subsets_;                              // bit sets of at least R - b replicas
  std::vector<std::map<uint64_t, std::vector<State>>> known_;  // by partition and version
};

}  // namespace cairn::sim
