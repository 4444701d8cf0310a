#include "coordinator/core/reasons.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "coordinator/core/devices.h"

namespace cairn {
namespace {

constexpr absl::Duration kQueueInterval = absl::Seconds(1);  // reasons of queued jobs are updated at least this often
constexpr absl::Duration kStalledAfter = absl::Seconds(25);
constexpr absl::Duration kReasonLoggedAfter = absl::Seconds(4);  // together they stay below the promised 30 s

std::string LeftOutText(const Job& job) {
  std::string text;
  for (const auto& [name, left_out] : job.workers.left_out.nodes)
    absl::StrAppend(&text, text.empty() ? " (" : "; ", left_out.why);
  return text.empty() ? text : text + ")";
}

// Just after the coordinator's start: names ps that, as far as is known, still serve the job; empty: all have reported.
std::string UnheardText(const Nodes& nodes, const v1::JobStatus& job) {
  std::set<NodeName> unheard;
  for (const v1::PartitionPlacement& p : job.partitions()) {
    if (const ClusterNode* ps = nodes.Find(p.primary()); ps != nullptr && ps->lease.expected())
      unheard.insert(ps->name);
  }
  if (unheard.empty()) return "";
  const std::string more = unheard.size() > 1 ? absl::StrFormat(" and %d more", unheard.size() - 1) : "";
  return absl::StrFormat("nothing has been heard yet from ps \"%s\"%s, since the coordinator was started",
                         *unheard.begin(), more);
}

}  // namespace

std::string Reasons::QueuedReason(const Job& job) const {
  const std::string obstacle = Obstacle(job);
  return obstacle.empty() ? "waits for its turn" : obstacle;
}

std::string Reasons::Obstacle(const Job& job) const {
  int workers = 0, ps = 0;
  for (const auto& [name, node] : nodes_.all()) {
    if (!node.connected()) continue;
    ps += node.role == v1::PS && !node.leaving();
    workers += node.role == v1::WORKER && (candidates_.MayWork(job, node) || !Fits(job.status.spec(), node));
  }
  if (!job.has_data()) {
    if (workers == 0) return "waits for a worker to look at the data: none is alive";
    return job.queueing.inspecting ? "a worker is looking at the data"
                                   : "waits for a worker to look at the data; see the workers' logs";
  }
  if (ps <= job.status.spec().backups()) {
    if (ps == 0) return absl::StrCat("waits for a ps: none is alive that may work", nodes_.FaultsText());
    return absl::StrFormat("waits for ps: %d alive, %d are needed for backups: %d%s", ps,
                           1 + job.status.spec().backups(), job.status.spec().backups(), nodes_.FaultsText());
  }
  if (std::string text = candidates_.NobodyFitsText(job); !text.empty()) return text;
  const size_t needed = WorkersNeeded(job), usable = candidates_.MostOfOneDevice(job, /*free=*/false),
               free = candidates_.MostOfOneDevice(job, /*free=*/true);
  if (usable < needed) return absl::StrFormat("waits for workers: %d alive, min_workers is %d", usable, needed);
  if (free < needed)
    return absl::StrFormat("waits for free slots: %d of %d workers have one, it needs %d", free, usable, needed);
  return "";
}

std::string Reasons::Reason(const Job& job) const {
  if (job.queued()) return QueuedReason(job);
  if (std::string reason = copies_.WaitText(job); !reason.empty()) return reason;
  if (job.partitions.hosting.awaiting_ready) {
    if (std::string text = UnheardText(nodes_, job.status); !text.empty()) return text;
    return absl::StrFormat("%sthe ps make its partitions ready, %d of %d so far",
                           job.finalizing() ? "training is over: " : "",
                           std::count(job.partitions.hosting.ready.begin(), job.partitions.hosting.ready.end(), true),
                           job.partitions.hosting.ready.size());
  }
  if (job.starting() && !job.restoring.from.empty()) {
    if (step_.now() < job.restoring.not_before)
      return "the checkpoint could not be restored, it is tried again shortly; see the log";
    if (job.restoring.worker.empty()) return "waits for a worker to restore the checkpoint: none is alive";
    return absl::StrFormat("worker \"%s\" restores %s", job.restoring.worker, job.restoring.from.front());
  }
  if (job.finalizing()) {
    if (std::string reason = KeepReason(job); !reason.empty()) return reason;
    const bool worker = std::any_of(nodes_.all().begin(), nodes_.all().end(),
                                    [](const auto& n) { return n.second.role == v1::WORKER && n.second.connected(); });
    return worker ? "" : "waits for a worker to take the digest: none is alive";
  }
  for (const v1::ReplicaPlacement& r : job.status.replicas()) {
    if (!r.worker().empty()) continue;
    if (std::string text = candidates_.NobodyFitsText(job); !text.empty()) return text;
    return absl::StrCat("waits for a worker: none is alive that may work", LeftOutText(job));
  }
  if (job.running() && step_.now() - job.decisions.checkpoint_wanted_since >= kStalledAfter) {
    return absl::StrFormat("waits for worker \"%s\" to write the checkpoint of epoch %d; see its log",
                           job.status.chief(), job.status.epochs_open());
  }
  if (job.running() && step_.now() - job.outputs.files.waited_since >= kStalledAfter) {
    return absl::StrFormat(
        "epoch %d waits for %d model files to be written, before their checkpoints are removed (checkpoints.keep_max "
        "is %d); see the "
        "workers' logs",
        job.status.epochs_open() + 1, job.outputs.files.saves.size(), job.status.spec().checkpoints().keep_max());
  }
  if (job.running() && job.outputs.files.until != absl::InfiniteFuture()) {
    return absl::StrFormat(
        "all steps are done; %d model files and the summaries of %d epochs are not written yet, it waits at most a "
        "minute for them: see "
        "its notes and the workers' logs",
        job.outputs.files.saves.size(),
        WritesSummaries(job.status.spec()) ? job.status.epochs_size() - job.outputs.summaries.written : 0);
  }
  if (job.running() && step_.now() - job.progress->replicas().last_advance() >= kStalledAfter) {
    std::set<NodeName> workers;
    const std::vector<int32_t> slowest = job.progress->replicas().Slowest();
    for (int32_t r : slowest) workers.insert(job.status.replicas(r).worker());
    const std::string warning = WarningText(job);
    return absl::StrFormat("no step was finished for a while: replicas %s are behind, on %s; see their logs%s%s",
                           ReplicaListText(slowest), absl::StrJoin(workers, ", "), warning.empty() ? "" : "; ",
                           warning);
  }
  return WarningText(job);
}

// The ps that are still writing the job's final weights; empty: none.
std::string Reasons::KeepReason(const Job& job) const {
  std::map<NodeName, std::pair<int, uint64_t>> writing;  // partitions, bytes of their values
  for (int i = 0; i < job.status.partitions_size(); ++i) {
    if (!job.partitions.hosting.held[i].in_memory()) continue;
    const v1::PartitionPlacement& p = job.status.partitions(i);
    auto& [partitions, bytes] = writing[p.primary()];
    ++partitions;
    bytes += (p.end() - p.begin()) * sizeof(float);
  }
  std::string text;
  for (const auto& [name, what] : writing) {
    const ClusterNode* ps = nodes_.Find(name);
    absl::StrAppendFormat(&text,
                          "%sps \"%s\" writes the last values of %s (%.1f MiB, and the optimizer's) to its disk%s",
                          text.empty() ? "" : "; ", name, CountText(what.first, "partition"),
                          static_cast<double>(what.second) / (1 << 20),
                          ps == nullptr || ps->fault.empty() ? "" : absl::StrCat(", but ", ps->fault));
  }
  return text;
}

// A running job may have warnings too, including temporary ones.
std::string Reasons::WarningText(const Job& job) const {
  std::string text = endings_.LastingText(job);
  if (const std::string links = copies_.LinksText(job); !links.empty())
    absl::StrAppend(&text, text.empty() ? "" : "; ", links);
  if (const std::string evaluators = evaluations_.EvaluatorsText(job); !evaluators.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", evaluators);
  }
  for (const auto& [name, left_out] : job.workers.left_out.nodes) {
    const ClusterNode* node = nodes_.Find(name);
    if (node == nullptr || !candidates_.LeftOut(job, *node) || !job.active()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", "continues without ", left_out.why);
  }
  return text;
}

// Updates all waiting jobs; jobs with the same needs wait for the same reason.
void Reasons::UpdateQueued() {
  std::map<std::tuple<Needs, bool, bool>, std::string> known;
  for (auto& [id, job] : jobs_.all()) {
    if (!job.queued()) continue;
    if (!job.workers.left_out.nodes.empty()) {
      Set(job, QueuedReason(job));
      continue;
    }
    const auto [it, news] = known.try_emplace({NeedsOf(job), job.has_data(), job.queueing.inspecting});
    if (news) it->second = QueuedReason(job);
    Set(job, it->second);
  }
}

void Reasons::Update(Job& job) {
  if (!job.finished()) Set(job, Reason(job));
}

void Reasons::Set(Job& job, std::string reason) {
  if (reason != job.status.reason()) {
    job.status.set_reason(std::move(reason));
    job.reason.since = step_.now();
    job.reason.logged = false;
    return jobs_.Changed(job);
  }
  if (reason.empty() || job.reason.logged || step_.now() - job.reason.since < kReasonLoggedAfter) return;
  job.reason.logged = true;
  if (job.queued()) return step_.Log(OfJob(job.id()), "%s", reason);
  step_.Warn(OfJob(job.id()), "%s", reason);
}

void Reasons::UpdateQueuedIfDue() {
  if (!std::exchange(queue_due_, false) && step_.now() < queue_at_) return;
  queue_at_ = step_.now() + kQueueInterval;
  UpdateQueued();
}

}  // namespace cairn
