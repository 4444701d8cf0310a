// StepProber: measures how long a step of a replica takes on this worker, for a job that is checked and not submitted.
//
// Thread-safe. A probe opens the data, compiles the program and computes on a slot, after training. Invariants:
//   1. One probe at a time; a second one is answered at once that it was not measured.
//   2. Each is answered once, at its deadline at the latest; a step that still runs then ends by itself.
//   3. A worker that trains measures nothing, and a probe ends with its current step once there is a job to train.
#pragma once

#include <atomic>
#include <functional>

#include "absl/time/time.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/executor.h"
#include "worker/train/compute_pool.h"
#include "worker/train/dataset_cache.h"

namespace cairn {

class StepProber {
 public:
  // pool, datasets: outlive the tasks of the pool.
  struct Services {
    ComputePool* pool = nullptr;
    DatasetCache* datasets = nullptr;
    int decode_threads = 1;
    std::function<bool()> is_idle;  // whether the worker trains nothing; thread-safe
    uint64_t memory_bytes = 0;      // that a probe's variables may take; 0: half of what the machine has free
  };
  using Done = std::function<void(v1::StepProbe)>;

  explicit StepProber(Services services) : services_(std::move(services)) {}
  ~StepProber() { Stop(); }

  // spec: with all its defaults. done: on any thread; not called after Stop.
  void Probe(const v1::JobSpec& spec, absl::Time deadline, Done done);
  void Stop();

 private:
  const Services services_;
  std::atomic<bool> busy_{false}, stopping_{false};
  SerialExecutor waiting_{"probe"};
};

}  // namespace cairn
