// Access to a ps' partitions: PsConnection (Exchange streams, asynchronous) and PullVariables (all of a job, blocking).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "common/tensor/frame.h"

namespace cairn {

struct PsConnectionOptions {
  size_t outstanding_bytes_max = size_t{256} << 20;  // sent and not answered; Send fails beyond with RESOURCE_EXHAUSTED
  absl::Duration request_timeout =
      absl::Seconds(0);  // 0: none of its own (a barrier may wait long); the stream's keepalive finds dead peers
  // Each missed keepalive ends the stream: time between pings and for the answer.
  absl::Duration keepalive_interval = absl::Seconds(1);
  absl::Duration keepalive_timeout = absl::Seconds(2);
  // Streams, each on a channel of its own, over which partitions are spread; opened when first used. What gRPC does for
  // one channel it does on one core at a time.
  int streams = 2;
  bool error_frames =
      false;  // an ERROR comes as its frame, not as its status: a status then means that the stream is gone
};

// Of a ps' answer: the same request may succeed later, there or at whoever serves then.
inline bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

// One connection to one ps. Thread-safe.
//   1. Every request's `done` runs exactly once, with VALUES, ACK or the error, on a gRPC thread and never inside Send.
//      Those of different partitions may run at the same time.
//   2. After a broken stream all its unanswered requests end with UNAVAILABLE; the next Send opens a new stream
//      (back-off with jitter, at most 1 s; a Send within the back-off time waits it out). Nothing is sent again by
//      itself.
//   3. Requests for one partition stay in order.
class PsConnection {
 public:
  using Done = std::function<void(absl::StatusOr<Frame>)>;
  using OnTensor = std::function<void(Frame)>;

  // address: "host:port", or "host:port,unix:/path"; the socket is used where the file exists and is connectable.
  PsConnection(std::string address, const PsConnectionOptions& options);
  ~PsConnection();  // ends what is open with CANCELLED and waits for the callbacks
  // Fills in request_id; splits into chunks.
  void Send(Frame request, Done done);
  // One request of several whole frames: the tensors of an IMAGE, in order.
  void Send(std::vector<Frame> request, Done done);
  // A SNAPSHOT: on_tensor gets each IMAGE frame of the answer, in order, on a gRPC thread; then `done` the last one's
  // fields without its payload. Where the request ends early (error, Close), one on_tensor may still be running when
  // `done` runs.
  void Snapshot(Frame request, OnTensor on_tensor, Done done);
  // A stream is open over a connection that answers keepalives: the ps' process is there, whether or not it answers
  // requests.
  bool connected() const;

 private:
  std::vector<std::shared_ptr<class PsStream>> streams_;  // a partition has its stream
};

struct PulledVariables {
  Buffer values;                   // float32, the whole parameter space
  uint64_t version = 0;            // lowest among partitions
  uint64_t version_max = 0;        // equal to `version` where consistent
  std::vector<uint64_t> versions;  // by route
};

// All partitions of a job. consistent: of one version (synchronous jobs; tries again while the job moves on). moves_on:
// it may; else partitions at different versions are an error at once.
// Errors: UNAVAILABLE, DEADLINE_EXCEEDED, NOT_FOUND name the ps; FAILED_PRECONDITION names each ps with its partitions
// and their versions.
absl::StatusOr<PulledVariables> PullVariables(uint64_t job_id, const std::vector<v1::Route>& routes, bool consistent,
                                              absl::Duration timeout, bool moves_on = true);

}  // namespace cairn
