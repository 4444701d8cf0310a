#include "common/report/metrics_text.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/model/role_text.h"
#include "common/model/state_text.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

void AddUp(MetricFamilies& out, bool up) {
  out.Add("cairn_coordinator_up", "1 if a leading coordinator answered", {}, up);
}

void AddNode(MetricFamilies& out, const v1::NodeStatus& node) {
  const MetricLabels who = {{"node", node.name()}, {"role", RoleText(node.role())}, {"host", node.host()}};
  if (node.expected()) return;  // it has not reported yet
  out.Add("cairn_node_up", "1 while the node has a session and its lease", who, node.alive());
  out.Add("cairn_node_failed", "1 if a ps' store or a worker's device failed: it is given no partitions or replicas",
          who, !node.fault().empty());
  out.Add("cairn_node_draining", "1 while work is taken from the node", who, node.draining());
  if (node.has_memory_bytes())
    out.Add("cairn_node_resident_memory_bytes", "Memory of the process", who, static_cast<double>(node.memory_bytes()));
  out.Add("cairn_node_last_heartbeat_timestamp_seconds", "Unix time of its last message", who,
          node.last_heartbeat_unix_ms() / 1e3);
  if (node.role() == v1::PS) {
    out.Add("cairn_node_ready",
            "1 if this ps does not prevent the next one from being stopped: what it holds is in sync", who,
            node.alive() && node.not_ready().empty());
    out.Add("cairn_node_primaries", "Partitions that the ps serves", who, node.primaries());
    out.Add("cairn_node_backups", "Partitions that the ps follows", who, node.partitions() - node.primaries());
  } else {
    out.Add("cairn_node_slots", "Replicas that the worker computes at the same time", who, node.slots());
    out.Add("cairn_node_slots_used", "Those of them that have a replica", who, node.slots_used());
  }
}

void AddFigures(MetricFamilies& out, const v1::JobStatus& job, const MetricLabels& which, const char* split,
                const v1::MetricSums& sums) {
  std::set<std::string> told;  // a job may have the same metric twice, but a scraper would reject the whole file
  for (const auto& [figure, value] : MeanFigures(job.spec(), sums)) {
    if (!told.insert(figure).second) continue;
    MetricLabels labels = which;
    labels.push_back({"split", split});
    labels.push_back({"figure", figure});
    out.Add("cairn_job_figure", "Loss and metrics: train, of the running epoch so far; validation, of the last one",
            labels, value);
  }
}

MetricLabels LabelsOf(const v1::JobStatus& job) {
  return {{"job", absl::StrCat(job.job_id())}, {"name", job.spec().name()}};
}

void AddCopies(MetricFamilies& out, const v1::JobStatus& job) {
  out.Add("cairn_job_partitions_underreplicated",
          "Partitions with fewer backups in sync than the job asks for; of jobs that ended, while there are such",
          LabelsOf(job), job.degraded().partitions());
}

void AddJob(MetricFamilies& out, const v1::JobStatus& job) {
  const MetricLabels which = LabelsOf(job);
  MetricLabels state = which;
  state.push_back({"state", StateText(job.state())});
  out.Add("cairn_job_state", "1, with the state that the job is in as a label", state, 1);
  out.Add("cairn_job_submitted_timestamp_seconds", "Unix time", which, job.submitted_unix_ms() / 1e3);
  if (job.state() == v1::QUEUED) return;
  out.Add("cairn_job_step", "Updates done; asynchronous: by the slowest replica", which,
          static_cast<double>(job.step()));
  out.Add("cairn_job_total_steps", "Updates that the job will have done", which,
          static_cast<double>(job.total_steps()));
  out.Add("cairn_job_epoch", "The running epoch, from 0", which, job.epoch());
  if (job.has_images_per_second())
    out.Add("cairn_job_images_per_second", "Examples, over the last seconds", which, job.images_per_second());
  out.Add("cairn_job_not_finite", "1 while the training loss is not finite", which, job.has_not_finite_step());
  out.Add("cairn_job_learning_rate", "Of the present step", which, job.learning_rate());
  out.Add("cairn_job_generation", "Incremented at every change of placement: failovers, moves", which,
          static_cast<double>(job.generation()));
  AddCopies(out, job);
  if (job.spec().strategy() == v1::PARAMETER_SERVER) {
    out.Add("cairn_job_staleness_mean", "Updates of others between a replica's values and its push, running epoch",
            which, job.staleness_mean());
    out.Add("cairn_job_staleness_max", "The largest of them", which, static_cast<double>(job.staleness_max()));
  }
  if (job.spec().has_checkpoints()) {
    out.Add("cairn_job_checkpoint_failed", "1 if the last checkpoint was not written", which,
            !job.checkpoint_error().empty());
    int64_t step = 0, written_ms = 0;
    for (const v1::CheckpointInfo& checkpoint : job.checkpoints()) {
      if (checkpoint.step() >= step) step = checkpoint.step(), written_ms = checkpoint.written_unix_ms();
    }
    out.Add("cairn_job_checkpoint_step", "Updates in the newest checkpoint; 0: there is none", which,
            static_cast<double>(step));
    out.Add("cairn_job_checkpoint_timestamp_seconds", "When it was written, Unix time; 0: there is none", which,
            written_ms / 1e3);
  }
  AddFigures(out, job, which, "train", job.epoch_sums());
  for (int i = job.epochs_size(); i-- > 0;) {
    if (job.epochs(i).validation().examples() == 0) continue;
    AddFigures(out, job, which, "validation", job.epochs(i).validation());
    break;
  }
}

}  // namespace

void AddClusterMetrics(MetricFamilies& out, const std::vector<v1::NodeStatus>& nodes,
                       const std::vector<v1::JobStatus>& jobs) {
  AddUp(out, true);
  for (const v1::NodeStatus& node : nodes) AddNode(out, node);
  std::map<v1::JobState, int> in_state;
  for (int state = v1::QUEUED; v1::JobState_IsValid(state); ++state) in_state[static_cast<v1::JobState>(state)] = 0;
  for (const v1::JobStatus& job : jobs) ++in_state[job.state()];
  for (const auto& [state, count] : in_state) {
    out.Add("cairn_jobs", "Jobs that the coordinator knows, including ended ones that are kept",
            {{"state", StateText(state)}}, count);
  }
  for (const v1::JobStatus& job : jobs) {
    if (!IsFinal(job.state())) {
      AddJob(out, job);
    } else if (job.has_degraded()) {
      AddCopies(out, job);
    }
  }
}

std::string MetricsText(const std::vector<v1::NodeStatus>& nodes, const std::vector<v1::JobStatus>& jobs) {
  MetricFamilies out;
  AddClusterMetrics(out, nodes, jobs);
  return out.Text();
}

void AddClusterIsDown(MetricFamilies& out) { AddUp(out, false); }

std::string MetricsTextWithoutCluster() {
  MetricFamilies out;
  AddClusterIsDown(out);
  return out.Text();
}

}  // namespace cairn
