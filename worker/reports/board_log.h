// BoardLog: writes the event files of Keras' TensorBoard callback, in `train` and `validation` below log_dir.
//
//   train/       epoch_loss, epoch_<metric>, epoch_learning_rate, epoch_images_per_second,
//                epoch_staleness_mean and _max (asynchronous jobs) by epoch; batch_loss,
//                batch_<metric> by step (update_freq); <layer>/<variable>/histogram by epoch
//                (histogram_freq); the graph
//   validation/  epoch_loss, epoch_<metric> by epoch; evaluation_loss_vs_iterations, ... by step
//
// One caller at a time; blocking. Each worker process writes its own files. They are named after the job, so that the
// next chief sees which epochs are written; each epoch is written once. TensorBoard reads a folder's files in the order
// of their names, and never returns to a file after it has seen a later one. Invariants:
//   1. Only the last file of a folder is written to: a worker that finds a file later than its own starts a new one,
//      which sorts after all existing ones.
//   2. One worker at a time looks for the last file and writes: it holds a lock on the folder (where the file system
//      has locks).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "common/formats/tensorboard.h"

namespace cairn {

class BoardLog {
 public:
  // host: this machine's name, part of the file names.
  BoardLog(v1::TensorBoard options, std::string host) : options_(std::move(options)), host_(std::move(host)) {}

  // weights: the current parameter space, for histograms; empty: none. now: seconds since 1970. Errors name the file
  // and the reason.
  absl::Status Write(const v1::WriteSummaries& command, const Graph& graph, absl::Span<const float> weights,
                     double now);
  // Whether histograms are due for the newest of these epochs.
  bool WantsWeights(const v1::WriteSummaries& command) const;

 private:
  struct Log {
    std::optional<EventFile> file;
    int64_t next = 0;  // epochs before this one are in the job's files
  };
  // Makes log.file the last one in its folder; it stays the last while the returned lock is held.
  absl::StatusOr<FileDescriptor> Open(const v1::WriteSummaries& command, const char* kind, double now, Log& log);
  std::string Prefix(const v1::WriteSummaries& command) const;

  const v1::TensorBoard options_;
  const std::string host_;
  Log train_, validation_;
};

}  // namespace cairn
