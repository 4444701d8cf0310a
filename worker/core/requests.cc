#include "worker/core/requests.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "worker/limits.h"

namespace cairn::replica {
namespace {

// A token: serial number (37 bits), owner (11), partition (16).
static_assert(kPartitionsMax <= (1 << 16));
static_assert(kReplicasMax <= static_cast<int32_t>(kOwnersMax) && kOwnersMax == 1 << 11);

uint64_t MakeToken(uint64_t serial, uint32_t owner, uint32_t partition) {
  return serial << 27 | static_cast<uint64_t>(owner) << 16 | partition;
}

// Fenced: only a new assignment helps, and that one sends again at once; this pause is for the case that it was lost.
constexpr absl::Duration kFencedPause = absl::Seconds(1);

}  // namespace

RequestName NameOf(uint64_t token) {
  return {static_cast<uint32_t>(token >> 16) & (kOwnersMax - 1), static_cast<uint32_t>(token & 0xffff)};
}

absl::Duration Backoff::Pause(int attempt) {
  absl::Duration pause = min_ * (int64_t{1} << std::min(attempt, 16));
  // Jitter: 0.5 to 1 of the pause, from a counter hashed with SplitMix64's finalizer (Steele et al. 2014).
  uint64_t z = seed_ + 0x9e3779b97f4a7c15u * ++drawn_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  pause = std::min(pause, max_) * (0.5 + 0.5 * static_cast<double>(z >> 11) * 0x1.0p-53);
  return std::max(pause, min_);
}

void Requests::Send(Request& request, uint32_t owner, Frame frame) {
  const uint32_t partition = frame.partition.value;
  request.state = Request::State::kSent;
  request.token = MakeToken(++numbers_.requests, owner, partition);
  request.generation = assignment_.generation.value;
  output_.Emit(replica::Send{request.token, assignment_.parts[partition].address, std::move(frame)});
}

void Requests::Retry(Request& request, uint32_t partition, const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      output_.Fail(
          absl::StrCat("partition ", partition, " at ", assignment_.parts[partition].address, ": ", status.message()));
      return;
    case absl::StatusCode::kFailedPrecondition:
      // With a newer generation in hand than was sent, the next try is already the answer.
      RetryAfter(request, request.generation < assignment_.generation.value ? backoff_.min() : kFencedPause);
      return;
    default: RetryAfter(request, backoff_.Pause(request.attempt));
  }
}

void Requests::RetryAfter(Request& request, absl::Duration pause) {
  request.state = Request::State::kWaiting;
  request.token = 0;
  ++request.attempt;
  request.retry_at = output_.now() + pause;
  output_.WakeBy(request.retry_at);
}

bool Requests::Due(const Request& request) {
  if (request.state != Request::State::kWaiting) return false;
  if (request.retry_at <= output_.now()) return true;
  output_.WakeBy(request.retry_at);
  return false;
}

bool Requests::ResendAtOnce(const Request& request, bool moved, bool raised) {
  return (request.state == Request::State::kSent && moved) ||
         (request.state == Request::State::kWaiting && (moved || raised));
}

}  // namespace cairn::replica
