// UnconfirmedUpdates: what a primary has sent to one backup in the present attempt and is not confirmed yet.
//
// Not thread-safe; part of BackupLink. Invariants:
//   1. Requests are in the order in which they were sent; a confirmation covers all requests before it.
//   2. Answers to requests of earlier attempts are not found.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "common/base/ids.h"

namespace cairn {

class UnconfirmedUpdates {
 public:
  struct Sent {
    uint64_t request_id = 0;
    Generation generation;
    uint64_t version = 0;
    size_t bytes = 0;
  };

  // Another attempt: its requests begin at this number.
  void Begin(uint64_t first_request_id) {
    sent_.clear();
    bytes_ = 0;
    first_request_id_ = first_request_id;
  }
  // As Begin, and requests of the present attempt are no longer found either.
  void End() { Begin(sent_.empty() ? first_request_id_ : sent_.back().request_id + 1); }
  void Add(const Sent& sent) {
    sent_.push_back(sent);
    bytes_ += sent.bytes;
  }

  // nullopt: not of this attempt, or confirmed already.
  std::optional<Sent> Find(uint64_t request_id) const {
    const auto sent = Place(request_id);
    return sent == sent_.end() ? std::nullopt : std::optional<Sent>(*sent);
  }
  bool IsFirst(uint64_t request_id) const { return !sent_.empty() && sent_.front().request_id == request_id; }
  // Confirms the request and all before it.
  void Confirm(uint64_t request_id) {
    const auto end = Place(request_id);
    if (end == sent_.end()) return;
    for (auto it = sent_.begin(); it <= end; ++it) bytes_ -= it->bytes;
    sent_.erase(sent_.begin(), end + 1);
  }

  bool empty() const { return sent_.empty(); }
  size_t bytes() const { return bytes_; }

 private:
  std::deque<Sent>::const_iterator Place(uint64_t request_id) const {
    if (request_id < first_request_id_) return sent_.end();
    return std::find_if(sent_.begin(), sent_.end(), [&](const Sent& s) { return s.request_id == request_id; });
  }

  uint64_t first_request_id_ = 0;
  std::deque<Sent> sent_;
  size_t bytes_ = 0;
};

}  // namespace cairn
