#include "coordinator/core/evaluations.h"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/data_check.h"
#include "common/model/limits.h"
#include "coordinator/core/devices.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

// For a shard's first worker to answer.
constexpr absl::Duration kShardTimeout = absl::Minutes(1);
// An evaluation waits for a ps that went away while it ran; a restart takes less.

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

// Other data for a job whose data has targets: the same ones where it names none, and of the same shape.
void TakeTargets(const v1::Data& of_job, v1::Data& data) {
  if (of_job.targets().empty()) return;
  if (data.targets().empty() && data.label_column().empty()) *data.mutable_targets() = of_job.targets();
  for (v1::TargetSource& target : *data.mutable_targets()) {
    if (target.shape().empty()) *target.mutable_shape() = of_job.targets(0).shape();
  }
}

}  // namespace

// The split as the job's data has it; that of other data is seen when a worker has looked at it.
absl::Status Evaluations::Check(const Job& job, const Evaluation& evaluation) const {
  if (evaluation.weights.empty() && !job.has_weights()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("job %d has no weights (it is %s)", job.id(), StateText(job.state())));
  }
  if (!job.has_data()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("job %d: no worker has looked at its data yet; try again when it runs", job.id()));
  }
  if (evaluation.data) {
    v1::JobSpec with_data = job.status.spec();
    *with_data.mutable_data() = *evaluation.data;
    CAIRN_RETURN_IF_ERROR(CheckJob(with_data).status());
  } else if (ExamplesOf(job.status.data(), evaluation.split) == 0) {
    return NoSplit(absl::StrFormat("the data of job %d has", job.id()), job.status.data(), evaluation.split);
  }
  if (evaluation.weights.empty()) {
    if (const NodeName missing = candidates_.MissingPs(job); !missing.empty()) return PsIsAway(missing, job);
  }
  if (evaluations_.size() >= static_cast<size_t>(options_.evaluations_max)) {
    return absl::ResourceExhaustedError("too many evaluations are running; try again later");
  }
  return absl::OkStatus();
}

void Evaluations::Begin(ReplyToken reply, const v1::EvaluateRequest& request, bool predict, absl::Time deadline) {
  const Job* found = jobs_.Find(request.job());
  if (found == nullptr) return step_.ReplyError(reply, jobs_.GetJob(request.job(), step_.now()).status());
  Job* job = jobs_.Find(found->id());
  if (copies_.EndedAndDue(*job)) copies_.TendEndedJob(*job);  // now, not when its turn comes
  Evaluation evaluation;
  evaluation.reply = reply;
  evaluation.job = job->id();
  evaluation.split = request.split() == v1::SPLIT_UNSPECIFIED ? v1::TEST : request.split();
  evaluation.weights = request.weights();
  if (request.has_data()) {
    evaluation.data = request.data();
    TakeTargets(job->status.spec().data(), *evaluation.data);
  }
  evaluation.predict = predict;
  evaluation.deadline = deadline;
  if (absl::Status status = Check(*job, evaluation); !status.ok()) return step_.ReplyError(reply, std::move(status));
  if (nodes_.Connected(v1::WORKER).empty())
    return step_.ReplyError(reply, absl::UnavailableError("no worker is alive; start one and try again"));
  if (std::string text = candidates_.NobodyComputesText(*job, v1::WORKER); !text.empty())
    return step_.ReplyError(reply, absl::UnavailableError(text));
  step_.Log("job %d: %s its %s split%s%s", job->id(), predict ? "predicts" : "evaluates", SplitText(evaluation.split),
            evaluation.data ? absl::StrCat(" of ", std::string(CutUtf8(evaluation.data->path(), kPathShownMax))) : "",
            evaluation.weights.empty()
                ? ""
                : absl::StrCat(" with ", std::string(CutUtf8(evaluation.weights, kPathShownMax))));
  const uint64_t request_id = step_.NextRequestId();
  const uint64_t examples = ExamplesOf(job->status.data(), evaluation.split);
  Evaluation& kept = evaluations_[request_id] = std::move(evaluation);
  if (kept.data) {
    Inspect(request_id, kept);
  } else {
    CutIntoShards(request_id, examples);
  }
}

// ---- other data ----
void Evaluations::Inspect(uint64_t request_id, Evaluation& evaluation) {
  const Job* job = jobs_.Find(evaluation.job);
  if (job == nullptr) return;  // TickEvaluations ends it
  const absl::StatusOr<Graph> graph = Graph::Build(job->status.spec().model());
  if (!graph.ok()) return End(request_id, graph.status());
  for (const ClusterNode* worker : candidates_.Askable(v1::WORKER, job)) {
    if (evaluation.inspectors_tried.size() >= static_cast<size_t>(options_.attempts_max)) break;
    if (!evaluation.inspectors_tried.insert(worker->name).second) continue;
    evaluation.inspector = worker->name;
    evaluation.inspect_until = step_.now() + options_.inspect_timeout;
    v1::CoordinatorMessage message;
    v1::InspectData& inspect = *message.mutable_inspect_data();
    inspect.set_request_id(request_id);
    *inspect.mutable_data() = *evaluation.data;
    for (int64_t side : ExampleShape(*evaluation.data, graph->input_shape())) {
      inspect.add_input_shape(static_cast<int32_t>(side));
    }
    return step_.Send(*worker, std::move(message));
  }
  End(request_id, absl::UnavailableError(absl::StrCat("data: no worker could say what is at \"",
                                                      evaluation.data->path(), "\"; see their logs")));
}

bool Evaluations::OnDataInfo(const ClusterNode& node, const v1::DataInfoReply& reply) {
  auto it = evaluations_.find(reply.request_id());
  if (it == evaluations_.end()) return false;
  Evaluation& evaluation = it->second;
  if (evaluation.inspector != node.name) return true;  // too late
  evaluation.inspector.clear();
  const uint64_t examples = ExamplesOf(reply.info(), evaluation.split);
  if (!reply.error().empty()) {
    End(it->first, absl::InvalidArgumentError(absl::StrCat(reply.error(), " (as worker \"", node.name, "\" sees it)")));
  } else if (examples == 0) {
    End(it->first,
        NoSplit(absl::StrFormat("the data at %s have", evaluation.data->path()), reply.info(), evaluation.split));
  } else {
    CutIntoShards(it->first, examples);
  }
  return true;
}

// ---- shards ----
void Evaluations::CutIntoShards(uint64_t request_id, uint64_t examples) {
  Evaluation& evaluation = evaluations_.at(request_id);
  const Job* job = jobs_.Find(evaluation.job);
  if (job == nullptr) return;  // TickEvaluations ends it
  evaluation.examples = examples;
  if (evaluation.predict) {
    if (absl::Status status = CutPrediction(*job, evaluation); !status.ok()) return End(request_id, status);
  } else {
    const uint64_t computing = std::max<uint64_t>(
        1, candidates_.Askable(evaluation.by_evaluator ? v1::EVALUATOR : v1::WORKER, job, /*computes=*/true).size());
    const uint64_t batches = examples / static_cast<uint64_t>(std::max(1, job->status.spec().batch_size())) + 1;
    evaluation.shards = static_cast<uint32_t>(
        std::min<uint64_t>({computing, batches, static_cast<uint64_t>(options_.evaluate_shards_max)}));
    for (int i = 0; i < job->status.spec().metrics_size(); ++i) {
      evaluation.result.add_metric_names(MetricName(job->status.spec(), i));
    }
  }
  SendShards(request_id, evaluation);
}

// Shards without a worker go to the one with the fewest, not to one that failed at it, or has it already, while there
// is another.
void Evaluations::SendShards(uint64_t request_id, Evaluation& evaluation) {
  const Job* job = jobs_.Find(evaluation.job);
  if (job == nullptr || evaluation.shards == 0) return;
  if (evaluation.weights.empty() && !candidates_.MissingPs(*job).empty()) return;  // TickEvaluations comes back to it
  const std::vector<ClusterNode*> nodes =
      candidates_.Askable(evaluation.by_evaluator ? v1::EVALUATOR : v1::WORKER, job, /*computes=*/true);
  // Two at a time for each node: the next one waits there while one is computed.
  uint32_t end = evaluation.shards;
  if (evaluation.predict) {
    const uint32_t window = std::clamp<uint32_t>(static_cast<uint32_t>(2 * nodes.size()), 4, kEvaluationWindowMax);
    end = std::min(end, evaluation.delivered + window);
  }
  for (; evaluation.next_shard < end; ++evaluation.next_shard) evaluation.open[evaluation.next_shard];
  const auto load = [&](const ClusterNode& node) {
    return std::count_if(evaluation.open.begin(), evaluation.open.end(),
                         [&](const auto& s) { return s.second.worker == node.name; });
  };
  for (auto& [number, shard] : evaluation.open) {
    if (!shard.worker.empty() && step_.now() >= shard.until) {
      // One that has nothing else to do: where all are slow, the same work twice makes them slower.
      const bool another = std::any_of(nodes.begin(), nodes.end(), [&, &shard = shard](const ClusterNode* node) {
        return load(*node) == 0 && !shard.slow.contains(node->name) && !shard.failed_on.contains(node->name);
      });
      if (another) shard.slow.insert(std::exchange(shard.worker, {}));
    }
    if (!shard.worker.empty()) continue;
    const ClusterNode* best = nullptr;
    auto cost = [&, &shard = shard](const ClusterNode& node) {
      return std::tuple(shard.failed_on.contains(node.name), shard.slow.contains(node.name), load(node));
    };
    for (const ClusterNode* node : nodes) {
      if (best == nullptr || cost(*node) < cost(*best)) best = node;
    }
    if (best == nullptr) return;
    shard.worker = best->name;
    shard.until = step_.now() + kShardTimeout * (1 << std::min(shard.asked++, 6));
    if (shard.slow.erase(best->name) > 0) continue;  // it is at it
    v1::CoordinatorMessage message;
    v1::EvaluateShard& evaluate = *message.mutable_evaluate_shard();
    evaluate.set_request_id(request_id);
    evaluate.set_job_id(job->id());
    *evaluate.mutable_spec() = job->status.spec();
    if (evaluation.weights.empty()) FillRoutes(*job, evaluate.mutable_routes());
    shard.addresses = AddressesOf(evaluate.routes());
    evaluate.set_split(evaluation.split);
    evaluate.set_shard(number);
    evaluate.set_shards(evaluation.shards);
    evaluate.set_weights(evaluation.weights);
    evaluate.set_predict(evaluation.predict);
    if (evaluation.data) *evaluate.mutable_data() = *evaluation.data;
    step_.Send(*best, std::move(message));
  }
}

// A ps is away, or came back at another address after the shard was sent.
bool Evaluations::PsWentAway(const Job& job, const Evaluation::Shard& shard) const {
  if (shard.addresses.empty()) return false;  // it needs none
  google::protobuf::RepeatedPtrField<v1::Route> routes;
  FillRoutes(job, &routes);
  return !candidates_.MissingPs(job).empty() || AddressesOf(routes) != shard.addresses;
}

// What the node was to compute goes to another one. Also after a mere broken session: the answer may be lost with it.
void Evaluations::ReleaseWorker(const NodeName& worker) {
  std::vector<uint64_t> released;
  for (auto& [request_id, evaluation] : evaluations_) {
    if (evaluation.inspector == worker) {
      evaluation.inspect_until = step_.now();  // TickEvaluations asks another one
      continue;
    }
    for (auto& [number, shard] : evaluation.open) {
      shard.slow.erase(worker);
      if (shard.worker != worker) continue;
      shard.worker.clear();
      shard.block.reset();
      released.push_back(request_id);
    }
  }
  for (uint64_t request_id : released) SendShards(request_id, evaluations_.at(request_id));
}

void Evaluations::OnEvaluated(const ClusterNode& node, const v1::EvaluateShardReply& reply) {
  auto it = evaluations_.find(reply.request_id());
  if (it == evaluations_.end()) return;
  Evaluation& evaluation = it->second;
  const auto open = evaluation.open.find(reply.shard());
  if (open == evaluation.open.end() || !open->second.IsAskedOf(node.name)) return;
  Evaluation::Shard& shard = open->second;
  std::string error(CutUtf8(reply.error(), kErrorTextMax));
  if (error.empty() && evaluation.predict && !shard.block) error = "it sent no outputs";
  if (error.empty()) return ShardDone(it->first, reply.shard(), reply);
  step_.Warn("job %d: %s \"%s\" could not compute shard %d: %s", evaluation.job,
             evaluation.by_evaluator ? "evaluator" : "worker", node.name, reply.shard(), error);
  if (shard.slow.erase(node.name) > 0) {  // another one is at it
    shard.failed_on.insert(node.name);
    ++shard.failures;
    return;
  }
  shard.worker.clear();
  shard.block.reset();
  if (const Job* job = jobs_.Find(evaluation.job); job != nullptr && PsWentAway(*job, shard))
    return SendShards(it->first, evaluation);  // not the worker's failure
  shard.failed_on.insert(node.name);
  const int attempts_max =
      std::min(options_.attempts_max, std::max(1, static_cast<int>(nodes_.Connected(node.role).size())));
  if (++shard.failures >= attempts_max && shard.slow.empty()) {
    return End(it->first, absl::UnavailableError(absl::StrFormat(
                              "%s \"%s\": %s", evaluation.by_evaluator ? "evaluator" : "worker", node.name, error)));
  }
  SendShards(it->first, evaluation);
}

void Evaluations::ShardDone(uint64_t request_id, uint32_t shard, const v1::EvaluateShardReply& reply) {
  Evaluation& evaluation = evaluations_.at(request_id);
  auto open = evaluation.open.extract(shard);
  ++evaluation.done;
  if (evaluation.predict) {
    evaluation.blocks[shard] = *std::move(open.mapped().block);
    return Deliver(request_id, evaluation);
  }
  v1::EvaluateResponse& result = evaluation.result;
  AddSums(reply.sums(), result.metric_names_size(), *result.mutable_sums());
  result.set_version(evaluation.done == 1 ? reply.version() : std::min(result.version(), reply.version()));
  if (evaluation.done == evaluation.shards) End(request_id, absl::OkStatus());
}

void Evaluations::End(uint64_t request_id, absl::Status status) {
  Evaluation evaluation = std::move(evaluations_.extract(request_id).mapped());
  if (evaluation.by_evaluator) return OnCheckpointEvaluated(evaluation, status);
  if (!status.ok()) return step_.ReplyError(evaluation.reply, std::move(status));
  if (evaluation.predict) return step_.Emit(Reply{evaluation.reply, absl::OkStatus(), {}});
  step_.Emit(Reply{evaluation.reply, absl::OkStatus(), std::move(evaluation.result)});
}

void Evaluations::Tick() {
  TickShards();
  TickEvaluators();
}

void Evaluations::TickShards() {
  std::vector<uint64_t> ids;  // one may end on the way
  for (const auto& [request_id, evaluation] : evaluations_) ids.push_back(request_id);
  for (uint64_t request_id : ids) {
    const auto it = evaluations_.find(request_id);
    if (it == evaluations_.end()) continue;
    Evaluation& evaluation = it->second;
    const Job* job = jobs_.Find(evaluation.job);
    const bool needs_ps = evaluation.weights.empty();
    const NodeName missing = job == nullptr || !needs_ps ? NodeName() : candidates_.MissingPs(*job);
    evaluation.ps_away_since =
        missing.empty() ? absl::InfiniteFuture() : std::min(evaluation.ps_away_since, step_.now());
    if (job == nullptr) {
      End(request_id, absl::NotFoundError(absl::StrCat("job ", evaluation.job, " was deleted")));
    } else if (step_.now() - evaluation.ps_away_since >= kPsAwayMax) {
      End(request_id, PsIsAway(missing, *job));
    } else if (step_.now() >= evaluation.deadline) {
      End(request_id,
          absl::DeadlineExceededError(evaluation.writing ? "the outputs were not read in time"
                                                         : "the workers did not finish the evaluation in time"));
    } else if (evaluation.shards == 0) {
      if (step_.now() >= evaluation.inspect_until) Inspect(request_id, evaluation);
    } else {
      SendShards(request_id, evaluation);
    }
  }
}

}  // namespace cairn
