#include "common/shared_memory/shared_link.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <ctime>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace cairn {
namespace {

constexpr size_t kHeadBytes = 4096;  // two LinkEnd, on a page of their own
static_assert(2 * sizeof(LinkEnd) <= kHeadBytes);

LinkEnd* EndAt(const SharedRegion& region, bool first) {
  return reinterpret_cast<LinkEnd*>(region.data() + (first ? 0 : sizeof(LinkEnd)));
}

uint8_t* RingAt(const SharedRegion& region, bool first) {
  return region.data() + kHeadBytes + (first ? 0 : kRingBytes);
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t value) {
  const timespec longest = absl::ToTimespec(kLinkLookEvery);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, value, &longest, nullptr, 0);
}

// All of them: another one may sleep there that is not ours.
void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

SharedLink::SharedLink(SharedRegion region, End end, User* user, const Arenas& arenas)
    : region_(std::move(region)),
      own_(EndAt(region_, end == End::kGiver)),
      other_(EndAt(region_, end == End::kTaker)),
      writer_(RingAt(region_, end == End::kGiver), kRingBytes, own_, other_),
      reader_(RingAt(region_, end == End::kTaker), kRingBytes, own_, other_,
              {kFrameHeaderBytesMax, kRingPayloadBytesMax, kReferencedPayloadBytesMax}, arenas.read),
      held_(arenas.own),
      user_(user) {
  CAIRN_CHECK(region_.size() == kRegionBytes, "a link in memory of another size");
}

SharedLink::~SharedLink() {
  Stop();
  own_->closed = 1;  // before what is held is released, and written to again
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

absl::Status SharedLink::Start() {
  try {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "shared-link");
      Run();
      ended_ = true;
    });
  } catch (const std::system_error& error) {
    drops_ = true;
    return absl::ResourceExhaustedError(absl::StrCat("no thread for shared memory: ", error.what()));
  }
  return absl::OkStatus();
}

// ---- the link's thread ----

void SharedLink::Run() {
  absl::Status status;
  while (status.ok() && !EndsNow()) {
    status = ReadAll();
    if (RoomNow()) GiveRoom();
    if (status.ok()) Park();
  }
  drops_ = true;
  GiveRoom();
  while (refusing_ != 0) std::this_thread::yield();  // OnEnd may free this
  user_->OnEnd(std::move(status));
}

bool SharedLink::EndsNow() {
  if (asked_.finish && !left_.has_value()) left_ = reader_.Pending();
  return asked_.cancel || left_ == 0;
}

absl::Status SharedLink::ReadAll() {
  while (ReadsNow()) {
    CAIRN_ASSIGN_OR_RETURN(std::optional<RingMessage> message, reader_.Peek());
    if (!message.has_value()) return absl::OkStatus();
    held_.Release(writer_.read());  // an answer may let its receiver use their memory again
    const size_t taken = message->ring_bytes;
    user_->OnMessage(*std::move(message));
    reader_.Release(taken);
    if (left_.has_value()) *left_ -= std::min(*left_, taken);
    if (RoomNow()) GiveRoom();
    const uint32_t wanted = other_->room_wanted;
    if (wanted != 0 && reader_.Free() >= wanted) WakeOther();
  }
  return absl::OkStatus();
}

void SharedLink::GiveRoom() {
  if (room_awaited_.exchange(0) == 0) return;
  own_->room_wanted = 0;
  user_->OnRoom();
}

bool SharedLink::RoomNow() const {
  const uint32_t awaited = room_awaited_;
  return awaited != 0 && !asked_.cancel && writer_.Room() >= awaited;
}

// Announces the sleep before it looks once more, as the other end writes before it looks whether this one sleeps: all
// of that is sequentially consistent, so that one of the two sees the other.
void SharedLink::Park() {
  asleep_ = true;
  own_->parked = 1;
  held_.Release(writer_.read());
  if (!ReadsNow() && !RoomNow() && !EndsNow()) FutexWait(&own_->parked, 1);
  own_->parked = 0;
  asleep_ = false;
}

// ---- any thread ----

size_t SharedLink::PayloadBytesMax(absl::Span<const uint8_t> payload) const {
  return held_.PlaceOf(payload).has_value() ? kReferencedPayloadBytesMax : kRingPayloadBytesMax;
}

bool SharedLink::TryWrite(absl::Span<const uint8_t> header, absl::Span<const uint8_t> payload,
                          std::shared_ptr<const void> owner) {
  if (drops_) return true;
  const std::optional<ArenaPlace> place = owner == nullptr ? std::nullopt : held_.PlaceOf(payload);
  const size_t size = RingMessageBytes(header.size(), place.has_value() ? sizeof(ArenaPlace::offset) : payload.size());
  held_.Release(writer_.read());
  const uint64_t awaited = place.has_value() ? held_.AwaitedFor(payload.size()) : 0;
  if (writer_.Room() >= size && awaited == 0) {
    if (place.has_value()) {
      held_.Hold(writer_.written() + size, payload.size(), std::move(owner));
      writer_.Write(header, *place);
    } else {
      writer_.Write(header, payload);
    }
    WakeOther();
    return true;
  }
  // Half of the ring, or what is free when the awaited message was read: the two threads then change over less often.
  const size_t after = std::min<uint64_t>(writer_.written() - awaited, kRingBytes);
  const auto wanted = static_cast<uint32_t>(std::max(size, awaited == 0 ? kRingBytes / 2 : kRingBytes - after));
  ++refusing_;
  own_->room_wanted = wanted;
  room_awaited_ = wanted;  // from here on OnRoom may run, and whoever it lets write
  // It may have been freed in between, or the link may have ended: then the other end does not wake the link's thread.
  WakeOwn();
  const bool dropped = drops_ && room_awaited_.exchange(0) != 0;
  --refusing_;  // last
  return dropped;
}

void SharedLink::Resume() {
  asked_.pause = false;
  WakeOwn();
}

void SharedLink::Finish() {
  asked_.finish = true;
  WakeOwn();
}

void SharedLink::Cancel() {
  asked_.cancel = true;
  WakeOwn();
}

void SharedLink::Stop() {
  if (!thread_.joinable()) return;
  CAIRN_CHECK(thread_.get_id() != std::this_thread::get_id(), "a link cannot wait for itself");
  Cancel();
  // Again and again, for the other process may write to the word on which the thread sleeps.
  for (; !ended_; std::this_thread::sleep_for(std::chrono::microseconds(100))) WakeOwn();
  thread_.join();
}

void SharedLink::WakeOwn() {
  if (!asleep_) return;
  own_->parked = 0;
  FutexWake(&own_->parked);
}

void SharedLink::WakeOther() {
  if (other_->parked != 0 && other_->parked.exchange(0) != 0) {
    FutexWake(&other_->parked);
  }
}

}  // namespace cairn
