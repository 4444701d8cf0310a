#include "worker/node/restorer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "client/parameter_client.h"
#include "common/base/log.h"
#include "common/model/callback_check.h"
#include "common/rpc/backoff.h"
#include "common/rpc/daemon.h"
#include "worker/checkpoint/checkpoint_restore.h"
#include "worker/limits.h"

namespace cairn {
namespace {

constexpr absl::Duration kStopPoll = absl::Milliseconds(100);

absl::StatusOr<RestoredState> Read(const v1::Restore& command, RemoteFiles* remote) {
  const std::vector<std::string> fallbacks(command.fallbacks().begin(), command.fallbacks().end());
  return command.weights_only() ? RestoreWeights(command.spec(), command.path(), fallbacks, remote)
                                : RestoreCheckpoint(command.spec(), command.path(), fallbacks,
                                                    command.steps_per_epoch(), command.job_id(), remote);
}

// Sends every partition its image, and retries if that can help. Answers arrive on gRPC threads.
class Sender {
 public:
  Sender(const v1::Restore& command, const RestoredState& state)
      : command_(command), state_(state), backoff_({}, RandomBits()) {
    for (const v1::Route& route : command.routes()) parts_.push_back(Part{route});
  }

  absl::Status Run(const std::atomic<bool>& stop) {
    for (const Part& part : parts_) {
      const v1::PartitionRange& range = part.route.range();
      if (range.begin() >= range.end() || range.end() * sizeof(float) > state_.values.size()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("route to partition %d: range [%d, %d)", range.partition(), range.begin(), range.end()));
      }
      std::unique_ptr<PsConnection>& connection = connections_[part.route.address()];
      if (connection == nullptr)
        connection = std::make_unique<PsConnection>(part.route.address(), PsConnectionOptions{});
    }
    const absl::Status status = SendAll(stop);
    connections_.clear();  // waits for the callbacks
    return status;
  }

 private:
  struct Part {
    v1::Route route;
    bool done = false, under_way = false;
    absl::Status status;  // of the last answer
  };

  absl::Status SendAll(const std::atomic<bool>& stop) {
    using Steady = std::chrono::steady_clock;  // setting the wall clock delays nothing
    Steady::time_point progress = Steady::now(), retry_at;
    while (true) {
      std::vector<Part*> sending;
      {
        absl::MutexLock lock(&mutex_);
        const int answers = answers_;
        const auto more = [&] { return answers_ != answers; };
        for (Part& part : parts_) {
          if (part.done || part.under_way || under_way_ >= kRestoredAtOnceMax) continue;
          if (!part.status.ok()) {
            if (!IsRetryable(part.status)) return part.status;
            if (Steady::now() < retry_at) continue;
          }
          part.under_way = true;
          ++under_way_;
          sending.push_back(&part);
        }
        if (done_ == parts_.size()) return absl::OkStatus();
        if (sending.empty()) mutex_.AwaitWithTimeout(absl::Condition(&more), kStopPoll);
        if (done_ != done_before_) {
          done_before_ = done_;
          progress = Steady::now();
          backoff_.Reset();
        }
      }
      if (stop) return absl::CancelledError("the worker is stopping");
      if (absl::FromChrono(Steady::now() - progress) > kRestoreSilentMax) return Stuck();
      if (Steady::now() >= retry_at) retry_at = Steady::now() + absl::ToChronoNanoseconds(backoff_.Next());
      for (Part* part : sending) Send(*part);
    }
  }

  absl::Status Stuck() {
    absl::MutexLock lock(&mutex_);
    for (const Part& part : parts_) {
      if (!part.done && !part.status.ok()) return part.status;
    }
    return absl::UnavailableError("the ps do not answer");
  }

  void Send(Part& part) {
    std::vector<Frame> frames = RestoreFrames(command_, state_, part.route.range());
    connections_.at(part.route.address())->Send(std::move(frames), [this, &part](absl::StatusOr<Frame> reply) {
      absl::Status status = reply.status();
      if (status.ok() && reply->kind != v1::ExchangeFrame::ACK)
        status = absl::InternalError("the answer is not an ACK");
      absl::MutexLock lock(&mutex_);
      part.status =
          Annotate(status, absl::StrFormat("ps \"%s\", partition %d", part.route.ps(), part.route.range().partition()));
      part.under_way = false;
      part.done = status.ok();
      done_ += part.done;
      --under_way_;
      ++answers_;
    });
  }

  const v1::Restore& command_;
  const RestoredState& state_;
  Backoff backoff_;
  absl::Mutex mutex_;
  std::vector<Part> parts_;  // `route` is constant; the rest is guarded by mutex_
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  int answers_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t done_ ABSL_GUARDED_BY(mutex_) = 0, done_before_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::unique_ptr<PsConnection>> connections_;  // last: its destructor waits for the callbacks
};

}  // namespace

absl::StatusOr<v1::RestoreReply> RestoreJob(const v1::Restore& command, const std::atomic<bool>& stop,
                                            RemoteFiles* remote) {
  CAIRN_ASSIGN_OR_RETURN(const RestoredState state, Read(command, remote));
  for (const std::string& skipped : state.skipped) LogWarning("job %d: skipped: %s", command.job_id(), skipped);
  CAIRN_RETURN_IF_ERROR(Sender(command, state).Run(stop));
  LogInfo("job %d: restored from %s, step %d", command.job_id(), state.path, state.step);
  v1::RestoreReply reply;
  reply.set_step(state.step);
  reply.mutable_replica_step()->Assign(state.replica_step.begin(), state.replica_step.end());
  reply.set_path(state.path);
  reply.mutable_skipped()->Assign(state.skipped.begin(), state.skipped.end());
  return reply;
}

absl::StatusOr<v1::CheckpointFacts> InspectCheckpoint(const v1::JobSpec& spec, int64_t steps_per_epoch,
                                                      RemoteFiles* remote) {
  if (const v1::BackupAndRestore* backup = BackupOf(spec);
      backup != nullptr && backup->backup_dir() != spec.resume_from()) {
    v1::JobSpec resumed = spec;
    resumed.set_resume_from(backup->backup_dir());
    const absl::StatusOr<v1::CheckpointFacts> facts = InspectCheckpoint(resumed, steps_per_epoch, remote);
    if (facts.ok()) return facts;
    if (!absl::IsNotFound(facts.status())) return Annotate(facts.status(), "callbacks: backup_and_restore");
    // The job begins from initial values.
    if (spec.resume_from().empty() && spec.initial_weights().empty()) return v1::CheckpointFacts();
  }
  v1::CheckpointFacts facts;
  if (spec.resume_from().empty()) {
    absl::StatusOr<std::string> path = CheckRestoreWeights(spec, spec.initial_weights(), remote, kInspectFetchMax);
    if (!path.ok()) return Annotate(path.status(), "initial_weights");
    facts.set_path(*std::move(path));
    return facts;
  }
  const absl::StatusOr<FoundCheckpoint> found =
      CheckRestoreCheckpoint(spec, spec.resume_from(), steps_per_epoch, remote);
  if (!found.ok()) return Annotate(found.status(), "resume_from");
  const CheckpointManifest& manifest = found->checkpoint.manifest;
  facts.set_path(found->checkpoint.path);
  facts.set_step(manifest.step);
  facts.set_replicas(manifest.spec.replicas());
  facts.set_partition_bytes(manifest.spec.partition_bytes());
  facts.set_steps_per_epoch(manifest.steps_per_epoch);
  return facts;
}

}  // namespace cairn
