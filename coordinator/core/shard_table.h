// ShardTable: the shards of one Evaluate or Predict, and the workers that were asked for each.
//
// A shard whose worker is lost or fails goes to another worker. A shard whose worker does not answer is also given to
// another: to each worker once, with a timeout that doubles each time.
//
// Not thread-safe; part of an Evaluation. Invariants:
//   1. A shard counts once, with its first answer (Finish).
//   2. A shard is open from Open to Finish; only open ones are handed out or answered.
//   3. A worker that failed at a shard, or has it already, is not asked for it while there is another worker.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "coordinator/core/events.h"

namespace cairn {

class ShardTable {
 public:
  struct Shard {
    NodeName worker;   // empty: none yet
    absl::Time until;  // when another worker is asked too
    int asked = 0;
    int failures = 0;
    std::set<NodeName> slow;  // asked before, and may still answer
    std::set<NodeName> failed_on;
    std::set<std::string> addresses;           // of the ps, as sent to the worker
    std::optional<v1::PredictResponse> block;  // Predict: the block arrived, the shard's reply did not yet

    bool IsAskedOf(const NodeName& node) const { return worker == node || slow.contains(node); }
  };
  struct Handout {
    uint32_t number = 0;
    NodeName worker;
  };

  void Cut(uint32_t count) { count_ = count; }
  bool cut() const { return count_ > 0; }
  uint32_t count() const { return count_; }
  uint32_t done() const { return done_; }
  bool AllDone() const { return done_ == count_; }

  // Opens the shards below `end`, or below count().
  void Open(uint32_t end);
  // Gives open shards without a worker, or whose worker has timed out, to the workers with the fewest shards. Returns
  // what to send to the workers.
  std::vector<Handout> HandOut(const std::vector<NodeName>& workers, absl::Time now);
  // Null: the shard is not open, or the worker was not asked for it.
  Shard* AskedOf(uint32_t number, const NodeName& worker);
  Shard& At(uint32_t number) { return open_.at(number); }
  // The worker is dead. Returns whether a shard has no present worker now.
  bool Release(const NodeName& worker);
  // The worker failed at the shard. False: another worker still has it.
  static bool Fail(Shard& shard, const NodeName& worker);
  // Counts the shard as done and returns it, with the block that came before its reply.
  Shard Finish(uint32_t number);

 private:
  int64_t LoadOf(const NodeName& worker) const;

  uint32_t count_ = 0;  // 0: not cut yet
  uint32_t next_ = 0;   // the first that was not opened
  uint32_t done_ = 0;
  std::map<uint32_t, Shard> open_;
};

}  // namespace cairn
