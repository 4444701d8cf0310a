// The limits of a ps beside those of the whole system (common/base/limits.h), their reasons, and how they depend on one
// another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "common/base/limits.h"

namespace cairn {

// ---- requests at a partition ----

// Requests that wait at one partition: every replica's push, as often again after broken streams, and pulls beside
// them.
inline constexpr size_t kWaitersPerReplicaMax = 4;
inline constexpr size_t kWaitersExtraMax = 64;
// Snapshots of a version that is not reached yet: one checkpoint is under way at a time, and a former chief may wait
// too.
inline constexpr int64_t kSnapshotsWaitingMax = 4;
// Updates of one partition that are on their way to the store: each holds a gradient.
inline constexpr size_t kUpdatesInFlightMax = 32;
// A waiting pull is told to try again after this; a push waits for its barrier as long as its client stays.
inline constexpr absl::Duration kPullWaitMax = absl::Seconds(60);
// Examples in one push; sums over kReplicasMax pushes stay exact in 64 bits.
inline constexpr uint64_t kPushExamplesMax = uint64_t{1} << 40;
static_assert(kPushExamplesMax <= UINT64_MAX / kReplicasMax);
static_assert(kWaitersExtraMax > kSnapshotsWaitingMax);

// ---- the link from a primary to a backup ----

// A backup that is behind by less than this is waited for, and so catches up. One that follows for longer than
// kLinkJoinAfter is waited for however far it is behind: a busy asynchronous job would outrun it for ever.
inline constexpr uint64_t kLinkLagToJoin = 8;
inline constexpr absl::Duration kLinkJoinAfter = absl::Seconds(1);
inline constexpr absl::Duration kLinkRetryMin = absl::Milliseconds(20);
inline constexpr absl::Duration kLinkRetryMax = absl::Seconds(1);
// No answer at all from the backup's ps, about a lease; and for what is sent and not answered, at the rate of a slow
// network.
inline constexpr absl::Duration kLinkSilentMax = absl::Seconds(3);
// The same, but its connection answers keepalives.
inline constexpr absl::Duration kLinkBusyMax = absl::Seconds(10);
inline constexpr double kLinkBytesPerSecond = 32 << 20;
// Its ps answers, but nothing of this partition is confirmed.
inline constexpr absl::Duration kLinkStalledMax = absl::Seconds(30);
inline constexpr size_t kLinkBytesMin = size_t{16} << 20;
inline constexpr size_t kLinkBytesMax(size_t image_bytes) { return std::max(kLinkBytesMin, 2 * image_bytes); }
// A tick is due every second; more between two of them is time in which nothing was read.
inline constexpr absl::Duration kTickGapMax = absl::Seconds(2);
inline constexpr absl::Duration kReportLostEvery = absl::Milliseconds(900);
// What is tried again is so before its silence counts; a busy ps is given more time than a silent one, and one that
// answers others the most.
static_assert(kLinkRetryMin < kLinkRetryMax && kLinkRetryMax < kLinkSilentMax);
static_assert(kLinkSilentMax < kLinkBusyMax && kLinkBusyMax < kLinkStalledMax);
static_assert(kTickGapMax < kLinkSilentMax);
// An image, or the updates in flight, fit what may be under way on a link.
static_assert(kLinkBytesMax(kPartitionBytesMax) >= kPartitionBytesMax);

// ---- images of SNAPSHOT jobs ----

// Beyond, an image takes longer than all of these and partitions may miss each other. One ps writes the images of all
// its jobs one after the other: those of a large job may take thousands of steps of a small one. Strides that are not
// used keep few images: at most 15 were seen.
inline constexpr uint64_t kSnapshotStrideMax = 64;
// Of each stride: of two partitions that use it one may be at its third image while the other writes its second.
inline constexpr size_t kSnapshotsKept = 3;

}  // namespace cairn
