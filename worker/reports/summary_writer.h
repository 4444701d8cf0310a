// SummaryWriter: writes the chief's files for JobSpec.callbacks (TensorBoard events, CSV lines) on a thread of its own,
// so that neither training nor the session waits for the disk.
//
// Thread rule: any thread. A job's commands are carried out in order.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cairn/v1/cluster.pb.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/status.h"

namespace cairn {

class SummaryWriter {
 public:
  // host: this machine's name, part of the file names. send: thread-safe.
  SummaryWriter(std::string host, Clock* clock, std::function<void(v1::NodeMessage)> send);
  ~SummaryWriter();

  // Answered by SummariesWritten.
  void Write(const v1::WriteSummaries& command);
  // The job has ended here: closes its files.
  void Forget(uint64_t job_id);
  void Stop();  // finishes the write in progress

 private:
  struct Job;
  absl::Status WriteNow(const v1::WriteSummaries& command);

  const std::string host_;
  Clock* const clock_;
  const std::function<void(v1::NodeMessage)> send_;
  std::map<uint64_t, std::unique_ptr<Job>> jobs_;  // used on the executor's thread only
  SerialExecutor executor_;                        // last: destroyed before the members that it uses
};

}  // namespace cairn
