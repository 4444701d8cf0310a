#include "coordinator/core/job.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/model/fault_check.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

constexpr size_t kFormerChiefsKept = 16;

}  // namespace

bool Job::synchronous() const { return IsSynchronous(status.spec()); }

std::vector<NodeName> Job::owners() const {
  std::vector<NodeName> owners;
  for (const v1::ReplicaPlacement& r : status.replicas()) owners.push_back(r.worker());
  return owners;
}

std::vector<int32_t> Job::ReplicasOf(const NodeName& worker) const {
  std::vector<int32_t> replicas;
  for (const v1::ReplicaPlacement& r : status.replicas()) {
    if (r.worker() == worker) replicas.push_back(r.replica());
  }
  return replicas;
}

bool Job::UsesPs(const NodeName& ps) const {
  return std::any_of(status.partitions().begin(), status.partitions().end(), [&](const v1::PartitionPlacement& p) {
    return p.primary() == ps ||
           std::any_of(p.backups().begin(), p.backups().end(), [&](const auto& b) { return b.node() == ps; });
  });
}

int Job::PartitionsOn(const NodeName& ps) const {
  int count = 0;
  for (const v1::PartitionPlacement& p : status.partitions()) {
    count += p.primary() == ps;
    for (const v1::BackupPlacement& b : p.backups()) count += b.node() == ps;
  }
  return count;
}

int Job::PrimariesOn(const NodeName& ps) const {
  int count = 0;
  for (const v1::PartitionPlacement& p : status.partitions()) count += p.primary() == ps;
  return count;
}

std::vector<int> Job::PartitionsHeldBy(const NodeName& ps) const {
  std::vector<int> held;
  for (int i = 0; i < status.partitions_size(); ++i) {
    const v1::PartitionPlacement& p = status.partitions(i);
    const bool backup = std::any_of(p.backups().begin(), p.backups().end(), [&](auto& b) { return b.node() == ps; });
    if (backup || p.primary() == ps) held.push_back(i);
  }
  return held;
}

PartitionsByPs Job::partitions_by_ps() const {
  PartitionsByPs held;
  const auto add = [&](const NodeName& ps, int partition) {
    std::vector<int>& its = held[ps];
    if (its.empty() || its.back() != partition) its.push_back(partition);
  };
  for (int i = 0; i < status.partitions_size(); ++i) {
    add(status.partitions(i).primary(), i);
    for (const v1::BackupPlacement& b : status.partitions(i).backups()) add(b.node(), i);
  }
  return held;
}

bool Job::HasBackups() const {
  return std::any_of(status.partitions().begin(), status.partitions().end(),
                     [](const v1::PartitionPlacement& p) { return p.backups_size() > 0; });
}

std::vector<NodeName> Job::ps() const {
  std::set<NodeName> names;
  for (const v1::PartitionPlacement& p : status.partitions()) {
    names.insert(p.primary());
    for (const v1::BackupPlacement& b : p.backups()) names.insert(b.node());
  }
  return {names.begin(), names.end()};
}

std::vector<NodeName> Job::primaries() const {
  std::set<NodeName> names;
  for (const v1::PartitionPlacement& p : status.partitions()) names.insert(p.primary());
  return {names.begin(), names.end()};
}

v1::StoredJob Job::ToStored() const {
  v1::StoredJob stored;
  *stored.mutable_status() = status;
  stored.set_request_key(queueing.request_key);
  stored.set_assignment(assignment);
  stored.set_rollback_generation(partitions.rollback.generation);
  stored.set_rollback_to(partitions.rollback.to);
  stored.set_rolling_back(partitions.rollback.under_way);
  stored.set_recovered(partitions.rollback.recovered);
  stored.mutable_restore_from()->Assign(restoring.from.begin(), restoring.from.end());
  *stored.mutable_callbacks() = decisions.callbacks;
  stored.mutable_learning_rates()->Assign(decisions.learning_rates.begin(), decisions.learning_rates.end());
  stored.set_stopped_early(decisions.stopped_early);
  stored.set_summaries_written(outputs.summaries.written);
  for (const v1::SaveModel& save : outputs.files.saves) *stored.add_saves() = save;
  stored.mutable_former_chiefs()->Assign(outputs.checkpoints.former_chiefs.begin(),
                                         outputs.checkpoints.former_chiefs.end());
  stored.set_files_missing(outputs.files.missing);
  stored.set_file_missing(outputs.files.first_missing);
  stored.set_restores_best(best.restoring);
  stored.set_has_best(best.restored);
  for (const auto& [worker, e] : workers.crash_loops.ends) {
    v1::StoredEnd& stored_end = *stored.add_ends();
    stored_end.set_worker(worker);
    stored_end.set_step(e.step);
    stored_end.set_times(e.times);
    stored_end.set_gone(e.gone);
  }
  for (const auto& [node, l] : workers.left_out.nodes) {
    v1::StoredLeftOut& out = *stored.add_left_out();
    out.set_node(node);
    out.set_incarnation(l.incarnation);
    out.set_why(l.why);
    out.set_crash_loop(l.crash_loop);
  }
  stored.mutable_final_versions()->Assign(end.versions.begin(), end.versions.end());
  if (progress) {
    for (int64_t step : progress->replicas().next()) stored.add_replica_step(step);
    for (bool finished : progress->replicas().finished()) stored.add_replica_finished(finished);
    if (progress->epoch_start()) stored.set_epoch_started_unix_ms(absl::ToUnixMillis(*progress->epoch_start()));
  }
  return stored;
}

void AddNote(Job& job, v1::CallbackNote note) {
  auto& notes = *job.status.mutable_notes();
  *notes.Add() = std::move(note);
  if (notes.size() > kNotesKept) notes.DeleteSubrange(0, notes.size() - kNotesKept);
}

void AddNote(Job& job, int epoch, const char* callback, std::string text) {
  v1::CallbackNote note;
  note.set_epoch(epoch);
  note.set_callback(callback);
  note.set_text(std::string(CutUtf8(text, kNoteTextMax)));
  AddNote(job, std::move(note));
}

void AddEvent(Job& job, absl::Time now, bool warning, std::string_view text) {
  auto& events = *job.status.mutable_events();
  v1::JobEvent& event = *events.Add();
  event.set_unix_ms(absl::ToUnixMillis(now));
  event.set_text(std::string(CutUtf8(text, kEventTextMax)));
  event.set_warning(warning);
  if (events.size() > kEventsKept) events.DeleteSubrange(0, events.size() - kEventsKept);
}

void TakeUnwritten(Job& job, const NodeName& chief) {
  const auto unwritten = job.outputs.checkpoints.unwritten.find(chief);
  if (unwritten == job.outputs.checkpoints.unwritten.end()) return;
  job.outputs.checkpoints.failed_step = std::max(job.outputs.checkpoints.failed_step, unwritten->second.step);
  job.outputs.checkpoints.chief_reported = std::max(job.outputs.checkpoints.chief_reported, unwritten->second.step);
  if (job.status.checkpoint_error().empty()) job.status.set_checkpoint_error(unwritten->second.error);
}

void NoteFormerChief(Job& job) {
  if (job.status.chief().empty()) return;
  std::erase(job.outputs.checkpoints.former_chiefs, job.status.chief());
  job.outputs.checkpoints.former_chiefs.push_back(job.status.chief());
  if (job.outputs.checkpoints.former_chiefs.size() > kFormerChiefsKept)
    job.outputs.checkpoints.former_chiefs.erase(job.outputs.checkpoints.former_chiefs.begin());
}

std::string SavedNote(const std::string& path) { return absl::StrCat("saved ", path); }

void FillRoutes(const Job& job, google::protobuf::RepeatedPtrField<v1::Route>* routes) {
  for (const v1::PartitionPlacement& p : job.status.partitions()) {
    v1::Route& route = *routes->Add();
    route.mutable_range()->set_partition(p.partition());
    route.mutable_range()->set_begin(p.begin());
    route.mutable_range()->set_end(p.end());
    route.set_ps(p.primary());
    route.set_address(p.primary_address());
  }
}

v1::CoordinatorMessage MakeHostPartitions(const Job& job, const NodeName& ps, const std::vector<int>& partitions,
                                          bool anew) {
  v1::CoordinatorMessage message;
  v1::HostPartitions& host = *message.mutable_host_partitions();
  host.set_job_id(job.id());
  host.set_generation(job.status.generation());
  host.set_keep(job.finalizing() || job.finished());
  host.set_ended(job.finished());
  *host.mutable_spec() = job.status.spec();
  if (anew && job.synchronous() && job.partitions.rollback.generation == job.status.generation())
    host.set_rollback_to(job.partitions.rollback.to);
  for (const int i : partitions) {
    const v1::PartitionPlacement& p = job.status.partitions(i);
    const bool backup = std::any_of(p.backups().begin(), p.backups().end(), [&](auto& b) { return b.node() == ps; });
    v1::PartitionRange& range = *host.add_partitions();
    range.set_partition(p.partition());
    range.set_begin(p.begin());
    range.set_end(p.end());
    range.set_backup(backup);
    if (backup) continue;
    for (const v1::BackupPlacement& b : p.backups()) {
      if (b.former()) continue;
      v1::BackupRoute& route = *range.add_backups();
      route.set_node(b.node());
      route.set_address(b.address());
      route.set_in_sync(b.in_sync());
    }
  }
  return message;
}

v1::CoordinatorMessage MakeAssignReplicas(const Job& job, const NodeName& worker) {
  v1::CoordinatorMessage message;
  v1::AssignReplicas& assign = *message.mutable_assign_replicas();
  assign.set_job_id(job.id());
  assign.set_generation(job.status.generation());
  assign.set_assignment(job.assignment);
  *assign.mutable_spec() = job.status.spec();
  for (int32_t r : job.ReplicasOf(worker)) assign.add_replicas(r);
  FillRoutes(job, assign.mutable_routes());
  *assign.mutable_data() = job.status.data();
  assign.set_steps_per_epoch(job.status.steps_per_epoch());
  assign.set_total_steps(job.status.total_steps());
  assign.set_chief(job.status.chief() == worker);
  if (assign.chief()) *assign.mutable_checkpoints() = job.status.checkpoints();
  assign.set_restored_step(job.status.restored_step());
  assign.set_epochs_open(job.status.epochs_open());
  assign.mutable_learning_rates()->Assign(job.decisions.learning_rates.begin(), job.decisions.learning_rates.end());
  assign.set_submitted_unix_ms(job.status.submitted_unix_ms());
  assign.set_takes_digests(true);
  return message;
}

v1::CoordinatorMessage MakeFinalize(const Job& job) {
  v1::CoordinatorMessage message;
  v1::Finalize& finalize = *message.mutable_finalize();
  finalize.set_job_id(job.id());
  *finalize.mutable_spec() = job.status.spec();
  FillRoutes(job, finalize.mutable_routes());
  finalize.mutable_versions()->Assign(job.end.versions.begin(), job.end.versions.end());
  finalize.set_generation(job.status.generation());
  return message;
}

v1::CoordinatorMessage MakeDropJob(uint64_t job_id, bool cancelled) {
  v1::CoordinatorMessage message;
  message.mutable_drop_job()->set_job_id(job_id);
  message.mutable_drop_job()->set_cancelled(cancelled);
  return message;
}

// Records that something the job requested, such as a file, is given up.
void NoteShortfall(Job& job, int epoch, const char* callback, const std::string& text) {
  AddNote(job, epoch, callback, text);
  job.outputs.files.NoteMissing(absl::StrFormat("epoch %d: %s: %s", epoch + 1, callback, CutUtf8(text, kErrorTextMax)));
}

// What nodes hold and run becomes known from their Hello.
Job LoadJob(const v1::StoredJob& stored, absl::Time now) {
  Job job;
  job.status = stored.status();
  job.spec_bytes = job.status.spec().SpaceUsedLong();
  job.queueing.request_key = stored.request_key();
  job.assignment = stored.assignment();
  job.restoring.from.assign(stored.restore_from().begin(), stored.restore_from().end());
  job.partitions.rollback.generation = stored.rollback_generation();
  job.partitions.rollback.to = stored.rollback_to();
  job.partitions.rollback.under_way = stored.rolling_back();
  job.partitions.rollback.recovered = stored.recovered();
  job.decisions.callbacks = stored.callbacks();
  job.decisions.learning_rates.assign(stored.learning_rates().begin(), stored.learning_rates().end());
  job.decisions.stopped_early = stored.stopped_early();
  job.outputs.summaries.written = stored.summaries_written();
  job.outputs.files.saves.assign(stored.saves().begin(), stored.saves().end());
  job.outputs.checkpoints.former_chiefs.assign(stored.former_chiefs().begin(), stored.former_chiefs().end());
  job.outputs.files.missing = stored.files_missing();
  job.outputs.files.first_missing = stored.file_missing();
  job.best.restoring = stored.restores_best();
  job.best.restored = stored.has_best();
  for (const v1::StoredEnd& e : stored.ends())
    job.workers.crash_loops.ends[e.worker()] = {e.step(), e.times(), e.gone()};
  for (const v1::StoredLeftOut& l : stored.left_out())
    job.workers.left_out.nodes[l.node()] = {l.incarnation(), l.why(), l.crash_loop()};
  job.end.versions.assign(stored.final_versions().begin(), stored.final_versions().end());
  for (const v1::StepValidation& v : job.status.validations()) {
    job.outputs.summaries.validations_written = std::max(job.outputs.summaries.validations_written, v.step());
  }
  job.partitions.hosting.versions.assign(job.status.partitions_size(), 0);
  job.partitions.hosting.held.resize(job.status.partitions_size());
  if (job.status.has_degraded())
    job.partitions.copy_watch.lacking_since = absl::FromUnixMillis(job.status.degraded().since_unix_ms());
  if (job.active()) {
    job.progress.emplace(job.status, std::vector<int64_t>(stored.replica_step().begin(), stored.replica_step().end()),
                         std::vector<bool>(stored.replica_finished().begin(), stored.replica_finished().end()), now);
    const int64_t epoch_start = stored.epoch_started_unix_ms();
    job.progress->GoesOn(now, epoch_start > 0 ? std::optional(absl::FromUnixMillis(epoch_start)) : std::nullopt);
    job.outputs.checkpoints.heard = now;  // earlier reports are lost
    // Whether the chief got its role after all its steps were done is unknown too; a chief that has written before
    // reports so again.
    const bool asked = job.running() && job.status.spec().has_checkpoints() && job.status.checkpoint_error().empty();
    if (asked) job.outputs.checkpoints.late_chief_since = now;
    // What nodes hold and run becomes known from their Hello.
    job.partitions.hosting.awaiting_ready = true;
    job.partitions.hosting.ready.assign(job.status.partitions_size(), false);
  }
  return job;
}

}  // namespace cairn
