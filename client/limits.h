// All limits of clients (the command line, and connections to daemons), their reasons, and how they depend on
// one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// ---- sessions and streams ----

inline constexpr size_t kSessionClientQueueBytesMax = size_t{8} << 20;
// The longest heartbeat interval taken from a Welcome: with a longer one the node would be taken for dead.
inline constexpr int kHeartbeatMsMax = 60'000;
// Room for a list of jobs with their models.
inline constexpr int kAnswerBytesMax = 64 << 20;
// A watch's stream is reopened after this long, so that a peer that vanished silently is noticed.
inline constexpr absl::Duration kWatchStreamMax = absl::Seconds(30);
// A ps that refuses for this long without serving a partition is gone or has another address: the caller must get
// new routes and retry. Longer than the coordinator takes to detect that a ps is lost.
inline constexpr absl::Duration kRefusedMax = absl::Seconds(5);
inline constexpr size_t kVersionTextsMax = 8;

// ---- the command line ----

// As large as a control message may be.
inline constexpr size_t kJobFileBytesMax = size_t{4} << 20;
// Deeper than any field of a job.
inline constexpr size_t kFieldPathStepsMax = 32;
inline constexpr size_t kTfConfigBytesMax = size_t{1} << 20;
// Of a question that only makes an error clearer, such as what the job has that resume_from names.
inline constexpr absl::Duration kExplanationMax = absl::Seconds(2);
inline constexpr int kTfConfigIndexMax = 4095;
inline constexpr int kLocalDaemonsMax = 64;
inline constexpr absl::Duration kRestartBackoffMax = absl::Seconds(10);
// Trials of a sweep: its files are written again whenever one changes.
inline constexpr int kSweepTrialsMax = 1000;
inline constexpr int kSweepParallelMax = 256;
// A file of a sweep's folder that is read again.
inline constexpr size_t kSweepFileBytesMax = size_t{64} << 20;
// Spans of a trace: its file has about 150 bytes of each.
inline constexpr size_t kTraceSpansCollectedMax = 1'000'000;
// Of one node before the next one is asked: it may record faster than it is read.
inline constexpr int kTraceAnswersOfRoundMax = 32;
// Nodes of one role in the table of a trace.
inline constexpr size_t kTraceTableNodesMax = 16;
inline constexpr size_t kTraceTableLayersMax = 5;
inline constexpr int64_t kBenchBytesMax = int64_t{1} << 30;

}  // namespace cairn
