#include "coordinator/core/evaluations.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/data_check.h"
#include "common/model/job_outputs.h"
#include "common/model/limits.h"
#include "common/model/metric_sums.h"
#include "common/model/model_inputs.h"
#include "common/model/target_check.h"
#include "coordinator/core/devices.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

uint64_t ExamplesOf(const v1::DataInfo& data, v1::Split split) {
  switch (split) {
    case v1::TRAIN: return data.train_examples();
    case v1::VALIDATION: return data.validation_examples();
    case v1::TEST: return data.test_examples();
    default: return 0;
  }
}

std::set<std::string> AddressesOf(const google::protobuf::RepeatedPtrField<v1::Route>& routes) {
  std::set<std::string> addresses;
  for (const v1::Route& route : routes) addresses.insert(route.address());
  return addresses;
}

absl::Status PsIsAway(const NodeName& ps, const Job& job) {
  return absl::UnavailableError(absl::StrFormat(
      "ps \"%s\", which holds variables of job %d, is not there; try again when it is back", ps, job.id()));
}

std::string SplitText(v1::Split split) {
  switch (split) {
    case v1::TRAIN: return "train";
    case v1::VALIDATION: return "validation";
    case v1::TEST: return "test";
    default: return absl::StrCat("number ", split);
  }
}

absl::Status NoSplit(absl::string_view data_has, const v1::DataInfo& data, v1::Split wanted) {
  std::vector<std::string> there;
  for (const v1::Split split : {v1::VALIDATION, v1::TEST, v1::TRAIN}) {
    if (ExamplesOf(data, split) > 0) there.push_back(absl::StrCat("--split ", SplitText(split)));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(data_has, " no ", SplitText(wanted), " split; use ", absl::StrJoin(there, " or ")));
}

// The split of data that have no other; unspecified: they have several, or none.
v1::Split OnlySplit(const v1::DataInfo& data) {
  v1::Split only = v1::SPLIT_UNSPECIFIED;
  for (const v1::Split split : {v1::TRAIN, v1::VALIDATION, v1::TEST}) {
    if (ExamplesOf(data, split) == 0) continue;
    if (only != v1::SPLIT_UNSPECIFIED) return v1::SPLIT_UNSPECIFIED;
    only = split;
  }
  return only;
}

bool HasNamedFiles(const v1::DataInfo& data) {
  return data.format() == v1::Data::IMAGE_FOLDER || data.format() == v1::Data::TEXT_FOLDER;
}

// For other data of a job whose data has targets or inputs: uses the job's if the other data names none; they must have
// the same shape.
void TakeTargets(const v1::Data& of_job, v1::Data& data) {
  if (data.inputs().empty()) *data.mutable_inputs() = of_job.inputs();
  if (of_job.targets().empty()) return;
  if (data.targets().empty() && data.label_column().empty()) {
    *data.mutable_targets() = of_job.targets();
    data.set_label_column(of_job.label_column());
  } else if (data.targets().empty() && TakesLabel(of_job)) {  // label_column applies to the outputs that take the label
    *data.mutable_targets() = of_job.targets();
  }
  for (v1::TargetSource& target : *data.mutable_targets()) {
    for (const v1::TargetSource& own : of_job.targets()) {
      const bool same = of_job.targets_size() == 1 || own.output() == target.output();
      if (same && target.shape().empty()) *target.mutable_shape() = own.shape();
    }
  }
}

// Workers of two releases may read the same files as other splits: what one of them does not have is in no sum.
absl::Status CheckAllCounted(const Evaluation& evaluation) {
  const uint64_t counted = evaluation.result.sums().examples();
  if (counted == evaluation.examples) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "the workers evaluated %d examples of the %s split, which had %d when a worker looked at the data: either the "
      "data have changed since, or workers of several releases split them differently; bring all workers to one "
      "release; data that have changed are evaluated with --data",
      counted, SplitText(evaluation.asked.split), evaluation.examples));
}

v1::EvaluateShard ShardMessage(const Job& job, const EvaluationRequest& asked, uint32_t shard, uint32_t shards) {
  v1::EvaluateShard message;
  message.set_job_id(job.id());
  *message.mutable_spec() = job.status.spec();
  if (asked.weights.empty()) FillRoutes(job, message.mutable_routes());
  message.set_split(asked.split);
  message.set_shard(shard);
  message.set_shards(shards);
  message.set_weights(asked.weights);
  message.set_predict(asked.predict);
  if (asked.data) *message.mutable_data() = *asked.data;
  return message;
}

}  // namespace

// Checks the split of the job's data. The splits of other data are known once a worker has inspected it.
absl::Status Evaluations::Check(const Job& job, const EvaluationRequest& asked) const {
  if (asked.weights.empty() && !job.has_weights()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("job %d has no weights (it is %s)", job.id(), StateText(job.state())));
  }
  if (!job.has_data()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("job %d: no worker has looked at its data yet; try again when it runs", job.id()));
  }
  if (asked.data) {
    v1::JobSpec with_data = job.status.spec();
    *with_data.mutable_data() = *asked.data;
    CAIRN_RETURN_IF_ERROR(CheckJob(with_data).status());
  } else if (ExamplesOf(job.status.data(), asked.split) == 0) {
    return NoSplit(absl::StrFormat("the data of job %d has", job.id()), job.status.data(), asked.split);
  }
  if (asked.weights.empty()) {
    if (const NodeName missing = candidates_.MissingPs(job); !missing.empty()) return PsIsAway(missing, job);
  }
  if (evaluations_.size() >= static_cast<size_t>(options_.evaluations_max)) {
    return absl::ResourceExhaustedError("too many evaluations are running; try again later");
  }
  return absl::OkStatus();
}

void Evaluations::Begin(const EvaluateJob& event, bool predict) {
  const ReplyToken reply = event.reply;
  const v1::EvaluateRequest& request = event.request;
  const Job* found = jobs_.Find(request.job(), event.who);
  if (found == nullptr || !event.who.MayUse(found->status))
    return step_.ReplyError(reply, jobs_.GetJob(request.job(), step_.now(), event.who).status());
  Job* job = jobs_.Find(found->id());
  if (copies_.EndedAndDue(*job)) copies_.TendEndedJob(*job);  // now, before its regular turn
  EvaluationRequest asked;
  asked.reply = reply;
  asked.job = job->id();
  asked.split = request.split() == v1::SPLIT_UNSPECIFIED ? v1::TEST : request.split();
  asked.any_split = request.split() == v1::SPLIT_UNSPECIFIED && request.has_data();
  asked.weights = request.weights();
  if (request.has_data()) {
    asked.data = request.data();
    TakeTargets(job->status.spec().data(), *asked.data);
  }
  asked.predict = predict;
  asked.deadline = event.deadline;
  if (absl::Status status = Check(*job, asked); !status.ok()) return step_.ReplyError(reply, std::move(status));
  if (nodes_.Connected(v1::WORKER).empty())
    return step_.ReplyError(reply, absl::UnavailableError("no worker is alive; start one and try again"));
  if (std::string text = candidates_.NobodyComputesText(*job, v1::WORKER); !text.empty())
    return step_.ReplyError(reply, absl::UnavailableError(text));
  step_.Log(OfJob(job->id()), "%s its %s split%s%s", predict ? "predicts" : "evaluates",
            asked.any_split ? "test or only" : SplitText(asked.split),
            asked.data ? absl::StrCat(" of ", std::string(CutUtf8(asked.data->path(), kPathShownMax))) : "",
            asked.weights.empty() ? "" : absl::StrCat(" with ", std::string(CutUtf8(asked.weights, kPathShownMax))));
  const uint64_t request_id = step_.NextRequestId();
  const uint64_t examples = ExamplesOf(job->status.data(), asked.split);
  Evaluation& kept = evaluations_[request_id];
  kept.asked = std::move(asked);
  kept.named_files = HasNamedFiles(job->status.data());
  if (kept.asked.data) {
    Inspect(request_id, kept);
  } else {
    CutIntoShards(request_id, examples);
  }
}

// ---- other data ----
void Evaluations::Inspect(uint64_t request_id, Evaluation& evaluation) {
  const Job* job = jobs_.Find(evaluation.asked.job);
  if (job == nullptr) return;  // TickShards ends the request
  const absl::StatusOr<Graph> graph = Graph::Build(job->status.spec().model());
  if (!graph.ok()) return End(request_id, graph.status());
  for (const ClusterNode* worker : candidates_.Askable(v1::WORKER, job)) {
    if (evaluation.inspection.tried.size() >= static_cast<size_t>(options_.attempts_max)) break;
    if (!evaluation.inspection.tried.insert(worker->name).second) continue;
    evaluation.inspection.worker = worker->name;
    evaluation.inspection.until = step_.now() + options_.inspect_timeout;
    v1::CoordinatorMessage message;
    v1::InspectData& inspect = *message.mutable_inspect_data();
    inspect.set_request_id(request_id);
    *inspect.mutable_data() = *evaluation.asked.data;
    evaluation.asked.predict ? inspect.set_to_predict(true) : inspect.set_to_evaluate(true);
    for (int64_t side : ExampleShape(*evaluation.asked.data, ModelInputShape(*graph))) {
      inspect.add_input_shape(static_cast<int32_t>(side));
    }
    return step_.Send(*worker, std::move(message));
  }
  End(request_id, absl::UnavailableError(absl::StrCat("data: no worker could say what is at \"",
                                                      evaluation.asked.data->path(), "\"; see their logs")));
}

bool Evaluations::OnDataInfo(const ClusterNode& node, const v1::DataInfoReply& reply) {
  auto it = evaluations_.find(reply.request_id());
  if (it == evaluations_.end()) return false;
  Evaluation& evaluation = it->second;
  if (evaluation.inspection.worker != node.name) return true;  // too late
  evaluation.inspection.worker.clear();
  evaluation.named_files = HasNamedFiles(reply.info());
  if (const v1::Split only = OnlySplit(reply.info()); evaluation.asked.any_split && only != v1::SPLIT_UNSPECIFIED)
    evaluation.asked.split = only;
  const uint64_t examples = ExamplesOf(reply.info(), evaluation.asked.split);
  if (!reply.error().empty()) {
    End(it->first, absl::InvalidArgumentError(absl::StrCat(reply.error(), " (as worker \"", node.name, "\" sees it)")));
  } else if (examples == 0) {
    End(it->first, NoSplit(absl::StrFormat("the data at %s have", evaluation.asked.data->path()), reply.info(),
                           evaluation.asked.split));
  } else {
    CutIntoShards(it->first, examples);
  }
  return true;
}

// ---- shards ----
void Evaluations::CutIntoShards(uint64_t request_id, uint64_t examples) {
  Evaluation& evaluation = evaluations_.at(request_id);
  const Job* job = jobs_.Find(evaluation.asked.job);
  if (job == nullptr) return;  // TickShards ends the request
  evaluation.examples = examples;
  if (evaluation.asked.predict) {
    if (absl::Status status = CutPrediction(*job, evaluation); !status.ok()) return End(request_id, status);
  } else {
    const uint64_t computing =
        std::max<uint64_t>(1, candidates_.Askable(evaluation.asked.role(), job, /*computes=*/true).size());
    const uint64_t batches = examples / static_cast<uint64_t>(std::max(1, job->status.spec().batch_size())) + 1;
    evaluation.shards.Cut(static_cast<uint32_t>(
        std::min<uint64_t>({computing, batches, static_cast<uint64_t>(options_.evaluate_shards_max)})));
    for (int i = 0; i < FigureCount(job->status.spec()); ++i) {
      evaluation.result.add_metric_names(MetricName(job->status.spec(), i));
    }
  }
  SendShards(request_id, evaluation);
}

void Evaluations::SendShards(uint64_t request_id, Evaluation& evaluation) {
  const EvaluationRequest& asked = evaluation.asked;
  const Job* job = jobs_.Find(asked.job);
  if (job == nullptr || !evaluation.shards.cut()) return;
  if (asked.weights.empty() && !candidates_.MissingPs(*job).empty()) return;  // TickShards retries it
  std::map<NodeName, const ClusterNode*> nodes;
  for (const ClusterNode* node : candidates_.Askable(asked.role(), job, /*computes=*/true)) nodes[node->name] = node;
  // Two at a time per node: the next one is already there when one is finished.
  uint32_t end = evaluation.shards.count();
  if (asked.predict) {
    const uint32_t window = std::clamp<uint32_t>(static_cast<uint32_t>(2 * nodes.size()), 4, kEvaluationWindowMax);
    end = evaluation.blocks.delivered() + window;
  }
  evaluation.shards.Open(end);
  std::vector<NodeName> names;
  names.reserve(nodes.size());
  for (const auto& [name, node] : nodes) names.push_back(name);
  for (const ShardTable::Handout& handout : evaluation.shards.HandOut(names, step_.now())) {
    v1::CoordinatorMessage message;
    *message.mutable_evaluate_shard() = ShardMessage(*job, asked, handout.number, evaluation.shards.count());
    message.mutable_evaluate_shard()->set_request_id(request_id);
    evaluation.shards.At(handout.number).addresses = AddressesOf(message.evaluate_shard().routes());
    step_.Send(*nodes.at(handout.worker), std::move(message));
  }
}

// Whether a ps went away, or changed its address, after the shard was sent.
bool Evaluations::PsWentAway(const Job& job, const ShardTable::Shard& shard) const {
  if (shard.addresses.empty()) return false;  // it needs no ps
  google::protobuf::RepeatedPtrField<v1::Route> routes;
  FillRoutes(job, &routes);
  return !candidates_.MissingPs(job).empty() || AddressesOf(routes) != shard.addresses;
}

// Reassigns what the node was to compute. Needed even if only the session broke, since the answer may be lost with it.
void Evaluations::ReleaseWorker(const NodeName& worker) {
  std::vector<uint64_t> released;
  for (auto& [request_id, evaluation] : evaluations_) {
    if (evaluation.inspection.worker == worker) {
      evaluation.inspection.until = step_.now();  // TickShards asks another one
      continue;
    }
    if (evaluation.shards.Release(worker)) released.push_back(request_id);
  }
  for (uint64_t request_id : released) SendShards(request_id, evaluations_.at(request_id));
}

void Evaluations::OnEvaluated(const ClusterNode& node, const v1::EvaluateShardReply& reply) {
  auto it = evaluations_.find(reply.request_id());
  if (it == evaluations_.end()) return;
  Evaluation& evaluation = it->second;
  ShardTable::Shard* const shard = evaluation.shards.AskedOf(reply.shard(), node.name);
  if (shard == nullptr) return;
  std::string error(CutUtf8(reply.error(), kErrorTextMax));
  if (error.empty() && evaluation.asked.predict && !shard->block) error = "it sent no outputs";
  if (error.empty()) return ShardDone(it->first, reply.shard(), reply);
  step_.Warn(OfJob(evaluation.asked.job), "%s \"%s\" could not compute shard %d: %s",
             evaluation.asked.by_evaluator ? "evaluator" : "worker", node.name, reply.shard(), error);
  if (!ShardTable::Fail(*shard, node.name)) return;
  if (const Job* job = jobs_.Find(evaluation.asked.job); job != nullptr && PsWentAway(*job, *shard))
    return SendShards(it->first, evaluation);  // the worker is not at fault
  shard->failed_on.insert(node.name);
  const int attempts_max =
      std::min(options_.attempts_max, std::max(1, static_cast<int>(nodes_.Connected(node.role).size())));
  if (++shard->failures >= attempts_max && shard->slow.empty()) {
    return End(it->first,
               absl::UnavailableError(absl::StrFormat(
                   "%s \"%s\": %s", evaluation.asked.by_evaluator ? "evaluator" : "worker", node.name, error)));
  }
  SendShards(it->first, evaluation);
}

void Evaluations::ShardDone(uint64_t request_id, uint32_t shard, const v1::EvaluateShardReply& reply) {
  Evaluation& evaluation = evaluations_.at(request_id);
  ShardTable::Shard finished = evaluation.shards.Finish(shard);
  if (evaluation.asked.predict) {
    evaluation.blocks.Add(shard, *std::move(finished.block));
    return Deliver(request_id, evaluation);
  }
  const Job* job = jobs_.Find(evaluation.asked.job);
  if (job == nullptr) return;  // TickShards ends the request
  v1::EvaluateResponse& result = evaluation.result;
  AddSums(reply.sums(), MetricSumCount(job->status.spec()), *result.mutable_sums());
  result.set_version(evaluation.shards.done() == 1 ? reply.version() : std::min(result.version(), reply.version()));
  if (!evaluation.shards.AllDone()) return;
  End(request_id, CheckAllCounted(evaluation));
}

void Evaluations::End(uint64_t request_id, absl::Status status) {
  Evaluation evaluation = std::move(evaluations_.extract(request_id).mapped());
  if (evaluation.asked.by_evaluator) return OnCheckpointEvaluated(evaluation, status);
  if (!status.ok()) return step_.ReplyError(evaluation.asked.reply, std::move(status));
  if (evaluation.asked.predict) return step_.Emit(Reply{evaluation.asked.reply, absl::OkStatus(), {}});
  evaluation.result.set_split(evaluation.asked.split);
  step_.Emit(Reply{evaluation.asked.reply, absl::OkStatus(), std::move(evaluation.result)});
}

void Evaluations::Tick() {
  TickShards();
  TickEvaluators();
}

void Evaluations::TickShards() {
  std::vector<uint64_t> ids;  // a request may end during the loop
  for (const auto& [request_id, evaluation] : evaluations_) ids.push_back(request_id);
  for (uint64_t request_id : ids) {
    const auto it = evaluations_.find(request_id);
    if (it == evaluations_.end()) continue;
    Evaluation& evaluation = it->second;
    const Job* job = jobs_.Find(evaluation.asked.job);
    const bool needs_ps = evaluation.asked.weights.empty();
    const NodeName missing = job == nullptr || !needs_ps ? NodeName() : candidates_.MissingPs(*job);
    evaluation.ps_away_since =
        missing.empty() ? absl::InfiniteFuture() : std::min(evaluation.ps_away_since, step_.now());
    if (job == nullptr) {
      End(request_id, absl::NotFoundError(absl::StrCat("job ", evaluation.asked.job, " was deleted")));
    } else if (step_.now() - evaluation.ps_away_since >= kPsAwayMax) {
      End(request_id, PsIsAway(missing, *job));
    } else if (step_.now() >= evaluation.asked.deadline) {
      End(request_id, absl::DeadlineExceededError(evaluation.blocks.writing()
                                                      ? "the outputs were not read in time"
                                                      : "the workers did not finish the evaluation in time"));
    } else if (!evaluation.shards.cut()) {
      if (step_.now() >= evaluation.inspection.until) Inspect(request_id, evaluation);
    } else {
      SendShards(request_id, evaluation);
    }
  }
}

}  // namespace cairn
