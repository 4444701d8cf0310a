#include "common/shared_memory/byte_ring.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace cairn {

size_t RingWriter::Room() const {
  const uint64_t used = written_ - other_->read;
  return used > bytes_ ? 0 : bytes_ - used;
}

void RingWriter::Write(absl::Span<const uint8_t> header, absl::Span<const uint8_t> payload) {
  Put(header, static_cast<uint32_t>(payload.size()), payload);
}

void RingWriter::Write(absl::Span<const uint8_t> header, ArenaPlace payload) {
  Put(header, payload.bytes | kInArena, {reinterpret_cast<const uint8_t*>(&payload.offset), sizeof(payload.offset)});
}

void RingWriter::Put(absl::Span<const uint8_t> header, uint32_t payload_bytes, absl::Span<const uint8_t> payload) {
  const size_t size = RingMessageBytes(header.size(), payload.size());
  CAIRN_CHECK(size <= bytes_, "a message longer than its ring");
  const uint32_t sizes[2] = {static_cast<uint32_t>(header.size()), payload_bytes};
  Put(written_, sizes, sizeof(sizes));
  Put(written_ + sizeof(sizes), header.data(), header.size());
  Put(written_ + RingAligned(sizeof(sizes) + header.size()), payload.data(), payload.size());
  written_ += size;
  own_->written = written_;
}

void RingWriter::Put(uint64_t at, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const size_t offset = at & (bytes_ - 1), first = std::min(bytes, bytes_ - offset);
  std::memcpy(ring_ + offset, from, first);
  if (bytes > first) std::memcpy(ring_, static_cast<const uint8_t*>(from) + first, bytes - first);
}

absl::StatusOr<std::optional<RingMessage>> RingReader::Peek() const {
  const uint64_t available = other_->written - read_;
  if (available == 0) return std::optional<RingMessage>();
  uint32_t sizes[2];
  if (available > bytes_ || available < kRingAlignment) {
    return absl::InvalidArgumentError(absl::StrFormat("%d bytes in a ring of %d", available, bytes_));
  }
  Get(read_, sizes, sizeof(sizes));
  const bool in_arena = (sizes[1] & kInArena) != 0;
  const uint32_t payload = sizes[1] & ~kInArena;
  const size_t in_ring = in_arena ? sizeof(ArenaPlace::offset) : payload;
  const size_t payload_max = in_arena ? limits_.payload_in_arena : limits_.payload;
  if (sizes[0] > limits_.header || payload > payload_max || RingMessageBytes(sizes[0], in_ring) > available) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a message of %d and %d bytes where %d are written", sizes[0], payload, available));
  }
  RingMessage message;
  message.header.resize(sizes[0]);
  Get(read_ + sizeof(sizes), message.header.data(), sizes[0]);
  message.ring_bytes = RingMessageBytes(sizes[0], in_ring);
  const uint64_t begin = read_ + RingAligned(sizeof(sizes) + sizes[0]);
  if (in_arena) {
    ArenaPlace place{0, payload};
    Get(begin, &place.offset, sizeof(place.offset));
    CAIRN_RETURN_IF_ERROR(FindPayload(place, message));
    return std::optional<RingMessage>(std::move(message));
  }
  const size_t offset = begin & (bytes_ - 1), first = std::min<size_t>(payload, bytes_ - offset);
  message.payload[0] = {ring_ + offset, first};
  message.payload[1] = {ring_, payload - first};
  return std::optional<RingMessage>(std::move(message));
}

absl::Status RingReader::FindPayload(ArenaPlace place, RingMessage& message) const {
  if (arena_ == nullptr || !arena_->Has(place.offset, place.bytes)) {
    return absl::InvalidArgumentError(absl::StrFormat("%d bytes at %d of an arena of %d", place.bytes, place.offset,
                                                      arena_ == nullptr ? 0 : arena_->size()));
  }
  const auto found = arena_->Find(place.offset, place.bytes);
  if (!found.has_value()) {
    if (other_->closed != 0) return absl::UnavailableError("the other process has taken back what it sent");
    return absl::InvalidArgumentError(
        absl::StrFormat("%d bytes at %d of an arena are not there", place.bytes, place.offset));
  }
  message.closed = &other_->closed;
  message.payload[0] = *found;
  return absl::OkStatus();
}

void RingReader::Release(size_t ring_bytes) {
  read_ += ring_bytes;
  own_->read = read_;
}

void RingReader::Get(uint64_t at, void* to, size_t bytes) const {
  if (bytes == 0) return;
  const size_t offset = at & (bytes_ - 1), first = std::min(bytes, bytes_ - offset);
  std::memcpy(to, ring_ + offset, first);
  if (bytes > first) std::memcpy(static_cast<uint8_t*>(to) + first, ring_, bytes - first);
}

}  // namespace cairn
