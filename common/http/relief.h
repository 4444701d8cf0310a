// Which connections are ended to make room for those that wait for a thread.
//
// Pure; any thread. Invariant: no more are chosen than wait and will get no thread by itself: one that was ended, or is
// on its way out, counts as free soon.
#pragma once

#include <vector>

#include "absl/time/time.h"

namespace cairn {

class Connection;

// What a thread does. kBegin: it has taken a connection that cannot be ended yet.
enum class Stage { kFree, kBegin, kHead, kHandler, kAnswer, kLeave };

struct Slot {
  Stage stage = Stage::kFree;
  absl::Time since;                  // in this stage
  bool broken = false;               // the connection was ended, the thread has not noticed yet
  Connection* connection = nullptr;  // kHead, kHandler, kAnswer; lives as long as it is listed here
};

// How long one may keep its thread waiting for the client while others wait.
inline constexpr absl::Duration kHeadPatience = absl::Milliseconds(250);
inline constexpr absl::Duration kAnswerPatience = absl::Seconds(1);

// How many of `waiting` connections the threads that are free, or soon will be, do not take.
size_t ThreadsWanted(const std::vector<Slot>& slots, size_t waiting);

// Indices of the slots whose connections are to be ended now, those that have kept a thread waiting longest first.
std::vector<size_t> ToEnd(const std::vector<Slot>& slots, size_t waiting, absl::Time now);

}  // namespace cairn
