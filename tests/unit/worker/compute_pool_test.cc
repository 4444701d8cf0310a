// Goal: slots run all tasks; a task runs at home if that costs no waiting; training, evaluation and tasks without a
// home do not starve; programs are compiled once a slot and dropped with their model.
#include "worker/train/compute_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "tests/unit/model/model_text.h"
#include "tests/unit/worker/fake_backend.h"

namespace cairn {
namespace {

std::atomic<int> programs_alive{0};

class CountedProgram : public IdleProgram {
 public:
  CountedProgram() { ++programs_alive; }
  ~CountedProgram() override { --programs_alive; }
};

class CountingBackend : public IdleBackend {
 public:
  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph>, const ProgramOptions&) override {
    ++compiled;
    return std::make_unique<CountedProgram>();
  }
  std::atomic<int> compiled{0};
};

TEST(ComputePoolTest, EvaluationGetsItsTurnAndTrainingTheRest) {
  CountingBackend backend;
  ComputePool pool(1, backend);
  absl::Notification begin;
  std::string order;
  absl::BlockingCounter done(12);
  pool.Submit(ComputePool::Priority::kTraining, [&](ProgramCache&) { begin.WaitForNotification(); });
  for (int i = 0; i < 10; ++i) {
    pool.Submit(ComputePool::Priority::kTraining, [&](ProgramCache&) { order += 't', done.DecrementCount(); });
  }
  for (int i = 0; i < 2; ++i) {
    pool.Submit(ComputePool::Priority::kEvaluation, [&](ProgramCache&) { order += 'e', done.DecrementCount(); });
  }
  begin.Notify();
  done.Wait();
  EXPECT_EQ(order, "tttettttettt");
}

constexpr auto kTraining = ComputePool::Priority::kTraining;

// A task that holds its slot until it is released.
class Block {
 public:
  Block(ComputePool& pool, int home) {
    pool.Submit(
        kTraining,
        [this](ProgramCache& programs) {
          slot_ = programs.slot();
          runs_.Notify();
          go_.WaitForNotification();
          over_.Notify();
        },
        home);
    runs_.WaitForNotification();
  }
  ~Block() {
    if (!go_.HasBeenNotified()) go_.Notify();
    over_.WaitForNotification();
  }
  int slot() const { return slot_; }
  void LetGo() { go_.Notify(); }

 private:
  int slot_ = -1;
  absl::Notification runs_, go_, over_;
};

TEST(ComputePoolTest, ATaskRunsAtHomeOrWhereASlotIsIdle) {
  CountingBackend backend;
  ComputePool pool(3, backend);
  Block one(pool, 1), other(pool, 1), third(pool, 17);
  EXPECT_EQ(one.slot(), 1);
  EXPECT_EQ(other.slot(), 0) << "does not wait for its home";
  EXPECT_EQ(third.slot(), 2) << "there is no such slot";
}

TEST(ComputePoolTest, ASlotTakesFirstWhatIsAtHomeThereAndThenWhatWaits) {
  CountingBackend backend;
  ComputePool pool(2, backend);
  Block first(pool, 0), second(pool, 1);
  std::string order;
  absl::BlockingCounter done(17);
  const auto submit = [&](const std::string& name, int home) {
    pool.Submit(
        kTraining, [&, name](ProgramCache&) { order += name, done.DecrementCount(); }, home);
  };
  submit("1", 1);  // its home stays busy
  submit("-", ComputePool::kNoSlot);
  for (int i = 0; i < 15; ++i) submit("0", 0);
  first.LetGo();
  done.Wait();
  EXPECT_EQ(order, "000000001-0000000") << "passed over eight times at most";
}

TEST(ComputePoolTest, WhatATaskSubmitsAtItsEndStaysAtHome) {
  CountingBackend backend;
  for (const bool ending : {true, false}) {
    ComputePool pool(2, backend);
    absl::Notification ran;
    int slot = -1, after = -1;
    pool.Submit(
        kTraining,
        [&](ProgramCache& programs) {
          slot = programs.slot();
          if (ending) pool.Ending(slot);
          pool.Submit(
              kTraining,
              [&](ProgramCache& next) {
                after = next.slot();
                ran.Notify();
              },
              slot);
          if (!ending) ran.WaitForNotification();  // the other slot has it, though this one is busy
        },
        0);
    ran.WaitForNotification();
    EXPECT_EQ(slot, 0);
    EXPECT_EQ(after, ending ? 0 : 1);
  }
}

TEST(ComputePoolTest, CompilesOnceAndDropsWithTheModel) {
  CountingBackend backend;
  ComputePool pool(1, backend);
  auto run = [&](std::shared_ptr<const JobModel> model) {
    absl::Notification done;
    pool.Submit(ComputePool::Priority::kTraining, [&](ProgramCache& cache) {
      EXPECT_TRUE(cache.Get(model).ok());
      done.Notify();
    });
    done.WaitForNotification();
  };
  JobModel model;
  model.graph = std::make_shared<const Graph>(
      Graph::Build(FromText<v1::Model>("layers { input { shape: 2 } } layers { flatten {} }")).value());
  auto a = std::make_shared<const JobModel>(model), b = std::make_shared<const JobModel>(model),
       c = std::make_shared<const JobModel>(model);
  run(a);
  run(b);
  run(a);
  EXPECT_EQ(backend.compiled, 2);
  run(c);  // b was used longest ago
  run(a);
  EXPECT_EQ(backend.compiled, 3);
  run(b);
  EXPECT_EQ(backend.compiled, 4);
  EXPECT_EQ(programs_alive, 2);
  b.reset();
  run(a);
  EXPECT_EQ(programs_alive, 1);
  pool.Stop();
  EXPECT_EQ(programs_alive, 0);
}

TEST(ComputePoolTest, AJobWithoutAModelIsRefused) {
  v1::JobSpec spec;
  EXPECT_EQ(MakeJobModel(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec.set_replicas(2);
  spec.set_batch_size(4);
  EXPECT_FALSE(MakeJobModel(spec).ok());
}

}  // namespace
}  // namespace cairn
