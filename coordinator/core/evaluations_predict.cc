#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/model/model_inputs.h"
#include "common/model/step_plan.h"
#include "coordinator/core/evaluations.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// Whether it has all outputs of these examples, of the number of bytes for which shards are cut; and their names, or
// none.
bool FitsShard(const v1::PredictBlock& block, PlaceRange places) {
  uint64_t numbers = block.examples();
  for (int32_t side : block.output_shape()) numbers *= static_cast<uint64_t>(std::max(side, 0));
  size_t names = 0;
  for (const std::string& name : block.inputs()) names += name.size();
  return static_cast<int64_t>(block.first_example()) == places.begin &&
         static_cast<int64_t>(block.examples()) == places.size() && block.outputs().size() == numbers * sizeof(float) &&
         block.outputs().size() <= static_cast<size_t>(kEvaluationBlockBytesMax) &&
         block.outputs().size() + names <= static_cast<size_t>(kEvaluationBlockBytesMax + kInputFileBytesMax) &&
         (block.inputs().empty() || block.inputs_size() == places.size());
}

}  // namespace

absl::Status Evaluations::CutPrediction(const Job& job, Evaluation& evaluation) {
  const v1::JobSpec& spec = job.status.spec();
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  const int64_t bytes = ModelOutputSize(graph) * static_cast<int64_t>(sizeof(float));
  if (bytes > kEvaluationBlockBytesMax) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the outputs of one example are %d bytes (%s), more than the %d that one answer may hold", bytes,
        graph.outputs().size() == 1 ? absl::StrCat("shape ", ToString(graph.output().output))
                                    : absl::StrCat("of ", graph.outputs().size(), " outputs"),
        kEvaluationBlockBytesMax));
  }
  const auto examples = static_cast<int64_t>(evaluation.examples);
  const int64_t batch = std::max<int64_t>(1, (spec.batch_size() + spec.replicas() - 1) / std::max(1, spec.replicas()));
  const auto workers =
      static_cast<int64_t>(std::max<size_t>(1, candidates_.Askable(v1::WORKER, &job, /*computes=*/true).size()));
  // Whole batches, and at least two shards per worker if the block is large enough.
  int64_t shard = (examples / (2 * workers) / batch + 1) * batch;
  const int64_t with_name = bytes + (evaluation.named_files ? kInputFileBytesMax : kInputNumberBytesMax);
  const int64_t most = std::max<int64_t>(1, kEvaluationBlockBytesMax / with_name);
  if (shard > most) shard = most >= batch ? most / batch * batch : most;
  const int64_t shards = (examples + shard - 1) / shard;
  if (shards > INT32_MAX) {
    return absl::FailedPreconditionError(absl::StrFormat("%d examples are more than one call can predict", examples));
  }
  evaluation.shards.Cut(static_cast<uint32_t>(shards));
  return absl::OkStatus();
}

void Evaluations::OnPredicted(const ClusterNode& node, const v1::PredictBlock& block) {
  const auto it = evaluations_.find(block.request_id());
  if (it == evaluations_.end() || !it->second.asked.predict) return;
  Evaluation& evaluation = it->second;
  ShardTable::Shard* const shard = evaluation.shards.AskedOf(block.shard(), node.name);
  if (shard == nullptr) return;
  const PlaceRange places = Share(static_cast<int64_t>(evaluation.examples), block.shard(), evaluation.shards.count());
  if (!FitsShard(block, places)) {
    return step_.Warn(OfJob(evaluation.asked.job), "worker \"%s\" sent outputs that do not fit shard %d; ignored",
                      node.name, block.shard());
  }
  v1::PredictResponse& part = shard->block.emplace();
  part.set_first_example(block.first_example());
  part.set_examples(block.examples());
  *part.mutable_output_shape() = block.output_shape();
  part.set_outputs(block.outputs());
  *part.mutable_inputs() = block.inputs();
  part.set_split(evaluation.asked.split);
}

// Sends the next block if it is complete and the client has taken the previous one.
void Evaluations::Deliver(uint64_t request_id, Evaluation& evaluation) {
  PredictionBlocks& blocks = evaluation.blocks;
  if (!blocks.writing() && blocks.delivered() == evaluation.shards.count()) return End(request_id, absl::OkStatus());
  std::optional<v1::PredictResponse> next = blocks.Next();
  if (next) step_.Emit(SendPrediction{evaluation.asked.reply, *std::move(next)});
}

void Evaluations::OnPredictionTaken(ReplyToken reply) {
  const auto it = std::find_if(evaluations_.begin(), evaluations_.end(),
                               [&](const auto& e) { return e.second.asked.predict && e.second.asked.reply == reply; });
  if (it == evaluations_.end()) return;
  const uint64_t request_id = it->first;
  it->second.blocks.Taken();
  Deliver(request_id, it->second);  // may end the request
  const auto left = evaluations_.find(request_id);
  if (left != evaluations_.end()) SendShards(request_id, left->second);
}

void Evaluations::OnPredictionGone(ReplyToken reply) {
  std::erase_if(evaluations_, [&](const auto& e) { return e.second.asked.predict && e.second.asked.reply == reply; });
}

}  // namespace cairn
