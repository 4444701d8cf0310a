// A simulated worker as the chief that writes checkpoints, and as the one that restores a job from them.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/checkpoint_name.h"
#include "tests/sim/sim_cluster.h"
#include "worker/checkpoint/checkpoint_cut.h"
#include "worker/checkpoint/checkpoint_restore.h"

namespace cairn::sim {
namespace {

using Outcome = replica::CheckpointDone::Outcome;

// As worker/node/restorer.cc.
constexpr absl::Duration kNoProgressMax = absl::Seconds(30);

bool Retryable(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsResourceExhausted(status); }

std::string PathOf(int64_t step) { return absl::StrCat(kCheckpointDir, "/", CheckpointName(step)); }

RestoredState StateOf(const CheckpointDirectory::Found& found, const v1::JobSpec& spec, PlantedBug bug) {
  const CheckpointContents& contents = found.checkpoint->contents;
  RestoredState state;
  state.path = found.path;
  state.skipped = found.skipped;
  state.step = contents.manifest.step;
  if (spec.replicas() == contents.manifest.spec.replicas()) state.replica_step = contents.manifest.replica_step;
  state.values = contents.values;
  state.slots = contents.slots;
  state.manifest = contents.manifest;
  if (bug == PlantedBug::kForgetSlots) {
    for (Buffer& slot : state.slots) slot = Buffer::Zeros(slot.size());
  }
  if (bug == PlantedBug::kForgetTables) {
    for (CheckpointPartition& p : state.manifest.partitions) {
      p.sequences.assign(p.sequences.size(), static_cast<uint64_t>(state.step));
    }
  }
  return state;
}

}  // namespace

// ---- writing ----

struct SimWorker::CutUnderWay {
  CutUnderWay(const replica::TakeCheckpoint& take, const std::shared_ptr<const v1::AssignReplicas>& assignment)
      : number(take.number),
        cut(take.step, take.requests.front().frame.want_version, assignment),
        missing(take.requests.size()),
        last_try(take.last_try) {}
  const uint64_t number;
  CheckpointCut cut;
  size_t missing;
  const bool last_try;
  absl::Status failed;
  uint64_t driver = 0;
  std::shared_ptr<CheckpointBook> book;
};

void SimWorker::TakeCheckpoint(replica::TakeCheckpoint take, const Assignment& assignment) {
  if (cluster_.options().bug == PlantedBug::kMixedCut) {
    for (auto& request : take.requests) request.frame.want_version.reset();
  }
  auto cut = std::make_shared<CutUnderWay>(take, assignment);
  cut->driver = drivers_;
  cut->book = book_;
  const auto end = [this, cut](size_t partition, const absl::Status& status) {
    if (const absl::Status ended = cut->cut.End(partition, status); !ended.ok() && cut->failed.ok())
      cut->failed = ended;
    if (--cut->missing > 0) return;
    if (cut->failed.ok()) {
      return Later(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(150)),
                   [this, cut] { WriteCheckpoint(cut); });
    }
    if (cut->last_try) {
      v1::CheckpointInfo info;
      info.set_step(cut->cut.step());
      not_written_ = info;
      ReportCheckpoint(&info, {}, cut->failed.ToString());
    } else {
      ReportCheckpoint(nullptr, {}, cut->failed.ToString());
    }
    EndCheckpoint(*cut, Outcome::kNoCut);
  };
  for (size_t p = 0; p < take.requests.size(); ++p) {
    const std::shared_ptr<Exchange> exchange = ExchangeTo(take.requests[p].address);
    if (exchange == nullptr) {
      Later(absl::Milliseconds(1), [end, p] { end(p, absl::UnavailableError("connection refused")); });
      continue;
    }
    exchange->Send(std::move(take.requests[p].frame), [end, cut, p](absl::StatusOr<Frame> frame) {
      if (!frame.ok()) return end(p, frame.status());
      cut->cut.Add(p, *frame);
      if (frame->tensor + 1 >= frame->tensors) end(p, absl::OkStatus());
    });
  }
}

void SimWorker::WriteCheckpoint(const std::shared_ptr<CutUnderWay>& cut) {
  CheckpointDirectory& directory = cluster_.directory();
  v1::CheckpointInfo info;
  info.set_step(cut->cut.step());
  absl::StatusOr<CheckpointContents> contents = cut->cut.Contents(JobId(cut->cut.assignment().job_id()));
  if (!contents.ok()) return world_.Fail(contents.status().ToString());
  info.set_step(contents->manifest.step);
  const int64_t now = std::max(absl::ToUnixMillis(Now()), directory.NewestWrittenUnixMs() + 1);
  info.set_written_unix_ms(now);
  const absl::StatusOr<std::string> path = directory.Write(*contents, now);
  if (!path.ok()) {
    cluster_.OnFileRefused();
    if (cluster_.options().bug != PlantedBug::kHideFailure) {
      not_written_ = info;
      ReportCheckpoint(&info, {}, path.status().ToString());
    }
    return EndCheckpoint(*cut, Outcome::kNotWritten);
  }
  not_written_.reset();
  world_.Trace("%s writes %s", name(), *path);
  cluster_.checkers().checkpoint.Written(*path, *contents);
  cut->book->Written(info);
  std::vector<int64_t> removed =
      cut->book->Prune(cut->cut.assignment().spec().checkpoints(), cut->cut.assignment().steps_per_epoch()).steps;
  if (cluster_.options().bug == PlantedBug::kRemoveNewest) removed.push_back(info.step());
  for (const int64_t step : removed) {
    const std::string gone = PathOf(step);
    world_.Trace("%s removes %s", name(), gone);
    directory.Remove(gone);
    cluster_.checkers().checkpoint.Removed(gone, directory);
  }
  ReportCheckpoint(&info, removed, "");
  EndCheckpoint(*cut, Outcome::kWritten);
}

void SimWorker::EndCheckpoint(const CutUnderWay& cut, Outcome outcome) {
  if (drivers_ == cut.driver) Post(replica::CheckpointDone{cut.number, outcome});
}

void SimWorker::MarkBest(const v1::MarkBest& command) {
  if (book_ == nullptr) return;
  std::optional<v1::CheckpointInfo> info = book_->Find(command.step());
  if (!info) return;
  const absl::StatusOr<std::string> path = cluster_.directory().KeepAsBest(PathOf(info->step()));
  if (!path.ok()) return ReportCheckpoint(nullptr, {}, path.status().ToString());
  info->set_best(true);
  info->set_monitored(command.monitored());
  book_->Best(*info);
  ReportCheckpoint(&*info, {}, "");
}

void SimWorker::ReportCheckpoint(const v1::CheckpointInfo* info, const std::vector<int64_t>& deleted,
                                 const std::string& error) {
  v1::NodeMessage message;
  v1::CheckpointReport& report = *message.mutable_checkpoint();
  report.set_job_id(cluster_.job_id());
  if (info != nullptr) *report.mutable_checkpoint() = *info;
  report.mutable_deleted_steps()->Assign(deleted.begin(), deleted.end());
  if (!error.empty()) world_.Trace("%s: no checkpoint: %s", name(), error);
  report.set_error(error);
  Say(std::move(message));
}

void SimWorker::ReportCheckpointsAgain() {
  if (book_ == nullptr) return;
  const std::vector<int64_t> deleted(book_->deleted().begin(), book_->deleted().end());
  bool first = true;
  for (const v1::CheckpointInfo& info : book_->known()) {
    ReportCheckpoint(&info, std::exchange(first, false) ? deleted : std::vector<int64_t>(), "");
  }
  if (not_written_) ReportCheckpoint(&*not_written_, {}, "No space left on device");
}

// ---- files of callbacks ----

void SimWorker::SaveModel(const v1::SaveModel& command) {
  Later(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(150)), [this, command] {
    v1::NodeMessage message;
    v1::ModelSaved& saved = *message.mutable_model_saved();
    saved.set_job_id(command.job_id());
    saved.set_step(command.step());
    saved.set_path(command.path());
    const bool newest = cluster_.options().bug == PlantedBug::kSaveNewest;
    if (newest) cluster_.NotePlantedActed();
    const auto found = cluster_.directory().Open(newest ? kCheckpointDir : PathOf(command.step()));
    if (cluster_.directory().full()) {
      cluster_.OnFileRefused();
      saved.set_error("No space left on device");
    } else if (!found.ok()) {
      saved.set_error(found.status().ToString());
    } else {
      world_.Trace("%s saves %s", name(), command.path());
      cluster_.checkers().callbacks.Saved(command.path(), found->checkpoint->contents);
    }
    Say(std::move(message));
  });
}

void SimWorker::WriteSummaries(const v1::WriteSummaries& command) {
  Later(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(50)), [this, command] {
    v1::NodeMessage message;
    v1::SummariesWritten& written = *message.mutable_summaries_written();
    written.set_job_id(command.job_id());
    if (cluster_.directory().full()) {
      written.set_error("No space left on device");
      cluster_.checkers().callbacks.Failed();  // the job waits for it a moment only, and may end without
    } else {
      cluster_.checkers().callbacks.Wrote(command);
      if (!command.epochs().empty()) written.set_epochs(command.epochs().rbegin()->epoch() + 1);
    }
    Say(std::move(message));
  });
}

// ---- restoring ----

void SimWorker::Inspect(const v1::InspectData& command) {
  v1::NodeMessage message;
  v1::DataInfoReply& reply = *message.mutable_data_info();
  reply.set_request_id(command.request_id());
  *reply.mutable_info() = DataOf(cluster_.facts().plan.examples);
  if (command.has_spec() && !command.spec().resume_from().empty()) {
    if (const auto found = cluster_.directory().Open(command.spec().resume_from()); found.ok()) {
      const CheckpointManifest& m = found->checkpoint->contents.manifest;
      v1::CheckpointFacts& facts = *reply.mutable_checkpoint();
      facts.set_path(found->path);
      facts.set_step(m.step);
      facts.set_replicas(m.spec.replicas());
      facts.set_partition_bytes(m.spec.partition_bytes());
      facts.set_steps_per_epoch(m.steps_per_epoch);
    } else {
      reply.set_error(found.status().ToString());
    }
  }
  Later(absl::Milliseconds(5), [this, message] { Say(message); });
}

struct SimWorker::RestoreUnderWay {
  v1::Restore command;
  RestoredState state;
  size_t missing = 0;  // partitions
  absl::Time progress;
  std::map<std::string, std::shared_ptr<Exchange>> streams;  // of its own
};

void SimWorker::Restore(const v1::Restore& command) {
  Later(world_.rng.Between(absl::Milliseconds(1), absl::Milliseconds(60)), [this, command] {
    const auto restore = *restores_.insert(std::make_shared<RestoreUnderWay>()).first;
    restore->command = command;
    restore->missing = static_cast<size_t>(command.routes_size());
    restore->progress = Now();
    const std::vector<std::string> fallbacks(command.fallbacks().begin(), command.fallbacks().end());
    const bool newest = cluster_.options().bug == PlantedBug::kRestoreNewest;
    const auto found = cluster_.directory().Open(newest ? kCheckpointDir : command.path(), fallbacks);
    if (!found.ok()) return EndRestore(restore, found.status());
    restore->state = StateOf(*found, command.spec(), cluster_.options().bug);
    world_.Trace("%s restores %s in generation %d", name(), found->path, command.generation());
    cluster_.NoteRestore(command.generation(), *found);
    for (int i = 0; i < command.routes_size(); ++i) SendRestored(restore, i);
  });
}

void SimWorker::SendRestored(const std::shared_ptr<RestoreUnderWay>& restore, int route) {
  const v1::Route& to = restore->command.routes(route);
  // What waits for an answer does not own it: the streams are its own.
  const auto answered = [this, weak = std::weak_ptr(restore), route](absl::StatusOr<Frame> frame) {
    const std::shared_ptr<RestoreUnderWay> restore = weak.lock();
    if (restore == nullptr) return;
    if (frame.ok()) {
      restore->progress = Now();
      if (--restore->missing == 0) EndRestore(restore, absl::OkStatus());
    } else if (!Retryable(frame.status()) || Now() - restore->progress > kNoProgressMax) {
      EndRestore(restore, frame.status());
    } else {
      Later(world_.rng.Between(absl::Milliseconds(20), absl::Milliseconds(500)), [this, weak, route] {
        if (const auto restore = weak.lock()) SendRestored(restore, route);
      });
    }
  };
  std::shared_ptr<Exchange>& exchange = restore->streams[to.address()];
  if (exchange == nullptr || exchange->broken()) {
    SimPs* ps = cluster_.FindPs(to.address());
    if (ps == nullptr) {
      exchange = nullptr;
      return Later(absl::Milliseconds(1), [answered] { answered(absl::UnavailableError("connection refused")); });
    }
    exchange = std::make_shared<Exchange>(world_, cluster_.network(), host_, ps);
  }
  exchange->SendAll(RestoreFrames(restore->command, restore->state, to.range()), answered);
}

void SimWorker::EndRestore(const std::shared_ptr<RestoreUnderWay>& restore, const absl::Status& status) {
  if (restores_.erase(restore) == 0) return;
  for (auto& [address, stream] : std::exchange(restore->streams, {})) {
    if (stream != nullptr) stream->Close();
  }
  v1::NodeMessage message;
  v1::RestoreReply& reply = *message.mutable_restored();
  reply.set_request_id(restore->command.request_id());
  reply.set_job_id(restore->command.job_id());
  if (status.ok()) {
    reply.set_step(restore->state.step);
    reply.mutable_replica_step()->Assign(restore->state.replica_step.begin(), restore->state.replica_step.end());
    reply.set_path(restore->state.path);
    reply.mutable_skipped()->Assign(restore->state.skipped.begin(), restore->state.skipped.end());
  } else {
    reply.set_error(status.ToString());
  }
  Say(std::move(message));
}

}  // namespace cairn::sim
