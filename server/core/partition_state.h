// PartitionState: the state of one copy of a partition (its version and contents), and the one function that advances
// it. PartitionConfig: its configuration, which is fixed within a generation.
//
// The core applies updates with ApplyEntry as they become durable, and recovery replays the log with it: the same code,
// hence the same bits. Not thread-safe. Invariants:
//   1. sequences.size() == replicas. Synchronous: every entry equals version.
//   2. contents is never null, and of config.kind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/status.h"
#include "common/model/epoch_figures.h"
#include "common/model/loss_scale.h"
#include "common/tensor/buffer.h"
#include "server/core/partition_kind.h"

namespace cairn {

struct PartitionConfig : PartitionSettings {
  std::shared_ptr<const PartitionKind> kind;  // the form of its contents
};

struct PartitionState {
  uint64_t version = 0;
  std::vector<uint64_t> sequences;  // last applied, by replica
  std::unique_ptr<PartitionContents> contents;
  uint64_t image_version = 0;     // of the newest base image on disk; 0: none, recovery starts from the initial values
  uint64_t log_bytes = 0;         // logged since that image
  std::string norms;              // LogEntry.norms of the last update
  LossScale loss_scale;           // of jobs that have one
  float previous_loss_scale = 0;  // of version - 1
  EpochList figures;              // first partition: of all updates up to `version`, without epochs that are stored

  // The job has ended: the values are only on the disk, and the slots are gone.
  bool at_rest() const { return contents->empty(); }
  static PartitionState Initial(const PartitionConfig& config);
};

// Checks an entry against a partition that is at `version` with these sequence numbers: version, replica range,
// sequence, gradient size, loss scale, figures. DATA_LOSS: the entry does not fit this partition.
absl::Status CheckEntry(const PartitionConfig& config, uint64_t version, absl::Span<const uint64_t> sequences,
                        const v1::LogEntry& entry, size_t gradient_bytes);
inline absl::Status CheckEntry(const PartitionConfig& config, const PartitionState& state, const v1::LogEntry& entry,
                               size_t gradient_bytes) {
  return CheckEntry(config, state.version, state.sequences, entry, gradient_bytes);
}
// The type of an entry's gradient. An entry with an empty gradient names none.
inline v1::DataType DtypeOf(const v1::LogEntry& entry) {
  return entry.dtype() == v1::DATA_TYPE_UNSPECIFIED ? v1::FLOAT32 : entry.dtype();
}
// Applies a checked entry. `gradient` holds the summed gradient (empty where entry.examples() == 0) and is consumed.
void ApplyEntry(const PartitionConfig& config, const v1::LogEntry& entry, Buffer gradient, PartitionState& state);

}  // namespace cairn
