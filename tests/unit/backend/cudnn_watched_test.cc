// Goal: a device that fails or hangs costs the programs on it and no others: the step that noticed and all later calls
// say why, at once; the backend says so; nothing waits for it or frees its memory any more; and a step is waited for as
// long as suits the steps before it, whatever else took time then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/backend/beside_reference.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "worker/backend/cudnn/gpu_backend.h"
#include "worker/backend/cudnn/program.h"
#include "worker/backend/cudnn/watched.h"

namespace cairn {
namespace {

using cudnn::HostMachine;
using testing::HasSubstr;

constexpr absl::Duration kShort = absl::Seconds(1), kLong = absl::Minutes(3);

TEST(StepPatienceTest, TenTimesTheSlowestStepAndAtLeastAMinute) {
  EXPECT_EQ(cudnn::StepPatience(/*first=*/true, absl::ZeroDuration()), absl::Minutes(10));
  EXPECT_EQ(cudnn::StepPatience(/*first=*/true, kShort), absl::Minutes(10));
  EXPECT_EQ(cudnn::StepPatience(/*first=*/true, kLong), absl::Minutes(10));
  EXPECT_EQ(cudnn::StepPatience(/*first=*/false, kShort), absl::Minutes(1));
  EXPECT_EQ(cudnn::StepPatience(/*first=*/false, absl::Seconds(9)), absl::Seconds(90));
  EXPECT_EQ(cudnn::StepPatience(/*first=*/false, kLong), absl::Minutes(10)) << "no longer than a first step";
}

// What a device does from now on, and how long it was waited for.
struct Condition {
  absl::Status waits;
  std::vector<absl::Duration> patience;
  int waits_for_all = 0, allocations = 0, freed = 0, waited_at_end = 0;
  std::list<cudnn::Block> memory;  // outlives its owners, as that of a lost device does
};

class TroubledMachine : public HostMachine {
 public:
  TroubledMachine(const cudnn::Precision& precision, int device, Condition* condition)
      : HostMachine(precision, Copies::kLate, nullptr, nullptr, device), condition_(condition) {}
  // As for a GPU: waits for its streams, except those of a lost device.
  ~TroubledMachine() override {
    if (!health().lost()) ++condition_->waited_at_end;
  }
  absl::StatusOr<cudnn::Block> Allocate(int64_t bytes) override {
    ++condition_->allocations;
    CAIRN_ASSIGN_OR_RETURN(cudnn::Block block, HostMachine::Allocate(bytes));
    void* const data = block.data();
    condition_->memory.push_back(std::move(block));
    return Own(data, bytes, [condition = condition_](void*) { ++condition->freed; });
  }
  absl::Status WaitFor(int signal, absl::Duration patience) override {
    condition_->patience.push_back(patience);
    return condition_->waits.ok() ? HostMachine::WaitFor(signal, patience) : condition_->waits;
  }
  absl::Status WaitForAll(absl::Duration patience) override {
    ++condition_->waits_for_all;
    const absl::Status done = HostMachine::WaitForAll(patience);
    return condition_->waits.ok() ? done : condition_->waits;
  }

 private:
  Condition* const condition_;
};

class WatchedTest : public testing::Test {
 protected:
  WatchedTest() : beside_({"conv", Between("")}, 4), batch_(CaseBatch(*beside_.graph(), beside_.options().loss, 4, 1)) {
    backend_ = cudnn::MakeGpuBackend(
        {{.index = 0, .name = "A", .fingerprint = "f"}, {.index = 1, .name = "B", .fingerprint = "f"}}, {},
        [this](const cudnn::DeviceInfo& device, const cudnn::Precision& precision, cudnn::Tuner*) {
          return std::make_unique<TroubledMachine>(precision, device.index, &conditions_[device.index]);
        });
    // A thread's programs are on one device.
    for (int device : {0, 1}) std::thread([&] { programs_[device] = Compile(); }).join();
    EXPECT_GT(conditions_[0].allocations, 0);
    EXPECT_GT(conditions_[1].allocations, 0);
  }

  std::unique_ptr<Program> Compile() {
    auto program = backend_->Compile(beside_.graph(), beside_.options());
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? *std::move(program) : nullptr;
  }
  absl::Status Train(int device) {
    std::vector<float> gradient(beside_.graph()->space_size());
    return programs_[device]->TrainStep(batch_, {}, beside_.values(), absl::MakeSpan(gradient), nullptr).status();
  }

  BesideReference beside_;
  const Batch batch_;
  Condition conditions_[2];
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Program> programs_[2];
};

TEST_F(WatchedTest, AHungDeviceIsLostAfterABoundThatSuitsItsSteps) {
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(Train(0).ok());
  ASSERT_TRUE(Train(1).ok());
  Condition& device = conditions_[0];
  EXPECT_EQ(device.patience.front(), cudnn::kPatience) << "the first step";
  EXPECT_EQ(device.patience.back(), cudnn::kPatienceMin) << "steps of milliseconds";
  device.waits = absl::DeadlineExceededError("A: a step does not end");
  const absl::Status hung = Train(0);
  EXPECT_EQ(hung.code(), absl::StatusCode::kUnavailable) << hung << ": not the end of the job";
  EXPECT_THAT(std::string(hung.message()), HasSubstr("GPU 0 is lost: waited for 1m, the slowest step before took "));
  EXPECT_THAT(std::string(hung.message()), HasSubstr("A: a step does not end"));
  EXPECT_EQ(backend_->health(), hung);
  // Nothing waits for it any more.
  const size_t waits = device.patience.size();
  const int waits_for_all = device.waits_for_all;
  EXPECT_EQ(Train(0), hung);
  EXPECT_EQ(programs_[0]->Evaluate(batch_, beside_.values()).status(), hung);
  EXPECT_EQ(programs_[0]->Predict(batch_, beside_.values()).status(), hung);
  programs_[0]->Prefetch(batch_);
  programs_[0].reset();
  EXPECT_EQ(device.patience.size(), waits);
  EXPECT_EQ(device.waits_for_all, waits_for_all);
  EXPECT_TRUE(Train(1).ok()) << "the other device";
}

TEST_F(WatchedTest, ALostDeviceGetsNoMorePrograms) {
  ASSERT_TRUE(Train(0).ok());
  ASSERT_TRUE(Train(1).ok());
  EXPECT_TRUE(backend_->health().ok());
  conditions_[1].waits = absl::UnavailableError("an illegal address");
  EXPECT_EQ(Train(1), absl::UnavailableError("GPU 1 is lost: an illegal address"));
  EXPECT_EQ(backend_->health(), absl::UnavailableError("GPU 1 is lost: an illegal address"));
  conditions_[1].waits = absl::OkStatus();
  EXPECT_EQ(Train(1), backend_->health()) << "for good";
  EXPECT_TRUE(Train(0).ok());
  // A thread that comes to device 0 next, then one that comes to device 1.
  std::thread([&] { EXPECT_TRUE(backend_->Compile(beside_.graph(), beside_.options()).ok()); }).join();
  std::thread([&] {
    EXPECT_EQ(backend_->Compile(beside_.graph(), beside_.options()).status(), backend_->health());
  }).join();
}

// Neither the program that noticed, nor another one of the device, nor what is kept for sums.
TEST_F(WatchedTest, NothingIsWaitedForOrFreedOnALostDevice) {
  std::unique_ptr<Program> second;
  std::thread([&] { programs_[1] = Compile(); }).join();  // a seat on device 0: the third of two devices
  std::thread([&] { second = Compile(); }).join();        // one on device 1
  ASSERT_TRUE(Train(0).ok());
  ASSERT_TRUE(Train(1).ok());
  Condition& device = conditions_[0];
  const int freed = device.freed, waited_at_end = device.waited_at_end, waits_for_all = device.waits_for_all;
  device.waits = absl::DeadlineExceededError("A: a step does not end");
  EXPECT_FALSE(Train(0).ok());
  programs_[1].reset();  // it knows of nothing
  programs_[0].reset();
  EXPECT_EQ(device.waits_for_all, waits_for_all);
  EXPECT_EQ(device.waited_at_end, waited_at_end);
  EXPECT_EQ(device.freed, freed);
  second.reset();
  EXPECT_GT(conditions_[1].waited_at_end, 0) << "a device that is well";
  EXPECT_GT(conditions_[1].freed, 0);
}

// A device may hang before the first step.
TEST_F(WatchedTest, NothingIsFreedWhereAProgramCannotBeMadeForIt) {
  Condition& device = conditions_[0];
  device.waits = absl::DeadlineExceededError("A: a step does not end");
  const int freed = device.freed, waited_at_end = device.waited_at_end, waits_for_all = device.waits_for_all;
  std::thread([&] {
    EXPECT_EQ(backend_->Compile(beside_.graph(), beside_.options()).status(),
              absl::UnavailableError("GPU 0 is lost: A: a step does not end"));
  }).join();
  EXPECT_EQ(device.freed, freed);
  EXPECT_EQ(device.waited_at_end, waited_at_end);
  EXPECT_EQ(device.waits_for_all, waits_for_all + 1) << "the one that noticed";
}

// Each of its steps takes a moment.
class SlowMachine : public TroubledMachine {
 public:
  SlowMachine(Condition* condition, ManualClock* clock, const absl::Duration* wait)
      : TroubledMachine({}, 0, condition), clock_(clock), wait_(wait) {}
  absl::Status WaitFor(int signal, absl::Duration patience) override {
    clock_->Advance(*wait_);
    return TroubledMachine::WaitFor(signal, patience);
  }

 private:
  ManualClock* const clock_;
  const absl::Duration* const wait_;
};

class SlowSource : public WeightSource {
 public:
  explicit SlowSource(ManualClock* clock) : clock_(clock) {}
  void Prefetch(int64_t, int64_t) override {}
  absl::Status Acquire(int64_t, int64_t) override {
    clock_->Advance(kLong);
    return absl::OkStatus();
  }
  void Release(int64_t, int64_t) override {}

 private:
  ManualClock* const clock_;
};

TEST(StepPatienceTest, GoesByWhatTheDeviceTookInLaterSteps) {
  BesideReference beside({"conv", Between("")}, 4);
  const Batch batch = CaseBatch(*beside.graph(), beside.options().loss, 4, 1);
  Condition condition;
  const auto clock = std::make_shared<ManualClock>();
  absl::Duration wait = absl::Minutes(5);
  auto program = cudnn::MakeProgram(beside.graph(), beside.options(), {},
                                    std::make_unique<SlowMachine>(&condition, clock.get(), &wait), clock);
  ASSERT_TRUE(program.ok()) << program.status();
  SlowSource source(clock.get());
  ASSERT_TRUE((*program)->UseWeightSource(&source).ok());
  // How long the next step is waited for, whose waits take `each`; and how many there are.
  size_t waits = 0;
  const auto step = [&](absl::Duration each) {
    wait = each;
    condition.patience.clear();
    std::vector<float> gradient(beside.graph()->space_size());
    EXPECT_TRUE((*program)->TrainStep(batch, {}, beside.values(), absl::MakeSpan(gradient), nullptr).ok());
    waits = condition.patience.size();
    return condition.patience.front();
  };
  EXPECT_EQ(step(absl::Minutes(5)), cudnn::kPatience) << "the first, which loads kernels";
  EXPECT_EQ(step(absl::Milliseconds(1)), cudnn::kPatience) << "nothing is known of later ones";
  EXPECT_EQ(step(absl::Seconds(7)), cudnn::kPatienceMin) << "neither the first step nor waiting for values counts";
  const auto before = static_cast<double>(waits);
  EXPECT_EQ(step(absl::Minutes(9)), cudnn::kPatienceFactor * before * absl::Seconds(7)) << "ten times the slowest";
  EXPECT_EQ(step(absl::ZeroDuration()), cudnn::kPatience) << "at most";
}

// A StepInfo whose values are of a type that has no single numbers, such as INT8 (jobs with it say BFLOAT16).
TEST_F(WatchedTest, ATypeThatNoNumberHasIsTheJobsErrorNotTheWorkers) {
  std::vector<float> gradient(beside_.graph()->space_size());
  StepInfo info;
  info.values = v1::INT8;
  const absl::Status status =
      programs_[0]->TrainStep(batch_, info, beside_.values(), absl::MakeSpan(gradient), nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("INT8"));
  EXPECT_TRUE(backend_->health().ok());
  EXPECT_TRUE(Train(0).ok());
}

// Errors of the caller, or of a wait for values that was given up, are no fault of the device.
TEST_F(WatchedTest, OtherErrorsLoseNoDevice) {
  Batch wrong = batch_;
  wrong.labels = Buffer::Zeros(4);
  EXPECT_EQ(programs_[0]->Evaluate(wrong, beside_.values()).status().code(), absl::StatusCode::kInvalidArgument);
  conditions_[0].waits = absl::InternalError("a launch");
  EXPECT_EQ(Train(0), absl::InternalError("a launch"));
  EXPECT_TRUE(backend_->health().ok());
  conditions_[0].waits = absl::OkStatus();
  EXPECT_TRUE(Train(0).ok());
}

}  // namespace
}  // namespace cairn
