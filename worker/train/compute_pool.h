// ComputePool: the slot threads of a worker, shared by its jobs. JobModel: what a slot has to know of a job to compute
// for it.
//
// Thread rule: any thread may Submit. A task runs on one slot thread, which hands it its own ProgramCache. A task is at
// home on the slot that has what it needs: its program is compiled there, its device has the next batch. Invariants:
//   1. Each slot runs one task at a time; tasks of one priority start in the order of Submit, but that a slot takes
//      those first that are at home on it. Each is passed over kPassesMax times at most.
//   2. No task waits while a slot is idle, but for one whose home has only an Ending left of the task before.
//   3. Evaluation gets at least one of every kTrainingRun + 1 turns of a slot, so that neither starves the other.
//   4. A slot keeps the programs of at most kProgramsMax models, and none of a model that is gone after Purge.
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
  std::shared_ptr<const Graph> graph;  // of several trained outputs: the joined one (common/model/job_outputs.h)
  ProgramOptions options;
};
// batch_max: the largest run of examples that a replica gets.
absl::StatusOr<std::shared_ptr<const JobModel>> MakeJobModel(const v1::JobSpec& spec);
// The same for batches of `inputs`.
std::shared_ptr<const JobModel> WithInputs(const JobModel& model, Element inputs);

// Of one slot thread.
class ProgramCache {
 public:
  ProgramCache(int slot, Backend& backend) : slot_(slot), backend_(backend) {}
  int slot() const { return slot_; }
  // Compiles at the first call for a model. The program lives until the next call.
  absl::StatusOr<Program*> Get(const std::shared_ptr<const JobModel>& model);
  void DropGone();

 private:
  struct Entry {
    std::weak_ptr<const JobModel> model;
    std::unique_ptr<Program> program;
  };
  const int slot_;
  Backend& backend_;
  std::vector<Entry> entries_;  // last used at the end
};

class ComputePool {
 public:
  enum class Priority { kTraining, kEvaluation };
  using Task = std::function<void(ProgramCache&)>;
  static constexpr int kNoSlot = -1;

  ComputePool(int slots, Backend& backend);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  // home: the slot that ran such a task last (ProgramCache::slot), if any did. Dropped after Stop.
  void Submit(Priority priority, Task task, int home = kNoSlot);
  // Of a running task: what is left of it is short. A task that it submits itself, at home there, waits for its end
  // rather than go elsewhere.
  void Ending(int slot);
  // Lets every slot drop the programs of models that nobody holds any more.
  void Purge();
  // Waits for the tasks that run; the waiting ones are dropped.
  void Stop();
  int slots() const { return slots_; }
  Backend& backend() const { return backend_; }

 private:
  struct Queued {
    Task task;
    int home = kNoSlot;
    int passed = 0;  // later ones that were taken before it
  };
  using Queue = std::deque<Queued>;
  struct Slot {
    enum class State { kIdle, kBusy, kEnding };
    State state = State::kIdle;
    int training_run = 0;  // training tasks in a row
    Task next;             // handed to it by Submit
    Priority next_priority = Priority::kTraining;
    absl::CondVar wake;
  };

  void Loop(int slot);
  int SlotFor(int home) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  Task Take(int slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // null: there is none
  static Task TakeFrom(Queue& queue, int slot);

  const int slots_;
  Backend& backend_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t purge_ ABSL_GUARDED_BY(mutex_) = 0;
  Queue training_ ABSL_GUARDED_BY(mutex_), evaluation_ ABSL_GUARDED_BY(mutex_);
  std::vector<Slot> states_ ABSL_GUARDED_BY(mutex_);  // by slot
  std::vector<std::thread> threads_;
};

}  // namespace cairn
