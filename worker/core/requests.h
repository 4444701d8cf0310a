// Requests: the requests of a job to its partitions' ps: how they are named, sent and sent again.
//
// Part of Context. Invariants:
//   1. The token of a request is of its last Send; an answer with another one is not its answer.
//   2. StepOutput::wake() is not later than the time at which a request that is kWaiting is due.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/tensor/frame.h"
#include "worker/core/assigned_job.h"
#include "worker/core/replica_core.h"
#include "worker/core/step_output.h"

namespace cairn::replica {

// A request to one ps. Its owner knows its content and builds the frame anew each time it is sent.
struct Request {
  enum class State : uint8_t {
    kIdle,     // not needed (yet, or any more)
    kSent,     // in flight
    kWaiting,  // failed; retried at retry_at
  };
  State state = State::kIdle;
  int attempt = 0;
  uint64_t token = 0;       // of the last Send
  uint64_t generation = 0;  // at the last Send
  absl::Time retry_at;
};

struct RequestName {
  uint32_t owner = 0, partition = 0;
};
RequestName NameOf(uint64_t token);

// The numbers given out so far, by kind. They go on when the worker drops the job and gets it again, so that a late
// answer to the former life is not taken for one to the present life.
struct Numbers {
  uint64_t requests = 0, works = 0, joints = 0, checkpoints = 0;
};

// The pauses before retries: exponential, with jitter.
class Backoff {
 public:
  explicit Backoff(const ReplicaCoreOptions& options)
      : min_(options.retry_min), max_(options.retry_max), seed_(options.jitter_seed) {}
  // Jobs have jitter of their own.
  void BeginJob(uint64_t job) { drawn_ = job << 20; }
  // attempt: how often it has failed before.
  absl::Duration Pause(int attempt);
  absl::Duration min() const { return min_; }

 private:
  const absl::Duration min_, max_;
  const uint64_t seed_;
  uint64_t drawn_ = 0;
};

class Requests {
 public:
  // All outlive it.
  Requests(const Assignment& assignment, Numbers& numbers, Backoff& backoff, StepOutput& output)
      : assignment_(assignment), numbers_(numbers), backoff_(backoff), output_(output) {}

  // Sends the frame to its partition's ps.
  void Send(Request& request, uint32_t owner, Frame frame);
  // After an error other than "gone": backs off and retries. INVALID_ARGUMENT: the job fails.
  void Retry(Request& request, uint32_t partition, const absl::Status& status);
  void RetryAfter(Request& request, absl::Duration pause);
  // Whether a waiting request is due; if it is not, the core is woken when it is.
  bool Due(const Request& request);
  // Whether an assignment that just arrived makes the request worth sending at once. moved: its partition's ps changed;
  // raised: the generation rose.
  static bool ResendAtOnce(const Request& request, bool moved, bool raised);

 private:
  const Assignment& assignment_;
  Numbers& numbers_;
  Backoff& backoff_;
  StepOutput& output_;
};

}  // namespace cairn::replica
