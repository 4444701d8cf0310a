// Every limit of the system, its reason, and how the limits depend on one another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// Parameter space: each variable and each partition starts on a multiple of this, so that a partition is whole cache
// lines.
inline constexpr int64_t kSpaceAlignment = 16;  // numbers, 64 bytes

// One frame's payload. Small enough that other requests get through between two frames.
inline constexpr size_t kFramePayloadBytesMax = size_t{1} << 20;
// A frame's header: numbers and one error message.
inline constexpr size_t kFrameHeaderBytesMax = size_t{64} << 10;
// The header of a partition's image: its sequence table, ten bytes a replica, and a checksum a tensor.
inline constexpr size_t kImageHeaderBytesMax = size_t{32} << 10;
// Records of norms, or their factors: at most two of about a hundred bytes.
inline constexpr size_t kFrameScalarsBytesMax = 1024;
inline constexpr size_t kFrameBytesMax = kFramePayloadBytesMax + kFrameHeaderBytesMax;

inline constexpr int64_t kPartitionBytesDefault = int64_t{4} << 20;
inline constexpr int64_t kPartitionBytesMin = 64;
inline constexpr int64_t kPartitionBytesMax = int64_t{64} << 20;
inline constexpr uint32_t kPartitionsMax = 1 << 16;  // of one job: 256 GiB of parameters at the default size

inline constexpr int32_t kReplicasMax = 1024;
inline constexpr int32_t kBatchSizeMax = 1 << 20;  // a batch's numbers stay countable: 2^20 examples of 2^31 numbers
// Followers of a partition. Each costs the partition's memory once more and its gradients' bandwidth.
inline constexpr int32_t kBackupsMax = 3;
// Where at least two ps are alive and the job leaves the choice to the cluster.
inline constexpr int32_t kBackupsDefault = 1;
inline constexpr int32_t kMetricsMax = 32;
inline constexpr int32_t kThreadsPerReplicaMax = 256;
inline constexpr int32_t kImageSideMax = 1 << 14;  // pixels
inline constexpr int32_t kLayersMax = 4096;
// Numbers of one example in one layer's output: indices into it stay within 32 bits, and products of two such within
// 64.
inline constexpr int64_t kLayerOutputMax = (int64_t{1} << 31) - 1;
inline constexpr int64_t kParametersMax = int64_t{1} << 36;
inline constexpr int32_t kJobsQueuedMax = 1000;
inline constexpr int32_t kFinishedJobsKept = 100;
inline constexpr int32_t kNodesMax = 4096;

// Control messages: a job with its model, a placement. gRPC's own default.
inline constexpr int kControlMessageBytesMax = 4 << 20;

// Bytes that one Exchange stream may have queued at the ps for sending; beyond, its reads pause.
inline constexpr size_t kStreamQueueBytesMax = size_t{64} << 20;

// Bytes of whole requests that one Exchange stream may have waiting for their partitions' threads; beyond, its reads
// pause. A gradient that waits is memory on top of what its partition owns, so this is one partition: a worker has two
// streams, which keep the threads busy.
inline constexpr size_t kStreamHandlingBytesMax = size_t{4} << 20;

// Bytes of snapshots that one Exchange stream may have queued at the ps, which mostly are the partitions' own; beyond,
// its reads pause.
inline constexpr size_t kStreamBulkBytesMax = size_t{8} << 30;

// Bytes of requests that all Exchange streams of a ps have received, whole or in part, and not handled; beyond, a
// request is refused with RESOURCE_EXHAUSTED. A few of the largest ones always fit.
inline constexpr size_t kReceivedBytesMax = 8 * static_cast<size_t>(kPartitionBytesMax);
static_assert(kReceivedBytesMax >= 2 * (kStreamHandlingBytesMax + static_cast<size_t>(kPartitionBytesMax)));

// A primary's images and updates for the backups on one ps that are sent and not answered; beyond, the link to one of
// them restarts.
inline constexpr size_t kBackupQueueBytesMax = size_t{1} << 30;
// Partitions whose images are on their way to backups at the same time: their memory is kept until they are there.
inline constexpr int kBackupImagesMax = 4;
static_assert(kBackupQueueBytesMax >= kBackupImagesMax * 4 * static_cast<size_t>(kPartitionBytesMax),
              "images with two slots and the previous values");

// ---- what common/ has of its own ----

// A delay; a later time would not fit into the clock's.
inline constexpr int kDelayHoursMax = 24 * 365;
// Sums of figures are exact below this.
inline constexpr double kExactSumMax = 0x1p60;
// Of a status in a frame; the rest is cut.
inline constexpr size_t kStatusMessageBytesMax = 4096;
// Of any job: 2^shift is exact in float32, and so are 65504 * 2^shift and 2^(-24 - shift).
inline constexpr int kFloat16ShiftMax = 60;
inline constexpr size_t kCoordinatorsMax = 16;
// sockaddr_un has room for them and a zero.
inline constexpr size_t kUnixSocketPathBytesMax = 107;
// Requests of several frames that are put together at the same time on one stream.
inline constexpr size_t kAssemblerJoinsMax = 256;
// Of certificates, dozens; of a whole system's authorities.
inline constexpr size_t kTlsFileBytesMax = size_t{1} << 20;
inline constexpr int kHttpThreadsMax = 256;
// Of a request, without its body.
inline constexpr size_t kHttpHeadBytesMax = 16 << 10;
// Connections that wait for a thread.
inline constexpr size_t kHttpQueueMax = 64;
// Dead files kept to be written over: their pages are allocated and mostly in memory, which halves the cost of a write.
inline constexpr size_t kValueLogSparesMax = 4;
// Numbers of files stay below this: a larger one, in a file's name or in a place, is not ours.
inline constexpr uint64_t kValueLogSegmentsMax = uint64_t{1} << 48;
// Larger whole numbers are no double.
inline constexpr uint64_t kJsonWholeMax = uint64_t{1} << 53;

static_assert(kPartitionBytesDefault % (kSpaceAlignment * 4) == 0);
static_assert(kImageHeaderBytesMax >= 10 * kReplicasMax + 1024 && 2 * kImageHeaderBytesMax <= kFrameHeaderBytesMax);
static_assert(kPartitionBytesMax <= static_cast<int64_t>(kStreamQueueBytesMax), "a whole partition must fit the queue");

}  // namespace cairn
