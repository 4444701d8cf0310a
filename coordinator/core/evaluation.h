// Evaluation: what ClusterCore knows of one Evaluate or Predict that is under way. Data only.
//
// The split is cut into shards that workers compute; one whose worker is lost, or fails at it, goes to another. One
// whose worker does not answer is asked of another, too: each worker once, the next one after twice the time.
// Invariants:
//   1. A shard counts once: with its first answer.
//   2. Evaluate: all shards are handed out at once, at most evaluate_shards_max. Predict: a shard's outputs are one
//      block of at most kEvaluationBlockBytesMax, and only shards below `delivered` + kEvaluationWindowMax are
//      handed out, so that no more blocks than these are ever held for a slow reader.
//   3. Predict: the reader has at most one block that it has not taken (`writing`); blocks go out in the order of
//      shards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/model/limits.h"
#include "coordinator/core/events.h"
#include "coordinator/core/limits.h"

namespace cairn {

struct Evaluation {
  struct Shard {
    NodeName worker;   // empty: none yet
    absl::Time until;  // then another one is asked, too
    int asked = 0;
    int failures = 0;
    std::set<NodeName> slow;  // asked before, and may still answer
    std::set<NodeName> failed_on;
    std::set<std::string> addresses;           // of the ps, as the worker was told
    std::optional<v1::PredictResponse> block;  // Predict: came, its shard's reply did not

    bool IsAskedOf(const NodeName& node) const { return worker == node || slow.contains(node); }
  };

  // ---- what was asked ----
  ReplyToken reply;  // 0: nobody waits (an evaluator's)
  uint64_t job = 0;
  v1::Split split = v1::TEST;
  std::string weights;           // empty: the job's present ones
  std::optional<v1::Data> data;  // none: the job's
  bool predict = false;
  absl::Time deadline;
  // An evaluator's: which checkpoint, of which step.
  bool by_evaluator = false;
  int64_t step = 0;

  // ---- `data` is looked at by a worker first ----
  NodeName inspector;  // empty: none is asked
  std::set<NodeName> inspectors_tried;
  absl::Time inspect_until;

  // ---- shards ----
  uint64_t examples = 0;           // of the split
  uint32_t shards = 0;             // 0: not cut yet
  uint32_t next_shard = 0;         // the first that was not handed out
  std::map<uint32_t, Shard> open;  // handed out or to be handed out, not done
  v1::EvaluateResponse result;
  uint32_t done = 0;
  absl::Time ps_away_since = absl::InfiniteFuture();

  // ---- Predict ----
  std::map<uint32_t, v1::PredictResponse> blocks;  // done, not delivered
  uint32_t delivered = 0;                          // shards; with `writing`, the last of them is on its way
  bool writing = false;
};

}  // namespace cairn
