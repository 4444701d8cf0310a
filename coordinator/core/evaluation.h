// Evaluation: the coordinator's state of one Evaluate or Predict in progress. Data only.
//
// Invariants, in addition to those of ShardTable and PredictionBlocks:
//   1. Evaluate: all shards are handed out at once, at most evaluate_shards_max; there is a result only if their sums
//      have as many examples as the split.
//   2. Predict: a shard's outputs are one block of at most kEvaluationBlockBytesMax with the names of their inputs (of
//      one example, without), and only shards below
//      delivered() + kEvaluationWindowMax are handed out, which bounds the number of blocks that are held for a slow
//      reader.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/model/limits.h"
#include "coordinator/core/events.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/prediction_blocks.h"
#include "coordinator/core/shard_table.h"

namespace cairn {

// What the caller asked for.
struct EvaluationRequest {
  ReplyToken reply;  // 0: no call waits (an evaluator's)
  uint64_t job = 0;
  v1::Split split = v1::TEST;
  bool any_split = false;        // none was named: of other data without a test split, the only one
  std::string weights;           // empty: the job's present weights
  std::optional<v1::Data> data;  // nullopt: the job's own
  bool predict = false;
  absl::Time deadline;
  // For an evaluator: the checkpoint's step.
  bool by_evaluator = false;
  int64_t step = 0;

  v1::Role role() const { return by_evaluator ? v1::EVALUATOR : v1::WORKER; }
};

struct Evaluation {
  EvaluationRequest asked;

  // Data that is not the job's own is inspected by a worker first.
  struct Inspection {
    NodeName worker;  // empty: none is asked
    std::set<NodeName> tried;
    absl::Time until;
  } inspection;

  uint64_t examples = 0;     // of the split
  bool named_files = false;  // an example is a file, else a line or a number
  ShardTable shards;
  v1::EvaluateResponse result;  // of the shards so far
  PredictionBlocks blocks;
  absl::Time ps_away_since = absl::InfiniteFuture();
};

}  // namespace cairn
