// Access to a ps' partitions: PsConnection (Exchange streams, asynchronous) and PullVariables (a whole job, blocking).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "common/base/trace.h"
#include "common/tensor/frame.h"

namespace cairn {

class SharedArena;

struct PsConnectionOptions {
  size_t outstanding_bytes_max = size_t{256} << 20;  // in flight; beyond that Send fails with RESOURCE_EXHAUSTED
  absl::Duration request_timeout =
      absl::Seconds(0);  // 0: none (a barrier may wait long); the stream's keepalive detects dead peers
  // Time between pings and for their answer; a missed keepalive ends the stream.
  absl::Duration keepalive_interval = absl::Seconds(1);
  absl::Duration keepalive_timeout = absl::Seconds(2);
  // Streams over which partitions are spread, each on its own channel, opened on first use. gRPC serves one
  // channel on one core at a time.
  int streams = 2;
  bool error_frames =
      false;  // deliver an ERROR as its frame, not as its status; a status then means that the stream is gone
  // Exchange frames through shared memory with a ps on this host that offers it, in place of its Unix socket. Worth it
  // for connections that last.
  bool shared_memory = false;
  // The ps reads payloads in it where they are; null: none. Outlives the connection.
  const SharedArena* arena = nullptr;
  TraceRecorder* trace = nullptr;  // gets the times of requests of jobs that are traced; null: none. Outlives it
};

// Whether the same request may succeed later, at this ps or at the one that serves then.
inline bool IsRetryable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
}

// One connection to one ps. Thread-safe.
//   1. Every request's `done` runs exactly once, with VALUES, ACK or the error, on a thread of gRPC or of the
//      connection, and never inside Send. Callbacks of different partitions may run concurrently.
//   2. When a stream breaks, all its requests in flight end with UNAVAILABLE; the next Send opens a new stream
//      (back-off with jitter, at most 1 s; a Send within the back-off is delayed until it is over). Nothing is
//      retried automatically.
//   3. Requests for one partition stay in order.
class PsConnection {
 public:
  using Done = std::function<void(absl::StatusOr<Frame>)>;
  using OnTensor = std::function<void(Frame)>;

  // address: "host:port", or "host:port,unix:/path"; the socket is used if the file exists and accepts connections.
  PsConnection(std::string address, const PsConnectionOptions& options);
  ~PsConnection();  // ends requests in flight with CANCELLED and waits for the callbacks
  // Sets request_id and splits the frame into chunks.
  void Send(Frame request, Done done);
  // One request of several whole frames: the tensors of an IMAGE, in order.
  void Send(std::vector<Frame> request, Done done);
  // Sends a SNAPSHOT. on_tensor gets each IMAGE frame of the answer, in order, on such a thread; then `done` gets the
  // fields of the last one without its payload. If the request ends early (error, Close), an on_tensor may still be
  // running when `done` runs.
  void Snapshot(Frame request, OnTensor on_tensor, Done done);
  // Whether a stream is open over a connection that answers keepalives: the ps process is alive, even if it does not
  // answer requests.
  bool connected() const;

 private:
  std::vector<std::shared_ptr<class PsStream>> streams_;  // a partition always uses the same one
};

struct PulledVariables {
  Buffer values;                   // float32, the whole parameter space
  uint64_t version = 0;            // lowest of all partitions
  uint64_t version_max = 0;        // highest; equal to `version` if consistent
  std::vector<uint64_t> versions;  // by route
};

// Pulls all partitions of a job. consistent: at one version (synchronous jobs), with retries while the job is training.
// moves_on: whether it may be training; if not, partitions at different versions are an error at once.
// Errors: UNAVAILABLE, DEADLINE_EXCEEDED, NOT_FOUND name the ps; FAILED_PRECONDITION names each ps with its partitions
// and their versions.
absl::StatusOr<PulledVariables> PullVariables(uint64_t job_id, const std::vector<v1::Route>& routes, bool consistent,
                                              absl::Duration timeout, bool moves_on = true);

}  // namespace cairn
