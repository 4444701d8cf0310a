// All limits of the system, their reasons, and how they depend on one another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cairn {

// In the parameter space each variable and each partition starts on a multiple of this, so that a partition consists of
// whole cache lines.
inline constexpr int64_t kSpaceAlignment = 16;  // numbers, 64 bytes

// Payload of one frame. Small enough that other requests get through between two frames.
inline constexpr size_t kFramePayloadBytesMax = size_t{1} << 20;
// A frame's header: numbers and one error message.
inline constexpr size_t kFrameHeaderBytesMax = size_t{64} << 10;
// The header of a partition's image: its sequence table, ten bytes per replica, and a checksum per tensor.
inline constexpr size_t kImageHeaderBytesMax = size_t{32} << 10;
// Records of norms, or their factors: at most two of about a hundred bytes.
inline constexpr size_t kFrameScalarsBytesMax = 1024;
inline constexpr size_t kFrameBytesMax = kFramePayloadBytesMax + kFrameHeaderBytesMax;

inline constexpr int64_t kPartitionBytesDefault = int64_t{4} << 20;
inline constexpr int64_t kPartitionBytesMin = 64;
inline constexpr int64_t kPartitionBytesMax = int64_t{64} << 20;
inline constexpr uint32_t kPartitionsMax = 1 << 16;  // of one job: 256 GiB of parameters at the default size

inline constexpr int32_t kReplicasMax = 1024;
inline constexpr int32_t kBatchSizeMax = 1 << 20;  // 2^20 examples of 2^31 numbers: counts of numbers fit in 64 bits
// Backups of a partition. Each costs the partition's memory and its gradients' bandwidth once more.
inline constexpr int32_t kBackupsMax = 3;
// Used where at least two ps are alive and the job does not choose.
inline constexpr int32_t kBackupsDefault = 1;
inline constexpr int32_t kMetricsMax = 32;
inline constexpr int32_t kThreadsPerReplicaMax = 256;
inline constexpr int32_t kImageSideMax = 1 << 14;  // pixels
inline constexpr int32_t kLayersMax = 4096;
// Numbers in one layer's output for one example: indices into it fit in 32 bits, and products of two of them in
// 64.
inline constexpr int64_t kLayerOutputMax = (int64_t{1} << 31) - 1;
inline constexpr int64_t kParametersMax = int64_t{1} << 36;
inline constexpr int32_t kJobsQueuedMax = 1000;
inline constexpr int32_t kFinishedJobsKept = 100;
// Each takes a few kilobytes in the coordinator, and usually at most 256 bytes in a list of all, which is one message.
inline constexpr int32_t kNodesMax = 16384;

// A control message, such as a job with its model, or a placement. gRPC's default.
inline constexpr int kControlMessageBytesMax = 4 << 20;

// Bytes that one Exchange stream may have queued at the ps for sending; beyond that, its reads pause.
inline constexpr size_t kStreamQueueBytesMax = size_t{64} << 20;

// Bytes of complete requests that one Exchange stream may have waiting for their partitions' threads; beyond that, its
// reads pause. A waiting gradient takes memory in addition to its partition's, so this is one partition: a worker's two
// streams suffice to keep the threads busy.
inline constexpr size_t kStreamHandlingBytesMax = size_t{4} << 20;

// Bytes of snapshots that one Exchange stream may have queued at the ps; most of them are shared with the partitions.
// Beyond that, its reads pause.
inline constexpr size_t kStreamBulkBytesMax = size_t{8} << 30;

// Bytes of requests that all Exchange streams of a ps have received, whole or in part, and not yet handled; beyond
// that, a request is refused with RESOURCE_EXHAUSTED. A few of the largest requests always fit.
inline constexpr size_t kReceivedBytesMax = 8 * static_cast<size_t>(kPartitionBytesMax);
static_assert(kReceivedBytesMax >= 2 * (kStreamHandlingBytesMax + static_cast<size_t>(kPartitionBytesMax)));

// Images and updates in flight from a primary to the backups on one ps; beyond that, the link to one of them
// restarts.
inline constexpr size_t kBackupQueueBytesMax = size_t{1} << 30;
// Partitions whose images are in flight to backups at the same time: their memory is held until they have arrived.
inline constexpr int kBackupImagesMax = 4;
static_assert(kBackupQueueBytesMax >= kBackupImagesMax * 4 * static_cast<size_t>(kPartitionBytesMax),
              "images with two slots and the previous values");

// ---- limits of common/ itself ----

// Lines of its own log that a process keeps in memory, and their text: hours of a quiet daemon.
inline constexpr size_t kLogLinesKept = 10000;
inline constexpr size_t kLogBytesKept = size_t{2} << 20;
// A longer line is cut there.
inline constexpr size_t kLogLineBytesMax = size_t{16} << 10;
static_assert(kLogBytesKept >= 16 * kLogLineBytesMax);
// Of one answer.
inline constexpr int kLogAnswerLinesMax = static_cast<int>(kLogLinesKept);
// The text of one answer: the lines of several answers fit a session's queue.
inline constexpr size_t kLogAnswerBytesMax = size_t{1} << 20;
static_assert(kLogAnswerBytesMax >= kLogLineBytesMax && 3 * kLogAnswerBytesMax <= kControlMessageBytesMax);

// A trace of a job (`cairn trace`): the spans that a process keeps until they are fetched, about 10 MiB; and how many
// jobs it traces at a time.
inline constexpr size_t kTraceSpansKept = 65536;
inline constexpr size_t kTracesOfProcessMax = 4;
// A span's own text, such as a layer's name; a longer one is cut there.
inline constexpr size_t kTraceTextBytesMax = 64;
// Of one answer: several answers fit a session's queue.
inline constexpr size_t kTraceAnswerSpansMax = 8192;
static_assert(kTraceAnswerSpansMax * (kTraceTextBytesMax + 64) <= kLogAnswerBytesMax);
static_assert(kTraceAnswerSpansMax <= kTraceSpansKept);
inline constexpr int kTraceStepsMax = 1000;
// A process records so many steps more than are asked for: the nodes of a job begin one after the other, and batches
// are decoded ahead.
inline constexpr int64_t kTraceStepsSpare = 256;
inline constexpr int kTraceSecondsMax = 600;
// A process forgets a trace that nobody has read for so long.
inline constexpr int kTraceIdleSeconds = 10;

// A timer's delay: a longer one would overflow the clock's type.
inline constexpr int kDelayHoursMax = 24 * 365;
// Sums of figures are exact below this.
inline constexpr double kExactSumMax = 0x1p60;
// A status message in a frame; longer ones are cut.
inline constexpr size_t kStatusMessageBytesMax = 4096;
// For every job 2^shift is exact in float32, and so are 65504 * 2^shift and 2^(-24 - shift).
inline constexpr int kFloat16ShiftMax = 60;
inline constexpr size_t kCoordinatorsMax = 16;
// The size of sockaddr_un's path, less the terminating zero.
inline constexpr size_t kUnixSocketPathBytesMax = 107;
// Connections to a Unix socket of ours that it has not accepted yet; who comes then is refused.
inline constexpr int kUnixConnectionsWaitingMax = 64;
// Requests of several frames that are assembled at the same time on one stream.
inline constexpr size_t kAssemblerJoinsMax = 256;
// Room for dozens of certificates, or for all authorities of an operating system.
inline constexpr size_t kTlsFileBytesMax = size_t{1} << 20;
inline constexpr int kHttpThreadsMax = 256;
// An HTTP request without its body.
inline constexpr size_t kHttpHeadBytesMax = 16 << 10;
// Connections that wait for a thread.
inline constexpr size_t kHttpQueueMax = 64;
// Dead files kept for reuse: their pages are allocated and mostly in memory, which halves the cost of a write.
inline constexpr size_t kValueLogSparesMax = 4;
// File numbers stay below this: a larger number in a file name or in a place is not ours.
inline constexpr uint64_t kValueLogSegmentsMax = uint64_t{1} << 48;
// Larger integers are not all exact as a double.
inline constexpr uint64_t kJsonWholeMax = uint64_t{1} << 53;

static_assert(kPartitionBytesDefault % (kSpaceAlignment * 4) == 0);
static_assert(kImageHeaderBytesMax >= 10 * kReplicasMax + 1024 && 2 * kImageHeaderBytesMax <= kFrameHeaderBytesMax);
static_assert(kPartitionBytesMax <= static_cast<int64_t>(kStreamQueueBytesMax), "a whole partition must fit the queue");

}  // namespace cairn
