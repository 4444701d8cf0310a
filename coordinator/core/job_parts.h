// What each part of the core keeps for one job (component.h). Job holds one of each: those of this header by itself,
// those of the partitions, the workers and the outputs in a struct of that name (job_partitions.h, job_workers.h,
// job_outputs.h).
//
// Each struct has one owner, the part that its comment names first: only the owner writes the fields (ctest job_parts).
// Where a decision of another part invalidates state (a new generation, a fall back), that part calls a function of the
// struct. LoadJob fills all of them. Fields marked "stored" survive a restart of the coordinator (StoredJob); the rest
// is learned again from the nodes, or starts over.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/storage.pb.h"
#include "common/base/ids.h"

namespace cairn {

// Reasons: JobStatus.reason.
struct JobReason {
  absl::Time since;
  bool logged = false;
};

// Submissions: QUEUED.
struct JobQueueing {
  std::string request_key;  // stored
  int64_t space_size = 0;   // of the parameters
  bool inspecting = false;  // a worker is looking at the data
  absl::Time inspect_after = absl::InfinitePast();
};

// Restores: STARTING with partitions to fill.
struct JobRestoring {
  std::vector<std::string> from;  // stored: checkpoints, tried in turn; empty: nothing to fill, or done
  NodeName worker;                // the one that was asked; empty: none
  uint64_t request = 0;
  absl::Time until = absl::InfinitePast();
  absl::Time not_before = absl::InfinitePast();
  int attempts = 0;
  uint64_t filled_in = 0;  // the generation in which all partitions are filled

  void FillFrom(std::string checkpoint) { from = {std::move(checkpoint)}; }
  // Another worker is to be asked; an answer of the present one is ignored.
  void AskAnew() { worker.clear(); }
  void End() { from.clear(); }
};

// Restores: at the end of the job, replaces the last weights by those of the best epoch. All but given_up are stored.
struct JobBest {
  bool restoring = false;  // all steps are done; JobRestoring.from names the weights that the job ends with
  bool restored = false;   // the weights are those of the best epoch, not of the last step
  bool given_up = false;   // the best weights could not be read, and are not tried again

  // All partitions are filled. False: they were filled for another reason.
  bool End() {
    restored = restored || restoring;
    return std::exchange(restoring, false);
  }
};

// Epochs, OpenEpochs (job_facts.h): decisions of callbacks. All but the last two are stored.
struct JobDecisions {
  google::protobuf::RepeatedPtrField<v1::StoredCallback> callbacks;
  std::vector<float> learning_rates;
  bool stopped_early = false;
  absl::Time checkpoint_wanted_since = absl::InfiniteFuture();  // the next decision has waited for a checkpoint
  int files_of_epoch = -1;                                      // the last epoch whose model files were requested

  // Epochs are repeated, and their checkpoints written again.
  void WaitAnew() { checkpoint_wanted_since = absl::InfiniteFuture(); }
};

// JobRuns: FINALIZING.
struct JobEnd {
  std::vector<uint64_t> versions;        // stored
  NodeName worker;                       // the one asked for the digest; empty: none
  absl::Time at = absl::InfinitePast();  // with a worker: its deadline; without: no request before this time
  int attempts = 0;

  // Ignores the answer of the worker that was asked, and asks one now. No effect where none was asked.
  void AskAnew(absl::Time now) {
    if (worker.empty()) return;
    worker.clear();
    at = now;
  }
  // Steps are to be repeated.
  void BeginAnew(absl::Time now) {
    versions.clear();
    worker.clear();
    attempts = 0;
    at = now;
  }
  void Forget() { worker.clear(); }
};

}  // namespace cairn
