// All limits of workers, their reasons, and how they depend on one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// ---- the node ----

inline constexpr int kWorkerSlotsMax = 1024;
// Commands pending at the same time.
inline constexpr int kWorkerCommandsMax = 64;
inline constexpr int kDevicesMax = 1024;
// Partitions in flight at the same time: enough to keep the network busy, and few enough for a ps' buffers.
inline constexpr int kRestoredAtOnceMax = 16;
// A restore fails after this long without progress. Longer than a ps needs to learn of a new generation.
inline constexpr absl::Duration kRestoreSilentMax = absl::Seconds(30);

// Of a job that is checked and not submitted: steps that are measured, after one to warm up.
inline constexpr int kProbeSteps = 5;
// From its request to the answer. The coordinator waits for 30 s (coordinator/core/options.h).
inline constexpr absl::Duration kProbeAnswerMax = absl::Seconds(25);

// How long a submission waits for a data set that is fetched to its worker: less than the coordinator waits for the
// answer (30 s, coordinator/core/options.h), so that the answer says how far it is.
inline constexpr absl::Duration kInspectFetchMax = absl::Seconds(20);
// From the beginning of an inspection, also of one that has waited for data: until then the paths that a job writes to
// in S3 are tried. With the time in which the probe is removed (kS3ProbeRemovalMax) less than those 30 s.
inline constexpr absl::Duration kInspectProbeMax = absl::Seconds(25);
static_assert(kInspectFetchMax < kInspectProbeMax);
// How long a job that begins waits for a file of weights that is fetched to its worker.
inline constexpr absl::Duration kWeightsFetchMax = absl::Minutes(10);
// A trainer that waits for such a data set looks this often whether its job still wants it, and tells this often that
// it waits.
inline constexpr absl::Duration kFetchLookPause = absl::Seconds(1);
inline constexpr absl::Duration kFetchTellPause = absl::Seconds(30);

// Outputs of a shard with the names of their inputs: a coordinator of an earlier release cuts shards by the outputs
// alone (at most 1 MiB), and a message may have 4 MiB (kControlMessageBytesMax). Of a name, as the coordinator counts
// (kInputFileBytesMax); and what stands before it in the message.
inline constexpr size_t kPredictBlockBytesMax = size_t{2} << 20;
inline constexpr size_t kInputNameBytesMax = 525;
inline constexpr size_t kInputNameHeadBytes = 3;

// ---- training ----

// The token of a request names its owner (a number that the mode chooses) and its partition.
inline constexpr uint32_t kOwnersMax = 2048;
inline constexpr size_t kProgramsPerSlotMax = 2;
inline constexpr int kPassesMax = 8;

// ---- checkpoints and reports ----

// Jobs whose checkpoints and model files are written on this machine at the same time, and as many in S3. Each that
// goes to S3 holds up to five parts of 8 MiB (common/s3/limits.h); one whose S3 is away takes a thread for minutes.
inline constexpr size_t kFileThreadsMax = 4;
// A worker that is stopped finishes within this time what it writes to S3, or gives it up as one that is killed.
inline constexpr absl::Duration kUploadsFinishMax = absl::Seconds(1);
// What a job still writes to S3 when it is dropped (the copy of its best checkpoint, the last checkpoint of a former
// chief) is given up after this time: a dead endpoint does not keep a thread. Of a cancelled job it is at once.
inline constexpr absl::Duration kUploadsAfterDropMax = absl::Minutes(5);
// Checkpoints of other jobs that were renamed, which a chief reports; the coordinator tells of fewer.
inline constexpr size_t kSetAsideReportedMax = 16;
inline constexpr size_t kManifestBytesMax = size_t{256} << 20;
inline constexpr int kManifestDepthMax = 8;
// A job's name and its backup_dir.
inline constexpr size_t kWriterMarkBytesMax = size_t{64} << 10;
inline constexpr size_t kCheckpointsListedMax = 1 << 16;
// If validation falls further behind, the best checkpoint may be removed before it is known to be the best.
inline constexpr size_t kComparedLaterMax = 16;
// Of a file to append to: room for 300,000 epochs, but not for a data set named by mistake.
inline constexpr size_t kCsvLogBytesMax = size_t{64} << 20;
// Its lock is tried again for five seconds: another worker holds it for one write.
inline constexpr int kCsvLockTries = 250;
inline constexpr absl::Duration kCsvLockPause = absl::Milliseconds(20);
// A larger stamp would not sort after this one.
inline constexpr int64_t kBoardStampMax = 9'999'999'999;

// Of what Python raised: the end, where the fault is. An error of a job has room for it (coordinator/core/limits.h).
inline constexpr size_t kTracebackBytesMax = 3000;

}  // namespace cairn
