// manifest.json of a checkpoint: the job and state that its two safetensors files belong to, and their checksums.
//
// Pure functions; any thread. Invariants:
//   1. Encode is canonical: the same manifest gives the same bytes, and
//      Parse refuses any other bytes, so that every altered byte is seen.
//   2. A manifest is not trusted: Parse checks every field, and that the fields are consistent.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/status.h"
#include "common/model/epoch_figures.h"

namespace cairn {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";

// The state of a partition at the cut.
struct CheckpointPartition {
  uint64_t begin = 0, end = 0;  // numbers
  uint64_t version = 0;
  std::vector<uint64_t> sequences;  // last update by replica; synchronous: empty, all are `version`
  bool operator==(const CheckpointPartition&) const = default;
};

struct CheckpointFile {
  uint64_t bytes = 0;
  std::string xxh3_128;  // hex
  std::string nonce;     // in its name, of the attempt that wrote it: IsNonce. Empty, as in folders: it has none
  bool operator==(const CheckpointFile&) const = default;
};

struct CheckpointManifest {
  std::string library_version;
  uint64_t job_id = 0;
  int64_t submitted_unix_ms =
      0;             // of the job: distinguishes it from another cluster's job of that id. 0: an older manifest
  v1::JobSpec spec;  // resolved: model, optimizer, seed, batch_size, replicas
  bool synchronous = true;
  int64_t step = 0;                   // the next step to compute; asynchronous: the slowest replica's
  std::vector<int64_t> replica_step;  // asynchronous: by replica; synchronous: empty
  int64_t steps_per_epoch = 1;
  int64_t total_steps = 0;
  uint64_t train_examples = 0;
  int64_t written_unix_ms = 0;
  v1::LossScaleState loss_scale;  // of jobs that have one; asynchronous: the first partition's
  EpochList figures;  // training figures that the coordinator had not stored yet, taken from the first partition
  std::vector<CheckpointPartition> partitions;  // in order, without gaps
  std::map<std::string, CheckpointFile> files;  // kModelFile and kOptimizerFile
};

// Both files have the same one.
const std::string& FilesNonce(const CheckpointManifest& manifest);
void SetFilesNonce(const std::string& nonce, CheckpointManifest& manifest);

// Sixteen lower-case hexadecimal digits.
bool IsNonce(absl::string_view text);
// The name of kModelFile or kOptimizerFile in the folder: "model-<nonce>.safetensors", without a nonce the name itself.
std::string TensorsFileName(absl::string_view file, absl::string_view nonce);
// The nonce of such a name; empty: it is none, or has none.
std::string NonceOf(absl::string_view file, absl::string_view name);

std::string EncodeManifest(const CheckpointManifest& manifest);
// Errors: DATA_LOSS: torn or altered, the message says where; UNIMPLEMENTED: an unknown format version.
absl::StatusOr<CheckpointManifest> ParseManifest(absl::string_view text);

}  // namespace cairn
