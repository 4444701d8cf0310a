#include "tests/sim/checkers.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/tensor/dtype.h"
#include "common/tensor/gradient_rounding.h"

namespace cairn::sim {

// ---- exactly once ----

void ExactlyOnceChecker::Logged(const std::string& ps, uint32_t partition, const v1::LogEntry& entry) {
  const int64_t step = static_cast<int64_t>(entry.sequence()) - 1;
  int64_t examples = 0;
  if (step >= facts_.end.steps) {
    world_.Fail(absl::StrFormat("exactly once: %s, partition %d: update %d, the job has %d", ps, partition, step,
                                facts_.end.steps));
  }
  for (int32_t r = 0; r < facts_.spec.replicas(); ++r) {
    if (facts_.synchronous || r / facts_.group == static_cast<int32_t>(entry.replica_first()))
      examples += facts_.plan.Places(step, ReplicaId(r)).size();
  }
  if (entry.examples() == 0 && LossScaleRuleOf(facts_.spec)) return;  // it was not finite, and counts as a step alone
  if (facts_.subsets != nullptr && facts_.subsets->MayCount(step, static_cast<int64_t>(entry.examples()))) return;
  if (examples != static_cast<int64_t>(entry.examples())) {
    world_.Fail(absl::StrFormat("exactly once: %s, partition %d, step %d: %d examples were counted, the step has %d",
                                ps, partition, step, entry.examples(), examples));
  }
}

void ExactlyOnceChecker::Changed(const Copy& copy) {
  const auto& sequences = copy.state.sequences;
  const uint64_t sum =
      facts_.synchronous ? sequences.front() : std::accumulate(sequences.begin(), sequences.end(), uint64_t{0});
  const bool even =
      !facts_.synchronous || std::all_of(sequences.begin(), sequences.end(), [&](uint64_t s) { return s == sum; });
  if (sum == copy.state.version && even) return;
  world_.Fail(absl::StrFormat("exactly once: %s, partition %d: version %d, but its table says [%s]", copy.ps,
                              copy.partition, copy.state.version, absl::StrJoin(sequences, ",")));
}

void ExactlyOnceChecker::AtEnd(const Copy& primary) {
  Changed(primary);
  for (uint64_t s : primary.state.sequences) {
    if (facts_.EndsWith(static_cast<int64_t>(s))) continue;
    world_.Fail(absl::StrFormat("exactly once: partition %d has [%s] updates, the job ends with step %d",
                                primary.partition, absl::StrJoin(primary.state.sequences, ","), facts_.end.weights));
    return;
  }
}

// ---- reference ----

void ReferenceChecker::Compare(const std::string& who, uint32_t partition, absl::Span<const float> values,
                               const std::vector<float>* whole, float number, uint64_t version) {
  const v1::PartitionRange& range = facts_.ranges[partition];
  for (uint64_t i = range.begin(); i < range.end(); ++i) {
    if (!facts_.reference->IsVariable(static_cast<int64_t>(i))) continue;
    const float expected = whole != nullptr ? (*whole)[i] : number, found = values[i - range.begin()];
    if (std::memcmp(&expected, &found, sizeof(float)) == 0) continue;
    return world_.Fail(
        absl::StrFormat("reference: %s, partition %d, version %d: number %d is %.9g, the sequential reference has %.9g",
                        who, partition, version, i, found, expected));
  }
}

void ReferenceChecker::Changed(const Copy& copy) {
  if (!facts_.synchronous) {
    return Compare(copy.ps, copy.partition, copy.dense().values().floats(), nullptr,
                   facts_.reference->Sum(copy.state.sequences), copy.state.version);
  }
  if (copy.state.version > facts_.reference->steps()) {
    return world_.Fail(absl::StrFormat("reference: %s, partition %d: version %d of %d", copy.ps, copy.partition,
                                       copy.state.version, facts_.reference->steps()));
  }
  if (facts_.subsets != nullptr) {
    const absl::Span<const float> moments =
        copy.dense().slots().empty() ? absl::Span<const float>() : copy.dense().slots()[0].floats();
    if (!facts_.subsets->Allows(copy.partition, copy.state.version, copy.dense().values().floats(), moments)) {
      world_.Fail(absl::StrFormat("reference: %s, partition %d, version %d: no %d of %d replicas' gradients lead to it",
                                  copy.ps, copy.partition, copy.state.version,
                                  facts_.spec.replicas() - facts_.spec.backup_replicas(), facts_.spec.replicas()));
    }
    return;
  }
  Compare(copy.ps, copy.partition, copy.dense().values().floats(), &facts_.reference->AfterSteps(copy.state.version), 0,
          copy.state.version);
  if (copy.dense().previous().empty() || copy.state.version == 0) return;
  Compare(copy.ps + " (previous)", copy.partition, copy.dense().previous().floats(),
          &facts_.reference->AfterSteps(copy.state.version - 1), 0, copy.state.version - 1);
}

// For jobs with backup_replicas; false: the job has none.
bool ReferenceChecker::IsSubset(const std::string& who, uint32_t partition, uint64_t version,
                                absl::Span<const float> values) {
  if (facts_.subsets == nullptr) return false;
  if (!facts_.subsets->Knows(partition, version, values)) {
    world_.Fail(absl::StrFormat("reference: %s, partition %d, version %d: no copy has had these values", who, partition,
                                version));
  }
  return true;
}

void ReferenceChecker::Answered(const std::string& ps, uint32_t partition, uint64_t version, v1::DataType type,
                                const Buffer& payload) {
  if (!facts_.synchronous || version > facts_.reference->steps()) return;
  const v1::PartitionRange& range = facts_.ranges[partition];
  std::vector<float> values(range.end() - range.begin());
  ToFloat({payload.data(), payload.size()}, type, absl::MakeSpan(values));
  if (IsSubset(ps + " (answer)", partition, version, values)) return;
  std::vector<float> expected = facts_.reference->AfterSteps(version);
  const GradientLayout no_averages;  // the models of the simulation have none
  RoundNearest(ValuesRounding(type, 0, no_averages), absl::MakeSpan(expected));
  Compare(ps + " (answer)", partition, values, &expected, 0, version);
}

void ReferenceChecker::AtEnd(uint32_t partition, uint64_t version, const Buffer& values) {
  if (facts_.synchronous) {
    if (!facts_.EndsWith(static_cast<int64_t>(version))) {
      return world_.Fail(
          absl::StrFormat("reference: the digest is of version %d of partition %d, the job ends with step %d", version,
                          partition, facts_.end.weights));
    }
    if (IsSubset("the digest", partition, version, values.floats())) return;
    return Compare("the digest", partition, values.floats(), &facts_.reference->AfterSteps(version), 0, version);
  }
  const std::vector<uint64_t> all(static_cast<size_t>(facts_.units()), static_cast<uint64_t>(facts_.end.steps));
  Compare("the digest", partition, values.floats(), nullptr, facts_.reference->Sum(all), version);
}

// ---- acknowledged ----

void AcknowledgedChecker::Told(uint32_t partition, uint64_t generation, uint64_t version, uint32_t replica,
                               uint64_t sequence) {
  Partition& p = told_[partition];
  if (generation < p.forgiven) return;
  if (facts_.synchronous) {
    p.version = std::max(p.version, version);
  } else if (sequence > 0) {
    uint64_t& known = p.sequence[replica];
    known = std::max(known, sequence);
  }
}

std::string AcknowledgedChecker::Missing(const Copy& copy) const {
  const Partition& p = told_[copy.partition];
  if (facts_.synchronous && copy.state.version < p.version) {
    return absl::StrFormat("%s serves partition %d at version %d, but %d was acknowledged", copy.ps, copy.partition,
                           copy.state.version, p.version);
  }
  for (const auto& [replica, sequence] : p.sequence) {
    if (copy.state.sequences[replica] < sequence) {
      return absl::StrFormat("%s serves partition %d with update %d of replica %d, but %d was acknowledged", copy.ps,
                             copy.partition, copy.state.sequences[replica], replica, sequence);
    }
  }
  return "";
}

void AcknowledgedChecker::Serves(const Copy& copy, bool may_lose) {
  const std::string missing = Missing(copy);
  if (missing.empty()) return;
  if (!may_lose) return world_.Fail("acknowledged: " + missing);
  world_.Trace("allowed loss: %s", missing);
  Partition& p = told_[copy.partition];
  p.forgiven = copy.generation;
  p.version = std::min(p.version, copy.state.version);
  for (auto& [replica, sequence] : p.sequence) sequence = std::min(sequence, copy.state.sequences[replica]);
}

// ---- one history ----

void HistoryChecker::Answers(const Copy& copy) {
  auto& moments = partitions_[copy.partition].moments;
  const uint64_t version = copy.state.version;
  if (copy.generation < partitions_[copy.partition].forgiven) return;
  auto [it, first] = moments.try_emplace(version, Moment{copy.state.sequences, copy.ps, copy.generation});
  if (!first) {
    if (it->second.sequences == copy.state.sequences) return;
    return world_.Fail(
        absl::StrFormat("history: partition %d, version %d: %s (generation %d) has the updates [%s], but %s "
                        "(generation %d) answered with [%s]",
                        copy.partition, version, copy.ps, copy.generation, absl::StrJoin(copy.state.sequences, ","),
                        it->second.ps, it->second.generation, absl::StrJoin(it->second.sequences, ",")));
  }
  if (it != moments.begin()) {
    const Moment& before = std::prev(it)->second;
    for (size_t r = 0; r < before.sequences.size(); ++r) {
      if (copy.state.sequences[r] >= before.sequences[r]) continue;
      return world_.Fail(absl::StrFormat(
          "history: partition %d: %s answers with version %d [%s], which does not follow [%s] of %s", copy.partition,
          copy.ps, version, absl::StrJoin(copy.state.sequences, ","), absl::StrJoin(before.sequences, ","), before.ps));
    }
    if (before.generation > copy.generation) {
      return world_.Fail(absl::StrFormat(
          "history: two primaries: partition %d: %s acknowledges version %d in generation %d, after %s served in %d",
          copy.partition, copy.ps, version, copy.generation, before.ps, before.generation));
    }
    if (before.generation == copy.generation && before.ps != copy.ps) {
      return world_.Fail(absl::StrFormat(
          "history: two primaries: partition %d: %s and %s both make generation %d longer, at version %d",
          copy.partition, copy.ps, before.ps, copy.generation, version));
    }
  }
  // A late answer, for an update that was confirmed before the partition moved on: it must lie on the known history.
  if (auto next = std::next(it); next != moments.end()) {
    for (size_t r = 0; r < copy.state.sequences.size(); ++r) {
      if (copy.state.sequences[r] <= next->second.sequences[r]) continue;
      return world_.Fail(
          absl::StrFormat("history: two primaries: partition %d: %s answers with version %d [%s], but %s with %d [%s]",
                          copy.partition, copy.ps, version, absl::StrJoin(copy.state.sequences, ","), next->second.ps,
                          next->first, absl::StrJoin(next->second.sequences, ",")));
    }
  }
}

bool HistoryChecker::Behind(const Copy& copy) const {
  const auto& moments = partitions_[copy.partition].moments;
  return moments.upper_bound(copy.state.version) != moments.end();
}

void HistoryChecker::Forgive(uint32_t partition, uint64_t version, uint64_t generation) {
  partitions_[partition].forgiven = generation;
  auto& moments = partitions_[partition].moments;
  moments.erase(moments.upper_bound(version), moments.end());
}

// ---- epoch ----

void EpochChecker::Computed(int64_t step, ReplicaId replica, PlaceRange places) {
  computed_[{step, replica.value}] = places;
}

void EpochChecker::AtEnd(const Copy& primary) {
  std::vector<int> visits;
  int64_t epoch = -1;
  const auto close = [&] {
    for (size_t place = 0; place < visits.size(); ++place) {
      if (visits[place] == 1 || (visits[place] == 0 && facts_.subsets != nullptr)) continue;
      return world_.Fail(absl::StrFormat("epoch: partition %d: epoch %d has visited the example at place %d %d times",
                                         primary.partition, epoch, place, visits[place]));
    }
  };
  for (int64_t step = 0; step < static_cast<int64_t>(primary.state.sequences.front()); ++step) {
    if (facts_.plan.EpochOf(step) != epoch) {
      close();
      epoch = facts_.plan.EpochOf(step);
      visits.assign(static_cast<size_t>(facts_.plan.examples), 0);
    }
    for (int32_t r = 0; r < facts_.spec.replicas(); ++r) {
      const int32_t unit = facts_.synchronous ? r : r / facts_.group;
      if (static_cast<int64_t>(primary.state.sequences[unit]) <= step) continue;
      auto found = computed_.find({step, r});
      if (found == computed_.end()) continue;
      for (int64_t place = found->second.begin; place < found->second.end; ++place) ++visits[place];
    }
  }
  close();
}

void EpochChecker::Resumed(int64_t step) {
  computed_.clear();
  for (int64_t done = 0; done < step; ++done) {
    for (int32_t r = 0; r < facts_.spec.replicas(); ++r) computed_[{done, r}] = facts_.plan.Places(done, ReplicaId(r));
  }
}

void EpochChecker::Reported(const v1::JobStatus& status) {
  const int64_t steps = facts_.plan.steps_per_epoch;
  for (const v1::EpochResult& epoch : status.epochs()) {
    const uint64_t examples = epoch.train().examples(), all = static_cast<uint64_t>(facts_.plan.examples);
    const bool restored = !status.restored_from().empty() && epoch.epoch() <= status.restored_step() / steps;
    const bool before = restored && (epoch.epoch() < status.restored_step() / steps || !facts_.synchronous);
    const bool fewer = before || facts_.subsets != nullptr;  // those of slow replicas are left out
    if (examples > all || (examples < all && !fewer)) {
      world_.Fail(absl::StrFormat("epoch: the figures of epoch %d count %d examples, there are %d", epoch.epoch(),
                                  examples, all));
    }
    const double loss = static_cast<double>(examples) * LossOfEpoch(facts_.spec, epoch.epoch());
    if (epoch.train().loss() != loss) {
      world_.Fail(absl::StrFormat("epoch: the losses of epoch %d come to %g, not %g", epoch.epoch(),
                                  epoch.train().loss(), loss));
    }
  }
}

// ---- bounds ----

void BoundsChecker::Check(const PartitionCore& core) {
  Queue("requests at a partition", core.waiting(), kWaitersPerReplicaMax * core.config().replicas + kWaitersExtraMax);
}

void BoundsChecker::Queue(const std::string& what, size_t length, size_t most) {
  longest_ = std::max(longest_, length);
  if (length > most) world_.Fail(absl::StrFormat("bounds: %d %s, the bound is %d", length, what, most));
}

// ---- progress ----

void ProgressChecker::Reached(uint64_t updates) {
  if (updates <= updates_) return;
  if (stopped_at_) longest_ = std::max(longest_, world_.now() - std::max(last_, *stopped_at_));
  updates_ = updates;
  last_ = world_.now();
}

bool ProgressChecker::Stalled() const {
  return stopped_at_ && world_.now() - std::max(last_, *stopped_at_) > patience_;
}

}  // namespace cairn::sim
