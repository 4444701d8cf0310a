// Evaluations: Evaluate, Predict, and checkpoints that evaluators follow.
//
// Evaluate: the split is cut into shards, one for each worker; a shard whose worker is lost or fails goes to another
// worker. While a ps is away the evaluation waits, up to kPsAwayMax. Predict does the same with other shards
// (evaluations_predict.cc). Jobs with validation_by BY_EVALUATOR have their checkpoints evaluated during training,
// one after the other, by nodes of that role (evaluators.cc); the training does not wait for them.
//
// Not thread-safe; one core owns it. Invariants: those of an Evaluation (evaluation.h), and
//   1. At most evaluations_max are in progress.
//   2. Each ends: with its result, an error, or at its deadline.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/core/component.h"
#include "coordinator/core/copies.h"
#include "coordinator/core/evaluation.h"

namespace cairn {

class Evaluations : Component {
 public:
  Evaluations(Ground& ground, Copies& copies) : Component(ground), copies_(copies) {}

  void OnEvaluate(const EvaluateJob& event) { Begin(event, false); }
  void OnPredict(const PredictJob& event) { Begin({event.reply, event.request, event.deadline, event.who}, true); }
  void OnPredictionTaken(ReplyToken reply);
  void OnPredictionGone(ReplyToken reply);

  // False: the reply answers none of this part's requests.
  bool OnDataInfo(const ClusterNode& node, const v1::DataInfoReply& reply);
  void OnEvaluated(const ClusterNode& node, const v1::EvaluateShardReply& reply);
  void OnPredicted(const ClusterNode& node, const v1::PredictBlock& block);
  // Gives the node's shards to other nodes. Also called when only its session broke: its answer may be lost with it.
  void ReleaseWorker(const NodeName& worker);
  void Tick();

  // What a user who waits for validations should know.
  std::string EvaluatorsText(const Job& job) const;

 private:
  void Begin(const EvaluateJob& event, bool predict);
  absl::Status Check(const Job& job, const EvaluationRequest& asked) const;
  void Inspect(uint64_t request_id, Evaluation& evaluation);
  void CutIntoShards(uint64_t request_id, uint64_t examples);
  absl::Status CutPrediction(const Job& job, Evaluation& evaluation);
  bool PsWentAway(const Job& job, const ShardTable::Shard& shard) const;
  void SendShards(uint64_t request_id, Evaluation& evaluation);
  void ShardDone(uint64_t request_id, uint32_t shard, const v1::EvaluateShardReply& reply);
  void Deliver(uint64_t request_id, Evaluation& evaluation);
  void End(uint64_t request_id, absl::Status status);
  void TickShards();
  void TickEvaluators();
  void FollowCheckpoints(Job& job);
  void OnCheckpointEvaluated(const Evaluation& evaluation, const absl::Status& status);

  Copies& copies_;
  std::map<uint64_t, Evaluation> evaluations_;  // by request id
};

}  // namespace cairn
