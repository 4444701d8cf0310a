// SummaryWriter: the chief's files of JobSpec.callbacks: TensorBoard's events and the CSV logger's lines, on a thread
// of their own, so that neither the training nor the session waits for a disk.
//
// Thread rule: any thread. Commands of a job are carried out in order.
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
  // host: names this machine in the files' names. send: thread-safe.
  SummaryWriter(std::string host, Clock* clock, std::function<void(v1::NodeMessage)> send);
  ~SummaryWriter();

  // Answered by SummariesWritten.
  void Write(const v1::WriteSummaries& command);
  // The job is over here: its files are closed.
  void Forget(uint64_t job_id);
  void Stop();  // what is being written is finished

 private:
  struct Job;
  absl::Status WriteNow(const v1::WriteSummaries& command);

  const std::string host_;
  Clock* const clock_;
  const std::function<void(v1::NodeMessage)> send_;
  std::map<uint64_t, std::unique_ptr<Job>> jobs_;  // of the executor's thread
  SerialExecutor executor_;                        // last: ends before what it uses
};

}  // namespace cairn
