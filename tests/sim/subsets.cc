#include "tests/sim/subsets.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "common/model/initializer.h"

namespace cairn::sim {

SubsetReference::SubsetReference(const v1::JobSpec& spec, const Graph& graph, const StepPlan& plan,
                                 const std::vector<v1::PartitionRange>& ranges)
    : spec_(spec), plan_(plan), ranges_(ranges), known_(ranges.size()) {
  std::vector<float> values(static_cast<size_t>(graph.space_size()));
  InitializeRange(graph, spec.seed(), 0, absl::MakeSpan(values));
  is_variable_.assign(values.size(), false);
  for (const Variable& v : graph.variables()) std::fill_n(is_variable_.begin() + v.offset, v.size, true);
  for (uint32_t subset = 1; subset < 1u << spec.replicas(); ++subset) {
    if (std::popcount(subset) >= spec.replicas() - spec.backup_replicas()) subsets_.push_back(subset);
  }
  for (size_t p = 0; p < ranges.size(); ++p) {
    const auto begin = static_cast<std::ptrdiff_t>(ranges[p].begin()),
               end = static_cast<std::ptrdiff_t>(ranges[p].end());
    clip_scopes_.push_back(ClipScopesOf(graph, spec.optimizer(), begin, end));
    State& first = known_[p][0].emplace_back();
    first.values.assign(values.begin() + begin, values.begin() + end);
    first.moments.assign(first.values.size(), 0.0f);
  }
}

bool SubsetReference::Same(uint32_t partition, const std::vector<float>& a, absl::Span<const float> b) const {
  for (size_t i = 0; i < a.size(); ++i) {
    if (is_variable_[ranges_[partition].begin() + i] && std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return true;
}

bool SubsetReference::Knows(uint32_t partition, uint64_t version, absl::Span<const float> values) const {
  auto found = known_[partition].find(version);
  return found != known_[partition].end() &&
         std::any_of(found->second.begin(), found->second.end(),
                     [&](const State& state) { return Same(partition, state.values, values); });
}

bool SubsetReference::Is(uint32_t partition, const State& state, const Found& found) const {
  return Same(partition, state.values, found.values) &&
         (found.moments.empty() || Same(partition, state.moments, found.moments));
}

bool SubsetReference::Allows(uint32_t partition, uint64_t version, absl::Span<const float> values,
                             absl::Span<const float> moments) {
  const Found found{values, moments};
  std::vector<State>& known = known_[partition][version];
  if (std::any_of(known.begin(), known.end(), [&](const State& state) { return Is(partition, state, found); }))
    return true;
  auto before = known_[partition].find(version - 1);
  if (version == 0 || before == known_[partition].end()) return false;
  for (const bool each_by_itself : {false, true}) {
    for (const State& state : before->second) {
      for (uint32_t subset : subsets_) {
        State after;
        if (!Leads(partition, state, version, subset, each_by_itself, found, &after)) continue;
        known.push_back(std::move(after));
        return true;
      }
    }
  }
  return false;
}

bool SubsetReference::MayCount(int64_t step, int64_t examples) const {
  return std::any_of(subsets_.begin(), subsets_.end(), [&](uint32_t subset) {
    int64_t sum = 0;
    for (int32_t r = 0; r < spec_.replicas(); ++r) {
      if (InSubset(subset, r)) sum += plan_.Places(step, ReplicaId(r)).size();
    }
    return sum == examples;
  });
}

std::optional<SubsetReference::Sum> SubsetReference::SumOf(uint32_t partition, const State& before, int64_t step,
                                                           uint32_t subset) const {
  const v1::PartitionRange& range = ranges_[partition];
  std::vector<Gradient> leaves(static_cast<size_t>(spec_.replicas()));
  Sum sum;
  for (int32_t r = 0; r < spec_.replicas(); ++r) {
    const int64_t examples = plan_.Places(step, ReplicaId(r)).size();
    if (!InSubset(subset, r) || examples == 0) continue;
    sum.examples += static_cast<uint64_t>(examples);
    leaves[static_cast<size_t>(r)].emplace(before.values.size());
    FillGradient(spec_, step, ReplicaId(r), examples, before.values, absl::MakeSpan(*leaves[static_cast<size_t>(r)]),
                 static_cast<int64_t>(range.begin()));
  }
  Gradient gradient = NaiveSum(leaves);
  if (!gradient) return std::nullopt;
  sum.gradient = *std::move(gradient);
  return sum;
}

std::vector<NormRecord> SubsetReference::NormsOf(uint32_t partition, const Sum& sum) const {
  std::vector<NormRecord> records;
  for (const ClipScope& scope : clip_scopes_[partition])
    records.push_back(MeasureNorm(scope, sum.gradient, sum.examples));
  return records;
}

// Whether `test` is true for some choice of what the partitions from `other` on may have measured in the step before
// `version`; the book has those before.
bool SubsetReference::AnyClipped(uint64_t version, uint32_t other, NormBook& book,
                                 const std::function<bool(NormBook&)>& test) const {
  if (other == ranges_.size()) return test(book);
  if (clip_scopes_[other].empty()) return AnyClipped(version, other + 1, book, test);
  const auto states = known_[other].find(version - 1);
  if (states == known_[other].end()) return false;
  for (const State& state : states->second) {
    for (uint32_t subset : subsets_) {
      const std::optional<Sum> sum = SumOf(other, state, static_cast<int64_t>(version) - 1, subset);
      // In a short step those that were not dropped may have no examples: a share of nothing, which counts in the norm
      // all the same.
      book.Set(other, NormsOf(other, sum.value_or(Sum())));
      if (AnyClipped(version, other + 1, book, test)) return true;
    }
  }
  return false;
}

// Whether the gradients of `subset` lead from `before` to what was found: *after. each_by_itself: every norm may be of
// another choice.
bool SubsetReference::Leads(uint32_t partition, const State& before, uint64_t version, uint32_t subset,
                            bool each_by_itself, const Found& found, State* after) const {
  const std::optional<Sum> sum = SumOf(partition, before, static_cast<int64_t>(version) - 1, subset);
  if (!sum) {
    *after = before;
    return Is(partition, *after, found);
  }
  const auto update = [&](const std::vector<float>& gradient) {
    *after = before;
    NaiveUpdate(spec_, gradient, static_cast<int64_t>(sum->examples), after->values, after->moments);
  };
  const auto updated = [&](const std::vector<float>& gradient) {
    update(gradient);
    return Is(partition, *after, found);
  };
  if (clip_scopes_[partition].empty()) return updated(sum->gradient);
  // Its own share, too: the factor may be one that another partition applied before this one lost its sum and measured
  // another.
  NormBook book;
  if (each_by_itself) {
    std::vector<float> gradient = sum->gradient;
    for (size_t i = 0; i < clip_scopes_[partition].size(); ++i) {
      const ClipScope& scope = clip_scopes_[partition][i];
      const bool any = AnyClipped(version, 0, book, [&](NormBook& whole) {
        const auto factors = whole.FactorsFor(partition, ClipNormOf(spec_.optimizer()));
        if (!factors) return false;
        std::vector<float> scaled = gradient;
        ScaleGradient(scope, (*factors)[i], absl::MakeSpan(scaled));
        update(scaled);
        for (const auto& [begin, end] : scope.ranges) {
          const auto size = static_cast<size_t>(end - begin);
          if (std::memcmp(&after->values[static_cast<size_t>(begin)], &found.values[static_cast<size_t>(begin)],
                          size * sizeof(float)) != 0)
            return false;
        }
        gradient = std::move(scaled);
        return true;
      });
      if (!any) return false;
    }
    return updated(gradient);
  }
  return AnyClipped(version, 0, book, [&](NormBook& whole) {
    const auto factors = whole.FactorsFor(partition, ClipNormOf(spec_.optimizer()));
    if (!factors) return false;
    std::vector<float> gradient = sum->gradient;
    for (size_t i = 0; i < factors->size(); ++i)
      ScaleGradient(clip_scopes_[partition][i], (*factors)[i], absl::MakeSpan(gradient));
    return updated(gradient);
  });
}

}  // namespace cairn::sim
