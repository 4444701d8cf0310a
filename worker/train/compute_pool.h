// ComputePool: the slot threads of a worker, shared by its jobs. JobModel: what a slot must know of a job to compute
// for it.
//
// Thread rule: any thread may Submit. A task runs on one slot thread, which hands it its own ProgramCache. The home of
// a task is the slot that has its program compiled and its next batch on the device. Invariants:
//   1. A slot runs one task at a time. Tasks of one priority start in the order of Submit, except that a slot prefers
//      tasks at home on it; a task is passed over at most kPassesMax times.
//   2. No task waits while a slot is idle, except for a home slot whose running task has announced its Ending.
//   3. Evaluation gets at least one of every kTrainingRun + 1 turns of a slot, so that neither starves the other.
//   4. A slot keeps the programs of at most kProgramsMax models, and after Purge none of a model that nobody holds.
// The queues hold at most one task for each own replica and each evaluation in progress.
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
  // What is computed: with several trained outputs the joined one (common/model/job_outputs.h), without texts
  // (ComputedGraph).
  std::shared_ptr<const Graph> graph;
  std::shared_ptr<const Graph> given;  // the same with the layers of texts, whose inputs are those of the data
  ProgramOptions options;
};
// options.batch_max is the most examples that a replica computes at a time.
absl::StatusOr<std::shared_ptr<const JobModel>> MakeJobModel(const v1::JobSpec& spec);
// The same model for batches whose inputs are of this element type.
std::shared_ptr<const JobModel> WithInputs(const JobModel& model, Element inputs);

// The compiled programs of one slot. Used on its thread alone.
class ProgramCache {
 public:
  ProgramCache(int slot, Backend& backend) : slot_(slot), backend_(backend) {}
  int slot() const { return slot_; }
  // Compiles the program at the first call for a model. The result is valid until the next call.
  absl::StatusOr<Program*> Get(const std::shared_ptr<const JobModel>& model);
  void DropGone();

 private:
  struct Entry {
    std::weak_ptr<const JobModel> model;
    std::unique_ptr<Program> program;
  };
  const int slot_;
  Backend& backend_;
  std::vector<Entry> entries_;  // the most recently used one last
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

  // home: the slot that last ran such a task (ProgramCache::slot), if any did. After Stop the task is dropped.
  void Submit(Priority priority, Task task, int home = kNoSlot);
  // Called by a running task that is about to end: a task that it submits with its own slot as the home waits for that
  // slot rather than run elsewhere.
  void Ending(int slot);
  // Makes every slot drop the programs of models that nobody holds any more.
  void Purge();
  // Waits for the running tasks and drops the waiting ones.
  void Stop();
  int slots() const { return slots_; }
  Backend& backend() const { return backend_; }

 private:
  struct Queued {
    Task task;
    int home = kNoSlot;
    int passed = 0;  // how many later tasks were taken before it
  };
  using Queue = std::deque<Queued>;
  struct Slot {
    enum class State { kIdle, kBusy, kEnding };
    State state = State::kIdle;
    int training_run = 0;  // training tasks in a row
    Task next;             // handed over by Submit
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
