// Goal: a probe measures steps of a replica's size and says why it measured none: a busy worker, a job that comes
// meanwhile, too little memory, a deadline, a fault of the data. One at a time; a worker that stops is not held up.
#include "worker/train/step_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "common/data/glyphs.h"
#include "common/model/job_check.h"
#include "google/protobuf/text_format.h"
#include "tests/unit/worker/fake_backend.h"
#include "worker/limits.h"

namespace cairn {
namespace {

using testing::HasSubstr;

// Waits at each step while `held`.
class HeldProgram : public IdleProgram {
 public:
  HeldProgram(std::atomic<bool>& held, std::atomic<int>& steps, absl::Notification* begun)
      : held_(held), steps_(steps), begun_(begun) {}
  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo&, absl::Span<const float>, absl::Span<float>,
                                      const GradientReady&) override {
    if (++steps_ == 1) begun_->Notify();
    while (held_) absl::SleepFor(absl::Milliseconds(1));
    BatchSums sums;
    sums.examples = static_cast<uint64_t>(batch.examples);
    return sums;
  }
  uint64_t memory_bytes() const override { return 4096; }

 private:
  std::atomic<bool>& held_;
  std::atomic<int>& steps_;
  absl::Notification* const begun_;
};

class HeldBackend : public IdleBackend {
 public:
  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph>, const ProgramOptions&) override {
    return std::make_unique<HeldProgram>(held, steps, &begun);
  }
  std::atomic<bool> held{false};
  std::atomic<int> steps{0};
  absl::Notification begun;
};

class StepProbeTest : public testing::Test {
 protected:
  StepProbeTest() {
    const std::string dir = testing::TempDir() + "/step_probe";
    EXPECT_TRUE(WriteGlyphs(dir, 60, 10, 1).ok());
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
        R"(model { layers { input { shape: [28, 28, 1] } } layers { flatten { } }
                   layers { dense { units: 10 activation: SOFTMAX } } }
           loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } optimizer { sgd { } learning_rate: 0.1 }
           batch_size: 12 replicas: 4 epochs: 2)",
        &spec_));
    spec_.mutable_data()->set_path(dir);
  }
  ~StepProbeTest() override { backend_.held = false; }

  v1::JobSpec Checked() const { return CheckJob(spec_)->spec; }
  StepProber::Services Services() {
    return {&pool_, &datasets_, 1, [this] { return idle_.load(); }, 0};
  }
  // Its answer.
  struct Answer {
    absl::Notification there;
    v1::StepProbe probe;
  };
  void Ask(StepProber& prober, Answer& answer, absl::Duration patience = absl::Seconds(60)) {
    prober.Probe(Checked(), absl::Now() + patience, [&answer](v1::StepProbe probe) {
      answer.probe = std::move(probe);
      answer.there.Notify();
    });
  }
  v1::StepProbe Measured(StepProber& prober, absl::Duration patience = absl::Seconds(60)) {
    Answer answer;
    Ask(prober, answer, patience);
    answer.there.WaitForNotification();
    return answer.probe;
  }

  RealClock clock_;
  std::atomic<bool> idle_{true};
  HeldBackend backend_;
  DatasetCache datasets_{clock_};
  ComputePool pool_{1, backend_};
  v1::JobSpec spec_;
};

TEST_F(StepProbeTest, MeasuresStepsOfAReplica) {
  StepProber prober(Services());
  const v1::StepProbe probe = Measured(prober);
  EXPECT_EQ(probe.not_measured(), "");
  EXPECT_EQ(probe.steps(), kProbeSteps);
  EXPECT_EQ(probe.examples(), 3) << "12 of 4 replicas";
  EXPECT_GE(probe.step_ms(), probe.data_ms());
  EXPECT_EQ(probe.program_bytes(), 4096u);
  EXPECT_EQ(backend_.steps, kProbeSteps + 1);
}

TEST_F(StepProbeTest, SaysWhyNothingWasMeasured) {
  idle_ = false;
  StepProber prober(Services());
  EXPECT_EQ(Measured(prober).not_measured(), "the worker computes for other jobs");
  idle_ = true;
  StepProber::Services small = Services();
  small.memory_bytes = 1000;
  StepProber poor(small);
  EXPECT_THAT(Measured(poor).not_measured(), HasSubstr("its variables and their gradients take"));
  EXPECT_EQ(backend_.steps, 0);
  spec_.mutable_data()->set_path("/nowhere");
  EXPECT_THAT(Measured(prober).not_measured(), HasSubstr("/nowhere"));
}

TEST_F(StepProbeTest, EndsAtItsDeadlineAndWhenAJobComes) {
  StepProber prober(Services());
  backend_.held = true;
  EXPECT_THAT(Measured(prober, absl::Milliseconds(1)).not_measured(), HasSubstr("took longer than a dry run waits"));
  backend_.held = false;
  Answer answer;
  StepProber other(Services());
  backend_.held = true;
  Ask(other, answer);
  backend_.begun.WaitForNotification();
  idle_ = false;
  backend_.held = false;
  answer.there.WaitForNotification();
  EXPECT_EQ(answer.probe.not_measured(), "the worker computes for other jobs");
}

TEST_F(StepProbeTest, OneAtATimeAndNoneHoldsUpAWorkerThatStops) {
  StepProber prober(Services());
  backend_.held = true;
  Answer first;
  Ask(prober, first);
  backend_.begun.WaitForNotification();
  EXPECT_EQ(Measured(prober).not_measured(), "the worker measures another job");
  prober.Stop();
  EXPECT_FALSE(first.there.HasBeenNotified());
}

}  // namespace
}  // namespace cairn
