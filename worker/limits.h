// Every limit of workers, its reason, and how the limits depend on one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cairn {

// ---- the node ----

inline constexpr int kWorkerSlotsMax = 1024;
// Under way at the same time.
inline constexpr int kWorkerCommandsMax = 64;
inline constexpr int kDevicesMax = 1024;
// Partitions on their way at the same time: they keep the network busy, and a ps' buffers small.
inline constexpr int kRestoredAtOnceMax = 16;
// Without an answer that helps for so long the command has failed. Longer than a ps needs to hear of a generation.
inline constexpr absl::Duration kRestoreSilentMax = absl::Seconds(30);

// ---- training ----

// Who sent: the token of a request names its owner (a mode's own number) and partition.
inline constexpr uint32_t kOwnersMax = 2048;
inline constexpr size_t kProgramsPerSlotMax = 2;
inline constexpr int kPassesMax = 8;

// ---- checkpoints and reports ----

inline constexpr size_t kManifestBytesMax = size_t{256} << 20;
inline constexpr int kManifestDepthMax = 8;
inline constexpr size_t kCheckpointsListedMax = 1 << 16;
// Where validation falls further behind, the best checkpoint may be removed before it is known to be that.
inline constexpr size_t kComparedLaterMax = 16;
// Of a file that is gone on with: 300,000 epochs, and no data set by mistake.
inline constexpr size_t kCsvLogBytesMax = size_t{64} << 20;
// A later one would not sort after it.
inline constexpr int64_t kBoardStampMax = 9'999'999'999;

}  // namespace cairn
