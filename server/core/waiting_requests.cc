#include "server/core/waiting_requests.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/overloaded.h"
#include "server/core/limits.h"

namespace cairn {

uint64_t WaitingRequests::ClockMinFor(uint64_t sequence) const {
  const PartitionConfig& config = copy_.config;
  if (config.mode != UpdateMode::kBoundedStaleness || sequence <= config.staleness_bound) return 0;
  return sequence - config.staleness_bound;
}

bool WaitingRequests::ClockReached(uint64_t clock_min) const {
  const std::vector<uint64_t>& sequences = copy_.state.sequences;
  return clock_min == 0 || *std::min_element(sequences.begin(), sequences.end()) >= clock_min;
}

bool WaitingRequests::Ready(const WaitingRequest& request) {
  if (!replication_.Settled()) return false;
  const PartitionState& state = copy_.state;
  const auto reached = [&](const std::optional<uint64_t>& version) { return version.value_or(0) <= state.version; };
  return std::visit(Overloaded{
                        [&](const WaitingPull& w) { return reached(w.want_version) && ClockReached(w.clock_min); },
                        [&](const WaitingPush& w) {
                          return step_.Measures(w.sequence) ||
                                 (state.sequences[w.replica.value] >= w.sequence && ClockReached(w.clock_min));
                        },
                        [&](const WaitingClip& w) { return state.sequences[0] >= w.sequence; },
                        [&](const WaitingSnapshot& w) { return reached(w.want_version); },
                    },
                    request.what);
}

bool WaitingRequests::WaitsForTraining(const WaitingRequest& request) const {
  const auto* pull = std::get_if<WaitingPull>(&request.what);
  return pull == nullptr || pull->clock_min > 0 || pull->want_version.value_or(0) > updates_.accepted_version();
}

absl::Status WaitingRequests::AnswerOrWait(WaitingRequest request) {
  if (Ready(request)) {
    Answer(request);
    return absl::OkStatus();
  }
  if (copy_.config.ended && WaitsForTraining(request)) return copy_.CheckTrains();
  if (waiting_.size() >= max() && !AnsweredAtOnce(request)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(copy_.config.Name(), ": ", waiting_.size(), " requests wait already; retry"));
  }
  request.since = copy_.now;
  waiting_.push_back(std::move(request));
  return absl::OkStatus();
}

bool WaitingRequests::AnsweredAtOnce(const WaitingRequest& request) const {
  const bool pushed =
      std::holds_alternative<WaitingPush>(request.what) || std::holds_alternative<WaitingClip>(request.what);
  return pushed && !updates_.empty() && replication_.Kept(updates_.accepted_version());
}

void WaitingRequests::Release() {
  std::erase_if(waiting_, [&](const WaitingRequest& request) {
    if (!Ready(request)) return false;
    Answer(request);
    return true;
  });
}

void WaitingRequests::FailAll(const absl::Status& why) {
  for (const WaitingRequest& r : std::exchange(waiting_, {})) copy_.ReplyError(r.client, r.request_id, why);
}

std::vector<PartitionReply> WaitingRequests::End(const absl::Status& why) {
  std::vector<PartitionReply> replies;
  for (const WaitingRequest& r : std::exchange(waiting_, {})) {
    replies.push_back(copy_.MakeError(r.client, r.request_id, why));
  }
  return replies;
}

void WaitingRequests::EndTraining() {
  std::erase_if(waiting_, [&](const WaitingRequest& r) {
    if (!WaitsForTraining(r)) return false;
    copy_.ReplyError(r.client, r.request_id, copy_.CheckTrains());
    return true;
  });
}

// Pushes wait at the barrier as long as their clients stay connected.
void WaitingRequests::OnTick() {
  std::erase_if(waiting_, [&](const WaitingRequest& r) {
    const bool pushed = std::holds_alternative<WaitingPush>(r.what) || std::holds_alternative<WaitingClip>(r.what);
    if (pushed || copy_.now - r.since < kPullWaitMax) return false;
    copy_.ReplyError(r.client, r.request_id,
                     absl::UnavailableError(
                         absl::StrCat(copy_.config.Name(), " is still at version ", copy_.state.version, "; retry")));
    return true;
  });
}

void WaitingRequests::OnClientGone(uint64_t client) {
  std::erase_if(waiting_, [&](const WaitingRequest& r) { return r.client == client; });
}

int64_t WaitingRequests::snapshots() const {
  return std::count_if(waiting_.begin(), waiting_.end(),
                       [](const WaitingRequest& r) { return std::holds_alternative<WaitingSnapshot>(r.what); });
}

// ---- answers ----

void WaitingRequests::Answer(const WaitingRequest& request) {
  const uint64_t client = request.client, id = request.request_id;
  std::visit(Overloaded{
                 [&](const WaitingPull& w) {
                   copy_.Reply(client, MakeValues(id, {w.replica, w.want_version, false, w.reply_dtype, w.asked}));
                 },
                 [&](const WaitingPush& w) {
                   copy_.Reply(client, step_.Measures(w.sequence)
                                           ? step_.MakeNorms(id)
                                           : MakeValues(id, {w.replica, std::nullopt, true, w.reply_dtype}));
                 },
                 [&](const WaitingClip& w) {
                   copy_.Reply(client, MakeValues(id, {ReplicaId(0), std::nullopt, true, w.reply_dtype}));
                 },
                 [&](const WaitingSnapshot&) {
                   const Image image = MakeImage(copy_.config, copy_.state, {});
                   for (Frame& frame : ImageFrames(copy_.config, image, id)) copy_.Reply(client, std::move(frame));
                 },
             },
             request.what);
}

Frame WaitingRequests::MakeValues(uint64_t request_id, const Shown& shown) {
  const PartitionState& state = copy_.state;
  const bool previous = shown.want_version && *shown.want_version + 1 == state.version;
  Frame f = copy_.MakeFrame(v1::ExchangeFrame::VALUES, request_id);
  f.version = previous ? state.version - 1 : state.version;
  if (shown.replica) {
    f.replica_first = *shown.replica;
    f.replica_count = 1;
    f.sequence = copy_.config.mode == UpdateMode::kSynchronous ? f.version : state.sequences[shown.replica->value];
  }
  if (shown.norms) f.scalars = state.norms;
  f.loss_scale = previous ? state.previous_loss_scale : state.loss_scale.scale;
  if (!shown.dtype) return f;
  f.dtype = *shown.dtype;
  f.payload = state.contents->Read(copy_.config, {f.dtype, previous, shown.asked});
  f.payload_total = f.payload.size();
  return f;
}

}  // namespace cairn
