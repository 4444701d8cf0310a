// ComputePool: the slot threads of a worker, shared by its jobs. JobModel: what a slot has to know of a job to compute
// for it.
//
// Thread rule: any thread may Submit. A task runs on one slot thread, which hands it its own ProgramCache. Invariants:
//   1. Each slot runs one task at a time; tasks of one priority start in the order of Submit.
//   2. Evaluation gets at least one of every kTrainingRun + 1 turns of a slot, so that neither starves the other.
//   3. A slot keeps the programs of at most kProgramsMax models, and none of a model that is gone after Purge.
// The queue holds at most one task for each own replica and each evaluation under way.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/job.pb.h"
#include "common/model/graph.h"
#include "worker/backend/backend.h"

namespace cairn {

struct JobModel {
  v1::JobSpec spec;
  std::shared_ptr<const Graph> graph;
  ProgramOptions options;
};
// batch_max: the largest run of examples that a replica gets.
absl::StatusOr<std::shared_ptr<const JobModel>> MakeJobModel(const v1::JobSpec& spec);

// Of one slot thread.
class ProgramCache {
 public:
  explicit ProgramCache(Backend& backend) : backend_(backend) {}
  // Compiles at the first call for a model. The program lives until the next call.
  absl::StatusOr<Program*> Get(const std::shared_ptr<const JobModel>& model);
  void DropGone();

 private:
  struct Entry {
    std::weak_ptr<const JobModel> model;
    std::unique_ptr<Program> program;
  };
  Backend& backend_;
  std::vector<Entry> entries_;  // last used at the end
};

class ComputePool {
 public:
  enum class Priority { kTraining, kEvaluation };
  using Task = std::function<void(ProgramCache&)>;

  ComputePool(int slots, Backend& backend);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  void Submit(Priority priority, Task task);  // dropped after Stop
  // Lets every slot drop the programs of models that nobody holds any more.
  void Purge();
  // Waits for the tasks that run; the waiting ones are dropped.
  void Stop();
  int slots() const { return slots_; }

 private:
  void Loop(int slot);
  bool Take(int& training_run, Task& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int slots_;
  Backend& backend_;
  absl::Mutex mutex_;
  absl::CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t purge_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Task> training_ ABSL_GUARDED_BY(mutex_), evaluation_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace cairn
