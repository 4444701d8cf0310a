// Goal: slots run all tasks, neither training nor evaluation starves, programs are compiled once a slot and dropped
// with their model.
#include "worker/compute_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

std::atomic<int> programs_alive{0};

class FakeProgram : public Program {
 public:
  FakeProgram() { ++programs_alive; }
  ~FakeProgram() override { --programs_alive; }
  absl::StatusOr<BatchSums> TrainStep(const Batch&, const StepInfo&, absl::Span<const float>, absl::Span<float>,
                                      const GradientReady&) override {
    return BatchSums();
  }
  absl::StatusOr<BatchSums> Evaluate(const Batch&, absl::Span<const float>) override { return BatchSums(); }
  absl::StatusOr<Buffer> Predict(const Batch&, absl::Span<const float>) override { return Buffer(); }
  uint64_t memory_bytes() const override { return 0; }
};

class FakeBackend : public Backend {
 public:
  std::string name() const override { return "fake"; }
  std::string device() const override { return "cpu"; }
  std::string fingerprint() const override { return "none"; }
  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph>, const ProgramOptions&) override {
    ++compiled;
    return std::make_unique<FakeProgram>();
  }
  std::atomic<int> compiled{0};
};

TEST(ComputePoolTest, EvaluationGetsItsTurnAndTrainingTheRest) {
  FakeBackend backend;
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

TEST(ComputePoolTest, CompilesOnceAndDropsWithTheModel) {
  FakeBackend backend;
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
  model.graph = std::make_shared<const Graph>(Graph::Build(FromText<v1::Model>("layers { input { shape: 2 } } layers { flatten {} }")).value());
  auto a = std::make_shared<const JobModel>(model), b = std::make_shared<const JobModel>(model), c = std::make_shared<const JobModel>(model);
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
