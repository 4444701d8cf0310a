// The figures of the training: a job's first partition keeps them (server/partition_core_figures.cc) until the results
// of their epochs are stored here.
#include <algorithm>

#include "coordinator/cluster_core.h"

namespace cairn {

void ClusterCore::OnFigures(const ClusterNode& node, const v1::FiguresReport& report) {
  Job* job = Find(report.job_id());
  if (job == nullptr || !job->running() || !job->progress) return;  // it ended meanwhile
  if (job->status.partitions(0).primary() != node.name) return;     // it was the primary
  if (report.generation() < std::max(job->rollback_generation, job->restored_in))
    return;  // of before the job fell back
  const absl::StatusOr<bool> news = job->progress->TakeFigures(report, job->status, now_);
  if (!news.ok()) {
    return Warn("job %d: ps \"%s\" sent figures that do not fit it (%s); ignored", job->id(), node.name,
                news.status().message());
  }
  if (!*news) return;
  if (!report.epochs().empty() && report.epochs(0).epoch() < job->status.epochs_size()) SendFiguresStored(*job);
  Advance(*job);
  Changed(*job);
}

// The primary drops what is stored, and reports the rest at once.
void ClusterCore::SendFiguresStored(const Job& job) {
  const ClusterNode* primary = members_.Find(job.status.partitions(0).primary());
  if (primary == nullptr) return;
  v1::CoordinatorMessage message;
  v1::FiguresStored& stored = *message.mutable_figures_stored();
  stored.set_job_id(job.id());
  stored.set_epochs(job.status.epochs_size());
  Send(*primary, std::move(message));
}

}  // namespace cairn
