// What a user is told of a job that waits, or that goes on with something amiss.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/callback_check.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

constexpr absl::Duration kStalledAfter = absl::Seconds(25);
constexpr absl::Duration kReasonLoggedAfter = absl::Seconds(4);  // both together in less than 30 s: promised

std::string LeftOutText(const Job& job) {
  std::string text;
  for (const auto& [name, left_out] : job.left_out) absl::StrAppend(&text, text.empty() ? " (" : "; ", left_out.why);
  return text.empty() ? text : text + ")";
}

}  // namespace

// A ps without which some partition is not served; empty: all are.
NodeName ClusterCore::MissingPs(const Job& job) const {
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    if (UsablePs(job, p.primary()) == nullptr || job.returned.contains({p.partition(), p.primary()}))
      return p.primary();
  }
  return {};
}

std::string ClusterCore::QueuedReason(const Job& job) const {
  int workers = 0, ps = 0;
  for (const auto& [name, node] : members_.nodes()) {
    if (!node.connected()) continue;
    ps += node.role == v1::PS && !node.leaving();
    workers += node.role == v1::WORKER && (MayWork(job, node) || !Fits(job.status.spec(), node));
  }
  if (!job.has_data()) {
    if (workers == 0) return "waits for a worker to look at the data: none is alive";
    return job.inspecting ? "a worker is looking at the data"
                          : "waits for a worker to look at the data; see the workers' logs";
  }
  if (ps <= job.status.spec().backups()) {
    if (ps == 0) return absl::StrCat("waits for a ps: none is alive that may work", FaultsText());
    return absl::StrFormat("waits for ps: %d alive, %d are needed for backups: %d%s", ps,
                           1 + job.status.spec().backups(), job.status.spec().backups(), FaultsText());
  }
  if (std::string text = NobodyFitsText(job); !text.empty()) return text;
  const size_t needed = WorkersNeeded(job), usable = MostOfOneDevice(job, /*free=*/false),
               free = MostOfOneDevice(job, /*free=*/true);
  if (usable < needed) return absl::StrFormat("waits for workers: %d alive, min_workers is %d", usable, needed);
  if (free < needed)
    return absl::StrFormat("waits for free slots: %d of %d workers have one, it needs %d", free, usable, needed);
  return "waits for its turn";
}

std::string ClusterCore::Reason(const Job& job) const {
  if (job.queued()) return QueuedReason(job);
  if (std::string reason = CopiesReason(job); !reason.empty()) return reason;
  if (job.awaiting_ready) {
    return absl::StrFormat("partitions are being loaded: %d of %d are ready",
                           std::count(job.ready.begin(), job.ready.end(), true), job.ready.size());
  }
  if (job.starting() && !job.restore_from.empty()) {
    if (now_ < job.restore_not_before)
      return "the checkpoint could not be restored, it is tried again in a moment; see the log";
    if (job.restore_worker.empty()) return "waits for a worker to restore the checkpoint: none is alive";
    return absl::StrFormat("worker \"%s\" restores %s", job.restore_worker, job.restore_from.front());
  }
  if (job.finalizing()) {
    if (std::string reason = KeepReason(job); !reason.empty()) return reason;
    const bool worker = std::any_of(members_.nodes().begin(), members_.nodes().end(),
                                    [](const auto& n) { return n.second.role == v1::WORKER && n.second.connected(); });
    return worker ? "" : "waits for a worker to take the digest: none is alive";
  }
  for (const v1::ReplicaPlacement& r : job.status.replicas()) {
    if (!r.worker().empty()) continue;
    if (std::string text = NobodyFitsText(job); !text.empty()) return text;
    return absl::StrCat("waits for a worker: none is alive that may work", LeftOutText(job));
  }
  if (job.running() && now_ - job.checkpoint_wanted_since >= kStalledAfter) {
    return absl::StrFormat("waits for worker \"%s\" to write the checkpoint of epoch %d; see its log",
                           job.status.chief(), job.status.epochs_open());
  }
  if (job.running() && now_ - job.saves_waited_since >= kStalledAfter) {
    return absl::StrFormat(
        "epoch %d waits for %d model files to be written, before their checkpoints are removed (checkpoints.keep_max "
        "is %d); see the "
        "workers' logs",
        job.status.epochs_open() + 1, job.saves.size(), job.status.spec().checkpoints().keep_max());
  }
  if (job.running() && job.files_until != absl::InfiniteFuture()) {
    return absl::StrFormat(
        "all steps are done; %d model files and the summaries of %d epochs are not written yet, it waits at most a "
        "minute for them: see "
        "its notes and the workers' logs",
        job.saves.size(), WritesSummaries(job.status.spec()) ? job.status.epochs_size() - job.summaries_written : 0);
  }
  if (job.running() && now_ - job.progress->last_advance() >= kStalledAfter) {
    std::set<NodeName> workers;
    const std::vector<int32_t> slowest = job.progress->Slowest();
    for (int32_t r : slowest) workers.insert(job.status.replicas(r).worker());
    const std::string warning = WarningText(job);
    return absl::StrFormat("no step was finished for a while: replicas %s are behind, on %s; see their logs%s%s",
                           ReplicaListText(slowest), absl::StrJoin(workers, ", "), warning.empty() ? "" : "; ",
                           warning);
  }
  return WarningText(job);
}

// Which ps still write what the job ends with; empty: none.
std::string ClusterCore::KeepReason(const Job& job) const {
  std::map<NodeName, std::pair<int, uint64_t>> writing;  // partitions, bytes of their values
  for (int i = 0; i < job.status.partitions_size(); ++i) {
    if (!job.at[i].in_memory()) continue;
    const v1::PartitionPlacement& p = job.status.partitions(i);
    auto& [partitions, bytes] = writing[p.primary()];
    ++partitions;
    bytes += (p.end() - p.begin()) * sizeof(float);
  }
  std::string text;
  for (const auto& [name, what] : writing) {
    const ClusterNode* ps = members_.Find(name);
    absl::StrAppendFormat(
        &text, "%sps \"%s\" writes the last values of %d partitions (%.1f MiB, and the optimizer's) to its disk%s",
        text.empty() ? "" : "; ", name, what.first, static_cast<double>(what.second) / (1 << 20),
        ps == nullptr || ps->fault.empty() ? "" : absl::StrCat(", but ", ps->fault));
  }
  return text;
}

// Where the loss is not finite; empty: it is.
std::string ClusterCore::NotFiniteText(const Job& job) {
  if (!job.status.has_not_finite_step()) return "";
  const int64_t step = job.status.not_finite_step();
  const std::string since =
      absl::StrFormat("since step %d (epoch %d)", step, step / std::max<int64_t>(1, job.status.steps_per_epoch()) + 1);
  if (job.has_best) return absl::StrCat("the loss was not finite ", since, ", the weights are those of the best epoch");
  return absl::StrCat("warning: the loss is not finite ", since,
                      ": the weights are of no use; lower optimizer.learning_rate, or check the data");
}

// What a user should know of a job that has run, for good.
std::string ClusterCore::LastingText(const Job& job) const {
  std::string text = StopText(job);
  if (const std::string loss = NotFiniteText(job); !loss.empty())
    absl::StrAppend(&text, text.empty() ? "" : "; ", loss);
  if (const std::string bits = BitsText(job); !bits.empty()) absl::StrAppend(&text, text.empty() ? "" : "; ", bits);
  return text;
}

// And of one that runs, all the same: with what passes.
std::string ClusterCore::WarningText(const Job& job) const {
  std::string text = LastingText(job);
  if (const std::string links = LinksText(job); !links.empty()) absl::StrAppend(&text, text.empty() ? "" : "; ", links);
  if (const std::string evaluators = EvaluatorsText(job); !evaluators.empty()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", evaluators);
  }
  for (const auto& [name, left_out] : job.left_out) {
    const ClusterNode* node = members_.Find(name);
    if (node == nullptr || !LeftOut(job, *node) || !job.active()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ", "goes on without ", left_out.why);
  }
  return text;
}

// Of all that wait; those that need the same wait for the same reason.
void ClusterCore::UpdateQueuedReasons() {
  std::map<std::tuple<Needs, bool, bool>, std::string> known;
  for (auto& [id, job] : jobs_) {
    if (!job.queued()) continue;
    if (!job.left_out.empty()) {
      SetReason(job, QueuedReason(job));
      continue;
    }
    const auto [it, news] = known.try_emplace({NeedsOf(job), job.has_data(), job.inspecting});
    if (news) it->second = QueuedReason(job);
    SetReason(job, it->second);
  }
}

void ClusterCore::UpdateReason(Job& job) {
  if (!job.finished()) SetReason(job, Reason(job));
}

void ClusterCore::SetReason(Job& job, std::string reason) {
  if (reason != job.status.reason()) {
    job.status.set_reason(std::move(reason));
    job.reason_since = now_;
    job.reason_logged = false;
    return Changed(job);
  }
  if (reason.empty() || job.reason_logged || now_ - job.reason_since < kReasonLoggedAfter) return;
  job.reason_logged = true;
  if (job.queued()) return Log("job %d: %s", job.id(), reason);
  Warn("job %d: %s", job.id(), reason);
}

}  // namespace cairn
