#include "server/core/primary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor/gradient_rounding.h"
#include "server/core/limits.h"
#include "server/core/push_gradient.h"

namespace cairn {
namespace {

// nullopt: the frame requests no values.
absl::StatusOr<std::optional<v1::DataType>> ReplyType(const Frame& frame) {
  if (frame.reply_dtype == v1::DATA_TYPE_UNSPECIFIED) return std::nullopt;
  if (!IsValuesType(frame.reply_dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("reply_dtype: ", static_cast<int>(frame.reply_dtype),
                                                   " is not a type of values; use FLOAT32, BFLOAT16, FLOAT16 or INT8"));
  }
  return frame.reply_dtype;
}

}  // namespace

// any_generation: 0 means any generation.
absl::Status Primary::CheckRequest(const Frame& frame, bool any_generation) const {
  if (!any_generation || frame.generation.value != 0) {
    CAIRN_RETURN_IF_ERROR(copy_.CheckGeneration(frame.generation));
  }
  return replication_.CheckServes();
}

absl::Status Primary::Push(uint64_t client, Frame& frame) {
  CAIRN_RETURN_IF_ERROR(CheckRequest(frame, /*any_generation=*/false));
  CAIRN_RETURN_IF_ERROR(copy_.CheckTrains());
  CAIRN_RETURN_IF_ERROR(CheckPush(copy_.config, frame));
  WaitingPush waits{frame.replica_first, frame.sequence, waiting_.ClockMinFor(frame.sequence), {}};
  CAIRN_ASSIGN_OR_RETURN(waits.reply_dtype, ReplyType(frame));
  const uint64_t request_id = frame.request_id;
  const bool measured = step_.measured();
  CAIRN_ASSIGN_OR_RETURN(std::optional<OpenStep::Complete> update,
                         copy_.config.mode == UpdateMode::kSynchronous ? step_.Add(frame) : AcceptAlone(frame));
  if (update) Accept(*std::move(update));
  if (!measured && step_.measured()) waiting_.Release();
  return waiting_.AnswerOrWait({client, request_id, waits});
}

// In an asynchronous job each push is an update. nullopt: it is a duplicate.
absl::StatusOr<std::optional<OpenStep::Complete>> Primary::AcceptAlone(Frame& frame) {
  const auto replica = static_cast<size_t>(frame.replica_first.value);
  const std::vector<uint64_t>& sequences = updates_.sequences();
  const uint64_t accepted = sequences[replica];
  if (frame.sequence <= accepted) return std::nullopt;
  if (frame.sequence > accepted + 1) {
    return absl::OutOfRangeError(absl::StrCat("sequence ", frame.sequence, ": the last update of replica ", replica,
                                              " here is ", accepted, "; push update ", accepted + 1, " first"));
  }
  if (updates_.size() >= kUpdatesInFlightMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(copy_.config.Name(), ": ", updates_.size(), " updates are on their way to the disk; retry"));
  }
  CAIRN_ASSIGN_OR_RETURN(v1::EpochFigures figures, figures_.Of(frame));
  copy_.state.contents->ForgetPrevious();
  v1::LogEntry entry;
  if (figures.replica_steps() > 0) *entry.mutable_figures() = std::move(figures);
  entry.set_replica_first(static_cast<uint32_t>(replica));
  entry.set_replica_count(1);
  entry.set_sequence(frame.sequence);
  entry.set_examples(frame.examples);
  entry.set_learning_rate(frame.learning_rate);
  entry.set_loss_scale(frame.loss_scale);
  entry.set_not_finite(frame.not_finite);
  // The average replaces the values once per step of the job: with the push of the last replica.
  const auto behind = std::count_if(sequences.begin(), sequences.end(), [&](uint64_t s) { return s < frame.sequence; });
  entry.set_ema_overwrite(frame.ema_overwrite && behind == 1);
  Buffer gradient = copy_.state.contents->AddPenalties(copy_.config, frame.examples, TakeGradient(copy_.config, frame));
  return OpenStep::Complete{std::move(entry), std::move(gradient)};
}

void Primary::Accept(OpenStep::Complete complete) {
  Updates::Update& update = updates_.Accept(std::move(complete.entry), std::move(complete.gradient));
  replication_.Send(update);
  updates_.Persist(update);
}

absl::Status Primary::Clip(uint64_t client, const Frame& frame) {
  CAIRN_RETURN_IF_ERROR(CheckRequest(frame, /*any_generation=*/false));
  CAIRN_RETURN_IF_ERROR(copy_.CheckTrains());
  WaitingClip waits{frame.sequence, {}};
  CAIRN_ASSIGN_OR_RETURN(waits.reply_dtype, ReplyType(frame));
  CAIRN_ASSIGN_OR_RETURN(std::optional<OpenStep::Complete> update, step_.Clip(frame));
  if (update) Accept(*std::move(update));
  return waiting_.AnswerOrWait({client, frame.request_id, waits});
}

absl::Status Primary::Pull(uint64_t client, Frame& frame) {
  CAIRN_RETURN_IF_ERROR(CheckRequest(frame, /*any_generation=*/true));
  const PartitionState& state = copy_.state;
  WaitingPull waits;
  CAIRN_ASSIGN_OR_RETURN(const std::optional<v1::DataType> dtype, ReplyType(frame));
  waits.reply_dtype = dtype.value_or(v1::FLOAT32);
  if (frame.replica_count > 0) {
    const uint32_t replicas = copy_.config.replicas;
    if (frame.replica_first.value < 0 || static_cast<uint32_t>(frame.replica_first.value) >= replicas) {
      return absl::InvalidArgumentError(
          absl::StrCat("replica_first: ", frame.replica_first.value, "; the job has ", replicas, " replicas"));
    }
    waits.replica = frame.replica_first;
    if (frame.replica_count == 1) waits.clock_min = waiting_.ClockMinFor(frame.sequence);
  }
  if (frame.want_version) {
    const uint64_t want = *frame.want_version;
    const bool previous_kept = state.contents->has_previous() && want + 1 == state.version;
    if (want < state.version && !previous_kept) {
      return absl::FailedPreconditionError(absl::StrCat("want_version ", want, " is gone: ", copy_.config.Name(),
                                                        " is at version ", state.version, "; pull again"));
    }
    waits.want_version = want;
  }
  CAIRN_ASSIGN_OR_RETURN(waits.asked, copy_.config.kind->TakeQuery(copy_.config, frame));
  return waiting_.AnswerOrWait({client, frame.request_id, waits});
}

// Sends the state to a chief. Nothing is copied: an image shares its buffers with the state (partition_image.h), and an
// update copies a buffer before it writes to it.
absl::Status Primary::Snapshot(uint64_t client, const Frame& frame) {
  CAIRN_RETURN_IF_ERROR(CheckRequest(frame, /*any_generation=*/true));
  CAIRN_RETURN_IF_ERROR(copy_.CheckTrains());
  const PartitionState& state = copy_.state;
  if (frame.want_version && *frame.want_version < state.version) {
    return absl::FailedPreconditionError(absl::StrCat("want_version ", *frame.want_version,
                                                      " is gone: ", copy_.config.Name(), " is at version ",
                                                      state.version, "; ask for a later one"));
  }
  if (const int64_t waiting = waiting_.snapshots(); waiting >= kSnapshotsWaitingMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(copy_.config.Name(), ": ", waiting, " snapshots are waited for already; retry"));
  }
  return waiting_.AnswerOrWait({client, frame.request_id, WaitingSnapshot{frame.want_version}});
}

}  // namespace cairn
