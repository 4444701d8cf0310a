// Every limit of clients: the command line and those who speak to daemons, its reason, and how the limits depend on
// one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// ---- sessions and streams ----

inline constexpr size_t kSessionClientQueueBytesMax = size_t{8} << 20;
// What a Welcome may name; beyond, a coordinator that talks nonsense would make us spin or be taken for dead.
inline constexpr int kHeartbeatMsMax = 60'000;
// A list of jobs with their models.
inline constexpr int kAnswerBytesMax = 64 << 20;
// A watch's stream is opened again after this long, so that a peer that vanished silently is noticed.
inline constexpr absl::Duration kWatchStreamMax = absl::Seconds(30);
// A ps that refuses for this long without a partition in between is gone, or at another address by now: who asked gets
// new routes and asks anew. Longer than the coordinator takes to see that a ps is lost.
inline constexpr absl::Duration kRefusedMax = absl::Seconds(5);
inline constexpr size_t kVersionTextsMax = 8;

// ---- the command line ----

inline constexpr size_t kErrorsShownMax = 5;
// What a control message may hold.
inline constexpr size_t kJobFileBytesMax = size_t{4} << 20;
// Deeper than any job.
inline constexpr size_t kFieldPathStepsMax = 32;
inline constexpr size_t kTfConfigBytesMax = size_t{1} << 20;
inline constexpr int kTfConfigIndexMax = 4095;
inline constexpr int kLocalDaemonsMax = 64;
inline constexpr absl::Duration kRestartBackoffMax = absl::Seconds(10);
inline constexpr int64_t kBenchBytesMax = int64_t{1} << 30;

}  // namespace cairn
