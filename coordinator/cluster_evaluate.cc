// Evaluate: the split is cut into shards, one for each worker; a shard whose worker is lost or fails goes to another
// one. While a ps is away the evaluation waits a while.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

// An evaluation waits for a ps that went away while it ran; a restart takes less.
constexpr absl::Duration kPsAwayMax = absl::Seconds(30);

uint64_t ExamplesOf(const v1::DataInfo& data, v1::Split split) {
  switch (split) {
    case v1::TRAIN:
      return data.train_examples();
    case v1::VALIDATION:
      return data.validation_examples();
    case v1::TEST:
      return data.test_examples();
    default:
      return 0;
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
    case v1::TRAIN:
      return "train";
    case v1::VALIDATION:
      return "validation";
    case v1::TEST:
      return "test";
    default:
      return absl::StrCat("number ", split);
  }
}

}  // namespace

absl::Status ClusterCore::CheckEvaluate(const Job& job, v1::Split split) const {
  if (!job.ran() || job.status.partitions_size() == 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("job %d has no weights (it is %s)", job.id(), JobStateText(job.state())));
  }
  if (ExamplesOf(job.status.data(), split) == 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the data of job %d has no %s split", job.id(), SplitText(split)));
  }
  if (const NodeName missing = MissingPs(job); !missing.empty()) return PsIsAway(missing, job);
  if (evaluations_.size() >= static_cast<size_t>(options_.evaluations_max)) {
    return absl::ResourceExhaustedError("too many evaluations are running; try again later");
  }
  return absl::OkStatus();
}

void ClusterCore::OnEvaluate(const EvaluateJob& event) {
  const Job* job = Find(event.request.job());
  if (job == nullptr) return ReplyError(event.reply, GetJob(event.request.job(), now_).status());
  const v1::Split split = event.request.split() == v1::SPLIT_UNSPECIFIED ? v1::TEST : event.request.split();
  if (absl::Status status = CheckEvaluate(*job, split); !status.ok()) return ReplyError(event.reply, std::move(status));
  const size_t workers = members_.Connected(v1::WORKER).size();
  if (workers == 0)
    return ReplyError(event.reply, absl::UnavailableError("no worker is alive; start one and try again"));
  Evaluation evaluation;
  evaluation.reply = event.reply;
  evaluation.job = job->id();
  evaluation.split = split;
  evaluation.deadline = event.deadline;
  const uint64_t batches = ExamplesOf(job->status.data(), split) / std::max(1, job->status.spec().batch_size()) + 1;
  evaluation.shards.resize(std::min<uint64_t>({workers, batches, static_cast<uint64_t>(options_.evaluate_shards_max)}));
  for (int i = 0; i < job->status.spec().metrics_size(); ++i) {
    evaluation.result.add_metric_names(MetricName(job->status.spec(), i));
  }
  Log("job %d: evaluates its %s split, %d shards", job->id(), SplitText(split), evaluation.shards.size());
  const uint64_t request_id = NextRequestId();
  Evaluation& kept = evaluations_[request_id] = std::move(evaluation);
  SendShards(request_id, kept);
}

// Shards without a worker go to the connected one with the fewest, not to one that failed at it while there is another.
void ClusterCore::SendShards(uint64_t request_id, Evaluation& evaluation) {
  const Job* job = Find(evaluation.job);
  if (job == nullptr || !MissingPs(*job).empty()) return;  // TickEvaluations comes back to it
  for (size_t i = 0; i < evaluation.shards.size(); ++i) {
    Shard& shard = evaluation.shards[i];
    if (shard.done || !shard.worker.empty()) continue;
    const ClusterNode* best = nullptr;
    auto cost = [&](const ClusterNode& node) {
      const auto load = std::count_if(evaluation.shards.begin(), evaluation.shards.end(),
                                      [&](const Shard& s) { return !s.done && s.worker == node.name; });
      return std::pair(shard.failed_on.contains(node.name), load);
    };
    for (const ClusterNode* node : members_.Connected(v1::WORKER)) {
      if (best == nullptr || cost(*node) < cost(*best)) best = node;
    }
    if (best == nullptr) return;
    shard.worker = best->name;
    v1::CoordinatorMessage message;
    v1::EvaluateShard& evaluate = *message.mutable_evaluate_shard();
    evaluate.set_request_id(request_id);
    evaluate.set_job_id(job->id());
    *evaluate.mutable_spec() = job->status.spec();
    FillRoutes(*job, evaluate.mutable_routes());
    shard.addresses = AddressesOf(evaluate.routes());
    evaluate.set_split(evaluation.split);
    evaluate.set_shard(static_cast<uint32_t>(i));
    evaluate.set_shards(static_cast<uint32_t>(evaluation.shards.size()));
    Send(*best, std::move(message));
  }
}

// A ps is away, or came back at another address after the shard was sent.
bool ClusterCore::PsWentAway(const Job& job, const Shard& shard) const {
  google::protobuf::RepeatedPtrField<v1::Route> routes;
  FillRoutes(job, &routes);
  return !MissingPs(job).empty() || AddressesOf(routes) != shard.addresses;
}

void ClusterCore::OnEvaluated(const ClusterNode& node, const v1::EvaluateShardReply& reply) {
  auto it = evaluations_.find(reply.request_id());
  if (it == evaluations_.end() || reply.shard() >= it->second.shards.size()) return;
  Evaluation& evaluation = it->second;
  Shard& shard = evaluation.shards[reply.shard()];
  if (shard.done || shard.worker != node.name) return;
  if (!reply.error().empty()) {
    Warn("job %d: worker \"%s\" could not evaluate shard %d: %s", evaluation.job, node.name, reply.shard(),
         reply.error());
    shard.worker.clear();
    if (const Job* job = Find(evaluation.job); job != nullptr && PsWentAway(*job, shard))
      return SendShards(reply.request_id(), evaluation);  // not the worker's failure
    shard.failed_on.insert(node.name);
    const size_t attempts_max =
        std::min<size_t>(options_.attempts_max, std::max<size_t>(1, members_.Connected(v1::WORKER).size()));
    if (shard.failed_on.size() >= attempts_max) {
      ReplyError(evaluation.reply,
                 absl::UnavailableError(absl::StrFormat("worker \"%s\": %s", node.name, reply.error())));
      evaluations_.erase(it);
      return;
    }
    return SendShards(reply.request_id(), evaluation);
  }
  const bool first =
      std::none_of(evaluation.shards.begin(), evaluation.shards.end(), [](const Shard& s) { return s.done; });
  shard.done = true;
  v1::EvaluateResponse& result = evaluation.result;
  AddSums(reply.sums(), result.metric_names_size(), *result.mutable_sums());
  result.set_version(first ? reply.version() : std::min(result.version(), reply.version()));
  if (!std::all_of(evaluation.shards.begin(), evaluation.shards.end(), [](const Shard& s) { return s.done; })) return;
  Emit(Reply{evaluation.reply, absl::OkStatus(), std::move(result)});
  evaluations_.erase(it);
}

void ClusterCore::TickEvaluations() {
  for (auto it = evaluations_.begin(); it != evaluations_.end();) {
    Evaluation& evaluation = it->second;
    const Job* job = Find(evaluation.job);
    const NodeName missing = job == nullptr ? NodeName() : MissingPs(*job);
    evaluation.ps_away_since = missing.empty() ? absl::InfiniteFuture() : std::min(evaluation.ps_away_since, now_);
    if (job == nullptr) {
      ReplyError(evaluation.reply, absl::NotFoundError(absl::StrCat("job ", evaluation.job, " was deleted")));
    } else if (now_ - evaluation.ps_away_since >= kPsAwayMax) {
      ReplyError(evaluation.reply, PsIsAway(missing, *job));
    } else if (now_ >= evaluation.deadline) {
      ReplyError(evaluation.reply, absl::DeadlineExceededError("the workers did not finish the evaluation in time"));
    } else {
      SendShards(it->first, evaluation);
      ++it;
      continue;
    }
    it = evaluations_.erase(it);
  }
}

}  // namespace cairn
