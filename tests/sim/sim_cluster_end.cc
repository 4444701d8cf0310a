// The checks at the end of a simulated run's job.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/fault_check.h"
#include "common/model/state_text.h"
#include "common/model/strategy_check.h"
#include "tests/sim/sim_cluster.h"

namespace cairn::sim {
namespace {

constexpr absl::Duration kTimeToRest = absl::Seconds(60);  // far more than it takes

}  // namespace

void SimCluster::CheckEnd() {
  if (world_.failed()) return;
  if (!final_) {
    return world_.Fail(absl::StrFormat("progress: no step for %.0f s after the faults had stopped: %s",
                                       absl::ToDoubleSeconds(checkers_->progress.patience()), Where()));
  }
  // If the log is not waited for, the loss of all copies of a partition may leave no common version; the job then says
  // so.
  if (final_->state() == v1::FAILED && !LogsBeforeReply(facts_.spec.durability()) &&
      final_->reason().find("can take them back to no common one") != std::string::npos) {
    return;
  }
  // The job may lack files: a disk refused one, or an asynchronous chief's checkpoint was of another moment.
  const bool may_lack_files = checkers_->callbacks.failures() > 0 || !IsSynchronous(facts_.spec);
  if (final_->state() != v1::SUCCEEDED && !(final_->state() == v1::ENDED_WITH_ERRORS && may_lack_files)) {
    return world_.Fail(v1::JobState_Name(final_->state()) + ": " + final_->reason());
  }
  checkers_->epoch.Reported(*final_);
  checkers_->callbacks.AtEnd(*final_);
  checkers_->checkpoint.AtEnd(*final_, directory_);
  CheckKept();
  bool last = false;
  // A ps that is down holds the rest; the digest covered all partitions.
  for (const v1::PartitionPlacement& placement : final_->partitions()) {
    for (auto& ps : ps_) {
      if (ps->name() != placement.primary()) continue;
      auto core = ps->cores().find(placement.partition());
      if (core == ps->cores().end()) continue;
      const Copy copy = ps->CopyOf(placement.partition());
      checkers_->exactly_once.AtEnd(copy);
      checkers_->reference.Changed(copy);
      checkers_->acknowledged.AtEnd(copy);
      checkers_->epoch.AtEnd(copy);
      last = last || static_cast<int64_t>(copy.state.version) == facts_.end.steps;
    }
  }
  if (facts_.synchronous && facts_.end.weights != facts_.end.steps && last)
    checkers_->callbacks.EndsWithoutBest(*final_);
}

// What the digest was computed from is on the disks, whatever the processes do next. If a disk is lost while the last
// report is on its way, a backup has it.
void SimCluster::CheckKept() {
  if (disks_lost_) return;
  for (const v1::PartitionPlacement& placement : final_->partitions()) {
    for (auto& ps : ps_) {
      if (ps->name() != placement.primary()) continue;
      const uint64_t wanted = digest_versions_.at(placement.partition()),
                     found = ps->VersionOnDisk(placement.partition());
      const bool elsewhere = std::any_of(ps_.begin(), ps_.end(), [&](const auto& other) {
        return other->VersionOnDisk(placement.partition()) == wanted;
      });
      if (found == wanted || (!ps->up() && elsewhere)) continue;
      world_.Fail(absl::StrFormat("kept: the job has ended with partition %d at version %d, the disk of %s has %d",
                                  placement.partition(), wanted, ps->name(), found));
    }
  }
}

// A job that is complete leaves the memory of every ps, including one that was restarted meanwhile, and its disk has
// the job's final values.
void SimCluster::CheckAtRest() {
  if (world_.failed() || !IsComplete(final_->state())) return;
  SimPs& again = *ps_[static_cast<size_t>(world_.rng.Between(0, static_cast<int64_t>(ps_.size()) - 1))];
  if (again.up() && world_.rng.Chance(0.5)) {
    again.End();
    again.Start();
  }
  std::string restless;
  world_.RunUntil(world_.now() + kTimeToRest, [&] { return (restless = Restless()).empty(); });
  if (!world_.failed() && !restless.empty()) return world_.Fail("at rest: " + restless);
  for (auto& ps : ps_) {
    for (const auto& [partition, core] : ps->cores()) {
      if (core->at_rest()) checkers_->reference.Changed(ps->CopyOf(partition));
    }
  }
}

// Names a copy that is still in memory although the coordinator's command has arrived; a backup without an image has
// nothing to keep. Empty: there is none.
std::string SimCluster::Restless() const {
  for (auto& ps : ps_) {
    if (!ps->up() || ps->disk().failing()) continue;
    for (const auto& [partition, core] : ps->cores()) {
      if (core->at_rest() || (core->config().backup && core->version() == 0)) continue;
      return absl::StrFormat("%s, partition %d: version %d is in memory yet%s", ps->name(), partition, core->version(),
                             core->config().ended ? "" : ", nobody has told it that the job has ended");
    }
  }
  return "";
}

}  // namespace cairn::sim
