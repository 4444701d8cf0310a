// Goal: one machine's calls and watches do not keep out another's; a place is free once its call is answered, however
// that ends, and already when the caller learns it.
#include "coordinator/node/cluster_driver.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/core/limits.h"
#include "tests/unit/base/held_executor.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {
namespace {

constexpr char kGreedy[] = "ipv4:10.0.0.7";
constexpr char kOther[] = "ipv4:10.0.0.8";

struct Answers {
  int refused = 0;  // for want of places
  int others = 0;
  std::function<void()> next;  // at the next one that is no refusal

  void Take(const absl::Status& status) {
    if (absl::IsResourceExhausted(status)) {
      ++refused;
      return;
    }
    ++others;
    if (next) std::exchange(next, nullptr)();
  }
};

template <typename Sink, typename Part>
struct ToAnswers : Sink {
  explicit ToAnswers(Answers& to) : answers(to) {}
  void Write(Part) override {}
  void Finish(const absl::Status& status) override { answers.Take(status); }
  Answers& answers;
};

class ClusterDriverTest : public testing::Test {
 protected:
  ~ClusterDriverTest() override { driver_.Stop(); }

  void Lead() {
    driver_.Lead([] {
      StateStore store(NewMemoryKvStore());
      StoredState state = *store.Load();
      return absl::StatusOr<Leadership>(Leadership{std::move(store), std::move(state), 1, nullptr, nullptr});
    });
    Run();
  }
  void Run() { executor_->Pass(absl::ZeroDuration()); }
  static Event Cancel(ReplyToken token) {
    v1::GetJobRequest none;
    none.set_job_id(99);
    return CancelJob{token, none};
  }
  uint64_t Submit() {
    const auto job = std::make_shared<const CheckedJob>(*CheckJob(FakeCluster::Spec()));
    uint64_t id = 0;
    driver_.Call(
        kOther,
        [&](ReplyToken token) {
          return SubmitJob{token, job, ""};
        },
        [&](const absl::Status& status, const ReplyBody& body) {
          EXPECT_TRUE(status.ok()) << status;
          if (const auto* response = std::get_if<v1::SubmitResponse>(&body)) id = response->job().job_id();
        });
    Run();
    return id;
  }

  void Query(const char* machine) {
    driver_.Query(
        machine, [this](const ClusterCore&, absl::Time) { answers_.Take(absl::OkStatus()); },
        [this](const absl::Status& status) { answers_.Take(status); });
  }
  void Call(const char* machine) {
    driver_.Call(machine, Cancel, [this](const absl::Status& status, const ReplyBody&) { answers_.Take(status); });
  }
  void Predict(const char* machine) {
    driver_.Predict(machine, Cancel, std::make_shared<ToAnswers<PredictionSink, v1::PredictResponse>>(answers_),
                    [](ReplyToken) {});
  }
  void Watch(const char* machine, uint64_t job) {
    v1::GetJobRequest request;
    request.set_job_id(job);
    driver_.Watch(machine, request, {}, std::make_shared<ToAnswers<WatchSink, v1::JobStatus>>(answers_),
                  [this](uint64_t watcher) { watcher_ = watcher; });
  }

  // As many as one machine may have, of which each is answered when the executor runs.
  void ExpectPlaces(const std::function<void(const char*)>& make) {
    answers_ = {};
    const int all = static_cast<int>(kDriverCallsOfMachineMax);
    for (int i = 0; i < all; ++i) make(kGreedy);
    EXPECT_EQ(answers_.refused, 0);
    make(kGreedy);
    EXPECT_EQ(answers_.refused, 1);
    make(kOther);
    EXPECT_EQ(answers_.refused, 1) << "another machine has places";
    answers_.next = [&] { make(kGreedy); };  // the place of the one that was just answered
    Run();
    EXPECT_EQ(answers_.refused, 1);
    EXPECT_EQ(answers_.others, all + 2);
    for (int i = 0; i < all; ++i) make(kGreedy);
    EXPECT_EQ(answers_.refused, 1) << "all were given back";
    Run();
  }

  ManualClock clock_;
  HeldExecutor* executor_ = new HeldExecutor(clock_);  // the driver's
  ClusterDriver driver_{CoordinatorOptions(), {&clock_, std::unique_ptr<Executor>(executor_)}};
  Answers answers_;
  uint64_t watcher_ = 0;
};

TEST_F(ClusterDriverTest, AMachineHasAPartOfThePlacesOfEachKindOfCall) {
  const std::map<std::string, std::function<void(const char*)>> kinds = {
      {"query", [this](const char* machine) { Query(machine); }},
      {"call", [this](const char* machine) { Call(machine); }},
      {"prediction", [this](const char* machine) { Predict(machine); }},
      {"watch of no job", [this](const char* machine) { Watch(machine, 99); }}};
  for (const bool leads : {false, true}) {
    if (leads) Lead();
    for (const auto& [kind, make] : kinds) {
      SCOPED_TRACE(kind + (leads ? ", leading" : ", standing by"));
      ExpectPlaces(make);
    }
  }
}

TEST_F(ClusterDriverTest, AnotherMachinesCallDoesNotWaitForAllOfThem) {
  Lead();
  std::string begun;
  const auto query = [&](const char* machine, char name) {
    driver_.Query(
        machine, [&begun, name](const ClusterCore&, absl::Time) { begun.push_back(name); },
        [](const absl::Status& status) { ADD_FAILURE() << status; });
  };
  for (int i = 0; i < 5; ++i) query(kGreedy, 'g');
  query(kOther, 'o');
  Run();
  EXPECT_EQ(begun, "gogggg");
}

TEST_F(ClusterDriverTest, WhatWaitsWhenItStopsIsAnswered) {
  Lead();
  for (int i = 0; i < 5; ++i) Query(kGreedy);
  Call(kOther);
  driver_.Stop();
  EXPECT_EQ(answers_.others, 6);
  Query(kGreedy);
  Run();
  EXPECT_EQ(answers_.others, 7);
}

TEST_F(ClusterDriverTest, AWatchHasItsPlaceUntilItEnds) {
  Lead();
  const uint64_t job = Submit();
  ASSERT_NE(job, 0u);
  const auto fill = [&] {
    for (size_t i = 0; i < kDriverWatchersOfMachineMax; ++i) Watch(kGreedy, job);
    Run();
  };
  fill();
  EXPECT_EQ(answers_.refused, 0);
  Query(kGreedy);
  EXPECT_EQ(answers_.refused, 0) << "a watch that has begun takes no place of a call";
  Watch(kGreedy, job);
  EXPECT_EQ(answers_.refused, 1);
  Watch(kOther, job);
  EXPECT_EQ(answers_.refused, 1);
  Run();
  const uint64_t others = watcher_;
  driver_.WatcherGone(others - 1);  // one of the first machine's
  Run();
  Watch(kGreedy, job);
  EXPECT_EQ(answers_.refused, 1);
  Run();

  driver_.StandBy(absl::UnavailableError("another leads"));
  Run();
  answers_ = {};
  Lead();
  const uint64_t again = Submit();
  for (size_t i = 0; i < kDriverWatchersOfMachineMax; ++i) Watch(kGreedy, again);
  EXPECT_EQ(answers_.refused, 0) << "all were given back";
}

}  // namespace
}  // namespace cairn
