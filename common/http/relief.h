// Chooses connections to close so that waiting ones get a thread.
//
// Pure; any thread. Invariant: no more are chosen than there are waiting connections without a thread; a thread whose
// connection was closed or is closing counts as soon free.
#pragma once

#include <vector>

#include "absl/time/time.h"

namespace cairn {

class Connection;

// A thread's current stage. kBegin: it has taken a connection that cannot be closed yet.
enum class Stage { kFree, kBegin, kHead, kBody, kHandler, kAnswer, kLeave };

struct Slot {
  Stage stage = Stage::kFree;
  absl::Time since;                  // in this stage
  bool broken = false;               // the connection was closed, the thread has not noticed yet
  Connection* connection = nullptr;  // kHead, kBody, kHandler, kAnswer; valid while it is listed here
};

// How long a connection may keep its thread waiting for the client while other connections wait.
inline constexpr absl::Duration kHeadPatience = absl::Milliseconds(250);
inline constexpr absl::Duration kBodyPatience = absl::Seconds(1);
inline constexpr absl::Duration kAnswerPatience = absl::Seconds(1);

// How many of the `waiting` connections exceed the threads that are free or will be soon.
size_t ThreadsWanted(const std::vector<Slot>& slots, size_t waiting);

// Indices of the slots whose connections to close now; those that have kept a thread waiting longest come first.
std::vector<size_t> ToEnd(const std::vector<Slot>& slots, size_t waiting, absl::Time now);

}  // namespace cairn
