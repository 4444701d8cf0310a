// BoardLog: the event files of Keras' TensorBoard callback: `train` and `validation` below log_dir.
//
//   train/       epoch_loss, epoch_<metric>, epoch_learning_rate, epoch_images_per_second,
//                epoch_staleness_mean and _max (asynchronous jobs) by epoch; batch_loss,
//                batch_<metric> by step (update_freq); <layer>/<variable>/histogram by epoch
//                (histogram_freq); the graph
//   validation/  epoch_loss, epoch_<metric> by epoch; evaluation_loss_vs_iterations, ... by step
//
// One caller at a time; blocking. Each worker process writes files of its own. They are named after the job, so that
// the next one finds which epochs are there; each is there once. TensorBoard reads a folder's files in the order of
// their names, and never returns to one after it has seen a later one. Invariants:
//   1. Only the last file of a folder is written to: a worker that finds a later one than its own begins another, which
//      sorts after all that are there.
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
  // host: of this process, in the files' names.
  BoardLog(v1::TensorBoard options, std::string host) : options_(std::move(options)), host_(std::move(host)) {}

  // weights: the parameter space of now, for histograms; empty: none. now: seconds since 1970. Errors: name the file
  // and the reason.
  absl::Status Write(const v1::WriteSummaries& command, const Graph& graph, absl::Span<const float> weights,
                     double now);
  // Whether histograms of the newest of these epochs are wanted.
  bool WantsWeights(const v1::WriteSummaries& command) const;

 private:
  struct Log {
    std::optional<EventFile> file;
    int64_t next = 0;  // epochs before it are in the job's files
  };
  // So that log.file is the last one in its folder, for as long as the lock that is returned is held.
  absl::StatusOr<FileDescriptor> Open(const v1::WriteSummaries& command, const char* kind, double now, Log& log);
  std::string Prefix(const v1::WriteSummaries& command) const;

  const v1::TensorBoard options_;
  const std::string host_;
  Log train_, validation_;
};

}  // namespace cairn
