// The limits of a ps, in addition to those of the whole system (common/base/limits.h), their reasons, and how they
// depend on one another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "common/base/limits.h"

namespace cairn {

// ---- requests at a partition ----

// Requests that wait at one partition: each replica's push, again as many after broken streams, and pulls beside
// them.
inline constexpr size_t kWaitersPerReplicaMax = 4;
inline constexpr size_t kWaitersExtraMax = 64;
// Snapshots of a version that is not reached yet: one checkpoint is written at a time, and a former chief may still
// wait.
inline constexpr int64_t kSnapshotsWaitingMax = 4;
// Updates of one partition in flight to the store: each holds a gradient.
inline constexpr size_t kUpdatesInFlightMax = 32;
// A waiting pull is told to try again after this; a push waits for its barrier as long as its client stays.
inline constexpr absl::Duration kPullWaitMax = absl::Seconds(60);
// Examples in one push; sums over kReplicasMax pushes stay exact in 64 bits.
inline constexpr uint64_t kPushExamplesMax = uint64_t{1} << 40;
static_assert(kPushExamplesMax <= UINT64_MAX / kReplicasMax);
static_assert(kWaitersExtraMax > kSnapshotsWaitingMax);

// ---- the link from a primary to a backup ----

// The primary waits for a backup that lags by fewer updates than this, so that it catches up. After kLinkJoinAfter of
// following it waits however large the lag is: a busy asynchronous job would outrun the backup forever.
inline constexpr uint64_t kLinkLagToJoin = 8;
inline constexpr absl::Duration kLinkJoinAfter = absl::Seconds(1);
inline constexpr absl::Duration kLinkRetryMin = absl::Milliseconds(20);
inline constexpr absl::Duration kLinkRetryMax = absl::Seconds(1);
// Without any answer from the backup's ps: about a lease, plus the time to send the unconfirmed bytes over a slow
// network (kLinkBytesPerSecond).
inline constexpr absl::Duration kLinkSilentMax = absl::Seconds(3);
// Likewise, but its connection answers keepalives.
inline constexpr absl::Duration kLinkBusyMax = absl::Seconds(10);
inline constexpr double kLinkBytesPerSecond = 32 << 20;
// Its ps answers, but confirms nothing of this partition.
inline constexpr absl::Duration kLinkStalledMax = absl::Seconds(30);
inline constexpr size_t kLinkBytesMin = size_t{16} << 20;
inline constexpr size_t kLinkBytesMax(size_t image_bytes) { return std::max(kLinkBytesMin, 2 * image_bytes); }
// A tick is due every second; a longer gap is time in which this process read nothing.
inline constexpr absl::Duration kTickGapMax = absl::Seconds(2);
inline constexpr absl::Duration kReportLostEvery = absl::Milliseconds(900);
// Retries happen before silence counts. A busy ps gets more time than a silent one, and a ps that still answers for
// other partitions gets the most.
static_assert(kLinkRetryMin < kLinkRetryMax && kLinkRetryMax < kLinkSilentMax);
static_assert(kLinkSilentMax < kLinkBusyMax && kLinkBusyMax < kLinkStalledMax);
static_assert(kTickGapMax < kLinkSilentMax);
// An image, or the updates in flight, fit into the bytes that a link may have in flight.
static_assert(kLinkBytesMax(kPartitionBytesMax) >= kPartitionBytesMax);

// ---- images of SNAPSHOT jobs ----

// If an image takes longer than the largest stride, partitions may have no image of one version. A ps writes the images
// of all its jobs one after the other: those of a large job may take thousands of steps of a small one. Unused strides
// keep few images: at most 15 were seen.
inline constexpr uint64_t kSnapshotStrideMax = 64;
// Per stride: of two partitions that use it, one may be at its third image while the other writes its second.
inline constexpr size_t kSnapshotsKept = 3;

}  // namespace cairn
