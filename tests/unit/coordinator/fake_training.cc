// The training of a FakeCluster: the truth that reports are made from, and the copies that follow it.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/metric_sums.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {
namespace {

// A job's newest assignment, and who computes which of its replicas.
struct FakeTraining {
  const v1::AssignReplicas* newest = nullptr;
  std::map<int32_t, FakeNode*> computing;
};

v1::ReplicaReport& ReportOf(const v1::AssignReplicas& assign, int32_t replica, v1::NodeMessage& message) {
  v1::ReplicaReport& report = *message.mutable_replica_report();
  report.set_job_id(assign.job_id());
  report.set_generation(assign.generation());
  report.set_replica(replica);
  return report;
}

}  // namespace

int64_t FakeCluster::TrueStep(uint64_t job_id) const {
  auto it = true_step_.find(job_id);
  return it == true_step_.end() ? 0 : it->second;
}

std::optional<absl::Time> FakeCluster::CutSince(const std::string& a, const std::string& b) const {
  auto it = cut_links_.find({std::min(a, b), std::max(a, b)});
  return it == cut_links_.end() ? std::nullopt : std::optional(it->second);
}

// Brings the backups of this primary up to date and reports it, repeatedly.
void FakeCluster::Replicate(FakeNode& primary) {
  if (!primary.running || !replicate) return;
  std::vector<v1::NodeMessage> reports;
  for (auto& [job_id, hosted] : primary.hosted) {
    if (!hosted.serving) continue;
    for (auto& [p, links] : hosted.links) {
      for (auto& [name, in_sync] : links) {
        FakeNode& backup = *nodes_.at(name);
        if (const auto since = CutSince(primary.hello.name(), name)) {
          if (clock_.Now() - *since < absl::Seconds(3)) continue;
          v1::BackupReport& report = *reports.emplace_back().mutable_backup_report();
          report.set_job_id(job_id);
          report.set_generation(hosted.generation);
          report.set_partition(p);
          report.set_node(name);
          report.set_lost("no answer for 3 s");
          continue;
        }
        const auto copy = backup.hosted.find(job_id);
        if (!backup.running || copy == backup.hosted.end() || !copy->second.serving ||
            copy->second.generation != hosted.generation || !copy->second.backup.contains(p)) {
          continue;
        }
        if (!in_sync) copy->second.version[p] = hosted.version[p];
        in_sync = true;
        v1::BackupReport& report = *reports.emplace_back().mutable_backup_report();
        report.set_job_id(job_id);
        report.set_generation(hosted.generation);
        report.set_partition(p);
        report.set_node(name);
        report.set_version(hosted.version[p]);
      }
    }
  }
  for (const v1::NodeMessage& report : reports) Say(primary, report);
}

// A step is done when each replica is computed by some worker and each partition is held by a running ps. A replica
// that several workers compute counts once: the ps drop duplicates.
void FakeCluster::TrainStep() {
  std::map<uint64_t, FakeTraining> jobs;
  for (auto& [name, node] : nodes_) {
    if (!node->running) continue;
    for (const auto& [job_id, assign] : node->assigned) {
      FakeTraining& job = jobs[job_id];
      const auto age = [](const v1::AssignReplicas& a) { return std::pair(a.generation(), a.assignment()); };
      if (job.newest == nullptr || age(assign) > age(*job.newest)) job.newest = &assign;
      for (int32_t r : assign.replicas()) job.computing[r] = node.get();
    }
  }
  std::vector<std::pair<FakeNode*, v1::NodeMessage>> reports;
  for (const auto& [job_id, job] : jobs) {
    const v1::AssignReplicas& assign = *job.newest;
    int64_t& step = true_step_[job_id];
    if (step >= assign.total_steps()) {
      for (const auto& [replica, node] : job.computing) {
        v1::NodeMessage message;
        ReportOf(assign, replica, message).set_finished(true);
        reports.emplace_back(node, std::move(message));
      }
      continue;
    }
    if (assign.epochs_open() > 0 && step >= assign.epochs_open() * assign.steps_per_epoch()) continue;
    if (static_cast<int>(job.computing.size()) != assign.spec().replicas() || !Served(assign)) continue;
    Update(assign, step);
    for (const auto& [replica, node] : job.computing) reports.emplace_back(node, StepReport(assign, replica, step));
    ++step;
    if (!write_checkpoints || step % assign.steps_per_epoch() != 0) continue;
    for (const auto& [replica, node] : job.computing) {
      if (!node->assigned.at(job_id).chief()) continue;
      reports.emplace_back(node, CheckpointReport(assign, step));
      break;
    }
  }
  for (auto& [node, message] : reports) {
    node->reported[message.has_checkpoint() ? message.checkpoint().job_id() : message.replica_report().job_id()]
        .push_back(message);
  }
  for (auto& [node, message] : reports) Say(*node, message);
  for (const auto& [job_id, job] : jobs) {
    for (auto& [name, node] : nodes_) TellFigures(*node, job_id);
  }
}

// Whether each partition's primary takes gradients of this generation. It acknowledges nothing without the backups that
// have everything.
bool FakeCluster::Served(const v1::AssignReplicas& assign) {
  const uint64_t job_id = assign.job_id();
  for (const v1::Route& route : assign.routes()) {
    FakeNode& ps = *nodes_.at(route.ps());
    const uint32_t p = route.range().partition();
    const auto hosted = ps.hosted.find(job_id);
    if (!ps.running || hosted == ps.hosted.end() || !hosted->second.serving ||
        hosted->second.generation != assign.generation() || !hosted->second.version.contains(p) ||
        hosted->second.backup.contains(p) || ps.hello.address() != route.address()) {
      return false;
    }
    for (const auto& [name, in_sync] : hosted->second.links[p]) {
      if (!in_sync) continue;
      const FakeNode& backup = *nodes_.at(name);
      const auto copy = backup.hosted.find(job_id);
      if (!backup.running || CutSince(route.ps(), name) || copy == backup.hosted.end() || !copy->second.serving ||
          copy->second.generation != hosted->second.generation || !copy->second.backup.contains(p)) {
        return false;
      }
    }
  }
  return true;
}

void FakeCluster::Update(const v1::AssignReplicas& assign, int64_t step) {
  for (const v1::Route& route : assign.routes()) {
    const uint32_t p = route.range().partition();
    FakeNode::Hosted& hosted = nodes_.at(route.ps())->hosted[assign.job_id()];
    EXPECT_EQ(hosted.version[p], static_cast<uint64_t>(step)) << "partition " << p << " lost or doubled an update";
    ++hosted.version[p];
    for (const auto& [name, in_sync] : hosted.links[p]) {
      if (in_sync) nodes_.at(name)->hosted[assign.job_id()].version[p] = hosted.version[p];
    }
  }
  CountFigures(assign, step);
}

void FakeCluster::CountFigures(const v1::AssignReplicas& assign, int64_t step) {
  v1::EpochFigures figures;
  const int32_t replicas = assign.spec().replicas();
  figures.set_epoch(static_cast<int32_t>(step / assign.steps_per_epoch()));
  figures.set_replica_steps(static_cast<uint64_t>(replicas));
  figures.mutable_train()->set_examples(static_cast<uint64_t>(assign.spec().batch_size() / replicas * replicas));
  const auto loss = train_loss.find(figures.epoch());
  figures.mutable_train()->set_loss((loss == train_loss.end() ? 0.5 : loss->second) * replicas);
  for (int m = 0; m < MetricSumCount(assign.spec()); ++m) figures.mutable_train()->add_metrics(replicas);
  Figures& job = figures_[assign.job_id()];
  EpochList& after = job.at[static_cast<uint64_t>(step) + 1] = job.at[static_cast<uint64_t>(step)];
  cairn::CountFigures(figures, MetricSumCount(assign.spec()), after);
}

void FakeCluster::TellFigures(FakeNode& node, uint64_t job_id) {
  const auto hosted = node.hosted.find(job_id);
  if (!tells_figures || !node.running || hosted == node.hosted.end() || !hosted->second.serving) return;
  const FakeNode::Hosted& job = hosted->second;
  if (!job.version.contains(0) || job.backup.contains(0)) return;
  v1::NodeMessage message;
  v1::FiguresReport& report = *message.mutable_figures();
  report.set_job_id(job_id);
  report.set_generation(job.generation);
  report.set_version(job.version.at(0));
  const Figures& figures = figures_[job_id];
  if (const auto at = figures.at.find(report.version()); at != figures.at.end()) *report.mutable_epochs() = at->second;
  DropStored(figures.stored, *report.mutable_epochs());
  Say(node, message);
}

void FakeCluster::SayFigures(uint64_t job_id, uint64_t version, int epoch, uint64_t examples, double loss) {
  FakeNode& primary = *nodes_.at(Job(job_id).partitions(0).primary());
  primary.hosted[job_id].version[0] = version;
  EpochList& at = figures_[job_id].at[version];
  at.Clear();
  v1::EpochFigures& figures = *at.Add();
  figures.set_epoch(epoch);
  figures.mutable_train()->set_examples(examples);
  figures.mutable_train()->set_loss(loss);
  figures.mutable_train()->mutable_metrics()->Resize(MetricSumCount(Job(job_id).spec()), 0);
  figures.set_replica_steps(static_cast<uint64_t>(Job(job_id).steps_per_epoch() * Job(job_id).spec().replicas()));
  TellFigures(primary, job_id);
}

v1::NodeMessage FakeCluster::StepReport(const v1::AssignReplicas& assign, int32_t replica, int64_t step) const {
  v1::NodeMessage message;
  v1::ReplicaReport& report = ReportOf(assign, replica, message);
  report.set_last_step(step);
  if ((step + 1) % assign.steps_per_epoch() == 0) {
    report.set_validation_epoch(static_cast<int>(step / assign.steps_per_epoch()));
    report.mutable_validation()->set_examples(2);
    const auto loss = validation_loss.find(report.validation_epoch());
    report.mutable_validation()->set_loss(loss == validation_loss.end() ? 0.25 : loss->second);
    report.mutable_validation()->add_metrics(1);
  }
  report.set_finished(step + 1 == assign.total_steps());
  return message;
}

v1::NodeMessage FakeCluster::CheckpointReport(const v1::AssignReplicas& assign, int64_t step) {
  v1::NodeMessage message;
  v1::CheckpointReport& report = *message.mutable_checkpoint();
  report.set_job_id(assign.job_id());
  report.set_error(checkpoint_error);
  v1::CheckpointInfo& info = *report.mutable_checkpoint();
  info.set_step(step);
  info.set_written_unix_ms(absl::ToUnixMillis(clock_.Now()) + step);
  return message;
}

}  // namespace cairn
