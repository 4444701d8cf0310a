// What ClusterDriver writes to: the session of a node, the watcher of a job, the caller of a prediction. The services
// and the simulator implement them.
//
// Thread rule: called on the driver's executor; they must not block.
#pragma once

#include "absl/status/status.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/job_status.pb.h"

namespace cairn {

class SessionSink {
 public:
  virtual ~SessionSink() = default;
  virtual void Send(v1::CoordinatorMessage message) = 0;
  virtual void Close(const absl::Status& reason) = 0;
};

class WatchSink {
 public:
  virtual ~WatchSink() = default;
  virtual void Write(v1::JobStatus status) = 0;  // answered by ClusterDriver::WatcherWritten
  virtual void Recheck() {}                      // tokens have changed: it ends if its own was revoked
  virtual void Finish(const absl::Status& status) = 0;
};

// The caller of a prediction.
class PredictionSink {
 public:
  virtual ~PredictionSink() = default;
  virtual void Write(v1::PredictResponse part) = 0;  // no other Write before ClusterDriver::PredictionTaken
  virtual void Finish(const absl::Status& status) = 0;
};

}  // namespace cairn
