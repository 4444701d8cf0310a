// Goal: the core submits at most so many trials at once, none twice whatever moment it is stopped at, halves them by
// their figures alone, pauses those that wait for others, and goes on when trials fail. Driven by a naive cluster.
#include "client/cli/sweep/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <random>

#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kStepsPerEpoch = 10;

std::vector<Trial> NewTrials(int count) {
  std::vector<Trial> trials(count);
  for (int i = 0; i < count; ++i) {
    trials[i].number = i + 1;
    trials[i].parameters = {{"batch_size", std::to_string(i + 1)}};
  }
  return trials;
}

SweepOptions Options(int parallel, std::vector<int> rungs = {}) {
  SweepOptions options;
  options.key = "k";
  options.by = "loss";
  options.max_parallel = parallel;
  options.rungs = std::move(rungs);
  options.halving.on = !options.rungs.empty();
  return options;
}

// Jobs that train an epoch at a time, in an order that the test chooses.
class FakeCluster {
 public:
  FakeCluster(int epochs, std::function<double(int trial, int epoch)> loss) : epochs_(epochs), loss_(std::move(loss)) {}

  uint64_t Submit(const std::string& key, int trial, int from_epoch) {
    if (const auto known = keys_.find(key); known != keys_.end()) return known->second;
    v1::JobStatus& job = jobs_[++last_];
    job.set_job_id(last_);
    job.set_state(v1::RUNNING);
    job.set_steps_per_epoch(kStepsPerEpoch);
    for (int i = 0; i < from_epoch; ++i) job.add_epochs()->set_epoch(i);
    trials_[last_] = trial;
    keys_[key] = last_;
    return last_;
  }
  void Cancel(uint64_t id) {
    if (!IsFinal(jobs_.at(id).state())) jobs_.at(id).set_state(v1::CANCELLED);
  }
  // Trains one epoch of a job that runs.
  void Train(uint64_t id) {
    v1::JobStatus& job = jobs_.at(id);
    if (IsFinal(job.state())) return;
    v1::EpochResult& epoch = *job.add_epochs();
    epoch.set_epoch(job.epochs_size() - 1);
    epoch.mutable_train()->set_examples(1);
    epoch.mutable_train()->set_loss(loss_(trials_.at(id), job.epochs_size()));
    ++trained_;
    job.clear_checkpoints();
    AddCheckpoint(job, static_cast<int64_t>(job.epochs_size()) * kStepsPerEpoch);
    if (job.epochs_size() == epochs_) job.set_state(v1::SUCCEEDED);
  }
  static void AddCheckpoint(v1::JobStatus& job, int64_t step) {
    v1::CheckpointInfo& checkpoint = *job.add_checkpoints();
    checkpoint.set_path(absl::StrCat("/step-", step));
    checkpoint.set_step(step);
  }
  v1::JobStatus& job(uint64_t id) { return jobs_.at(id); }
  const std::map<uint64_t, v1::JobStatus>& jobs() const { return jobs_; }
  int trained() const { return trained_; }  // epochs

 private:
  const int epochs_;
  const std::function<double(int, int)> loss_;
  std::map<uint64_t, v1::JobStatus> jobs_;
  std::map<uint64_t, int> trials_;
  std::map<std::string, uint64_t> keys_;
  uint64_t last_ = 0;
  int trained_ = 0;
};

int ActiveJobs(const FakeCluster& cluster) {
  return static_cast<int>(std::count_if(cluster.jobs().begin(), cluster.jobs().end(),
                                        [](const auto& job) { return !IsFinal(job.second.state()); }));
}

void Submit(FakeCluster& cluster, Sweep& sweep, int trial) {
  const int from = static_cast<int>(sweep.trials()[trial].checkpoint_step / kStepsPerEpoch);
  sweep.OnSubmitted(trial, cluster.job(cluster.Submit(sweep.KeyOf(trial), trial + 1, from)));
}

void Look(FakeCluster& cluster, Sweep& sweep) {
  for (size_t i = 0; i < sweep.trials().size(); ++i) {
    const Trial& trial = sweep.trials()[i];
    if (trial.is_active() && trial.state != TrialState::kSubmitting)
      sweep.OnJob(static_cast<int>(i), cluster.job(trial.job()));
  }
}

// Runs a sweep to its end; jobs train in random order. kills: at random moments the process ends, and another one goes
// on from what was stored last.
Sweep RunAll(FakeCluster& cluster, const SweepOptions& options, int count, std::mt19937& random, bool kills = false) {
  std::vector<Trial> stored = NewTrials(count);
  std::optional<Sweep> process(std::in_place, options, stored);
  const auto killed = [&] {
    if (!kills || random() % 10 != 0) return false;
    process.emplace(options, stored);
    return true;
  };
  for (int round = 0; !process->done(); ++round) {
    EXPECT_LT(round, 10000) << "the sweep does not end";
    if (round >= 10000) break;
    Sweep& sweep = *process;
    Look(cluster, sweep);
    const SweepEffects effects = sweep.Decide();
    if (killed()) continue;
    stored = sweep.trials();
    bool was_killed = false;
    for (size_t i = 0; i < effects.submit.size() && !was_killed; ++i) {
      if ((was_killed = killed())) break;
      Submit(cluster, sweep, effects.submit[i]);
      was_killed = killed();
    }
    for (size_t i = 0; i < effects.cancel.size() && !was_killed; ++i) {
      cluster.Cancel(sweep.trials()[effects.cancel[i]].job());
      was_killed = killed();
    }
    EXPECT_LE(ActiveJobs(cluster), options.max_parallel);
    std::vector<uint64_t> running;
    for (const auto& [id, job] : cluster.jobs()) {
      if (!IsFinal(job.state())) running.push_back(id);
    }
    for (int i = static_cast<int>(random() % 3); i > 0 && !running.empty(); --i)
      cluster.Train(running[random() % running.size()]);
  }
  return *process;
}

std::vector<std::pair<int, int>> Outcome(const Sweep& sweep) {
  std::vector<std::pair<int, int>> outcome;
  for (const Trial* trial : sweep.Ranking()) outcome.emplace_back(trial->number, trial->rung);
  return outcome;
}

double SomeLoss(int trial, int epoch) { return 1.0 / epoch + 0.01 * ((trial * 7) % 9); }

TEST(Sweep, AllTrialsOfAGridTrainToTheEnd) {
  std::mt19937 random(TestSeed());
  FakeCluster cluster(3, SomeLoss);
  const Sweep sweep = RunAll(cluster, Options(2), 9, random);
  EXPECT_EQ(cluster.jobs().size(), 9u);
  for (const Trial& trial : sweep.trials()) {
    EXPECT_EQ(trial.state, TrialState::kSucceeded);
    EXPECT_EQ(trial.epochs, 3);
  }
  EXPECT_EQ(sweep.Ranking()[0]->number, 9);  // 9 * 7 % 9 == 0
}

// Successive halving by hand, from the paper: the best third of each rung.
std::vector<int> Naive(int count, const std::vector<int>& rungs, int factor) {
  std::vector<int> alive(count);
  for (int i = 0; i < count; ++i) alive[i] = i + 1;
  for (const int rung : rungs) {
    std::stable_sort(alive.begin(), alive.end(), [&](int a, int b) { return SomeLoss(a, rung) < SomeLoss(b, rung); });
    alive.resize(std::max<size_t>(1, alive.size() / factor));
    std::sort(alive.begin(), alive.end());
  }
  return alive;
}

TEST(Sweep, HalvingChoosesAsThePaperWhateverIsReadyFirst) {
  std::mt19937 random(TestSeed());
  std::vector<std::pair<int, int>> wanted;
  for (int round = 0; round < 60; ++round) {
    const int parallel = 1 + static_cast<int>(random() % 10);
    FakeCluster cluster(9, SomeLoss);
    const Sweep sweep = RunAll(cluster, Options(parallel, {1, 3}), 9, random, round % 2 == 1);
    if (wanted.empty()) wanted = Outcome(sweep);
    EXPECT_EQ(Outcome(sweep), wanted) << parallel << " at once, round " << round;
    EXPECT_EQ(sweep.Ranking()[0]->number, Naive(9, {1, 3}, 3)[0]);
    EXPECT_EQ(sweep.Ranking()[0]->epochs, 9);
    // One at a time: 9 trials of 1 epoch, 3 of 2 more, 1 of 6 more.
    if (parallel == 1 && round % 2 == 0) {
      EXPECT_LE(cluster.trained(), 9 + 3 * 2 + 6 + 9) << "trials were not paused";
    }
  }
}

TEST(Sweep, KillsAtAnyMomentSubmitNoTrialTwice) {
  std::mt19937 random(TestSeed());
  for (int round = 0; round < 60; ++round) {
    FakeCluster cluster(2, SomeLoss);
    const Sweep sweep = RunAll(cluster, Options(1 + static_cast<int>(random() % 4)), 6, random, true);
    EXPECT_EQ(cluster.jobs().size(), 6u) << "round " << round;
    EXPECT_EQ(cluster.trained(), 12);
    for (const Trial& trial : sweep.trials()) EXPECT_EQ(trial.state, TrialState::kSucceeded);
  }
}

TEST(Sweep, ATrialThatFailsIsSaidAndTheSweepGoesOn) {
  FakeCluster cluster(1, SomeLoss);
  Sweep sweep(Options(2), NewTrials(3));
  for (const int trial : sweep.Decide().submit) Submit(cluster, sweep, trial);
  cluster.job(sweep.trials()[0].job()).set_state(v1::FAILED);
  cluster.job(sweep.trials()[0].job()).set_reason("no memory");
  Look(cluster, sweep);
  const SweepEffects effects = sweep.Decide();
  EXPECT_THAT(effects.notes, ::testing::Contains(HasSubstr("job 1 failed - no memory")));
  EXPECT_THAT(effects.submit, ElementsAre(2));
  sweep.OnRefused(2, "batch_size: too large");
  EXPECT_EQ(sweep.trials()[2].state, TrialState::kFailed);
  EXPECT_EQ(sweep.trials()[2].reason, "refused: batch_size: too large");
  cluster.Train(sweep.trials()[1].job());
  Look(cluster, sweep);
  sweep.Decide();
  EXPECT_TRUE(sweep.done());
  EXPECT_EQ(sweep.Ranking()[0]->number, 2);
}

TEST(Sweep, FailedTrialsTakeNoPlaceAtARung) {
  FakeCluster cluster(4, SomeLoss);
  Sweep sweep(Options(4, {1}), NewTrials(4));
  for (const int trial : sweep.Decide().submit) Submit(cluster, sweep, trial);
  cluster.job(4).set_state(v1::FAILED);
  for (const int job : {1, 2}) cluster.Train(job);
  cluster.Cancel(3);  // by somebody else
  Look(cluster, sweep);
  const SweepEffects effects = sweep.Decide();
  EXPECT_EQ(sweep.trials()[2].state, TrialState::kCancelled);
  // The best third of four, one: trial 1 or 2.
  const int loser = SomeLoss(1, 1) < SomeLoss(2, 1) ? 1 : 0;
  EXPECT_THAT(effects.cancel, ElementsAre(loser));
  EXPECT_EQ(sweep.trials()[loser].state, TrialState::kStopping);
  EXPECT_THAT(sweep.trials()[loser].reason, HasSubstr("not among the best 1 of 4 after epoch 1"));
}

// It may have trained on before it was seen there.
TEST(Sweep, APausedTrialIsSaidWithTheFigureOfItsRung) {
  FakeCluster cluster(4, [](int, int epoch) { return 8.0 / epoch; });
  Sweep sweep(Options(1, {1}), NewTrials(2));
  for (const int trial : sweep.Decide().submit) Submit(cluster, sweep, trial);
  for (int i = 0; i < 2; ++i) cluster.Train(1);
  Look(cluster, sweep);
  const SweepEffects effects = sweep.Decide();
  EXPECT_THAT(effects.notes, ::testing::Contains("trial 1: paused after epoch 1 - loss: 8.0000"));
  EXPECT_THAT(effects.cancel, ElementsAre(0));
  EXPECT_TRUE(effects.submit.empty());  // its place is free when its job has ended
  cluster.Cancel(1);
  Look(cluster, sweep);
  EXPECT_EQ(sweep.trials()[0].state, TrialState::kPaused);
  EXPECT_THAT(sweep.Decide().submit, ElementsAre(1));
}

// A job trains on while it is cancelled, and the figures of its last epochs may not come any more.
TEST(Sweep, ATrialGoesOnFromACheckpointWhoseEpochsHaveFigures) {
  FakeCluster cluster(4, SomeLoss);
  Sweep sweep(Options(1, {1}), NewTrials(2));
  for (const int trial : sweep.Decide().submit) Submit(cluster, sweep, trial);
  cluster.Train(1);
  Look(cluster, sweep);
  EXPECT_EQ(sweep.trials()[0].checkpoint, "/step-10");
  EXPECT_THAT(sweep.Decide().cancel, ElementsAre(0));
  FakeCluster::AddCheckpoint(cluster.job(1), 20);
  FakeCluster::AddCheckpoint(cluster.job(1), 24);
  cluster.Cancel(1);
  Look(cluster, sweep);
  EXPECT_EQ(sweep.trials()[0].checkpoint, "/step-10");
  EXPECT_TRUE(sweep.Resumes(0));
  // Where none of those is left the trial begins anew.
  cluster.job(1).mutable_checkpoints()->DeleteSubrange(0, 1);
  cluster.job(1).set_state(v1::RUNNING);
  std::vector<Trial> trials = sweep.trials();
  trials[0].state = TrialState::kPausing;
  Sweep anew(Options(1, {1}), trials);
  cluster.Cancel(1);
  Look(cluster, anew);
  EXPECT_EQ(anew.trials()[0].state, TrialState::kPaused);
  EXPECT_FALSE(anew.Resumes(0));
}

TEST(Sweep, AnInterruptCancelsAndTheTrialsBeginAnewOrGoOn) {
  FakeCluster cluster(3, SomeLoss);
  Sweep sweep(Options(2), NewTrials(3));
  for (const int trial : sweep.Decide().submit) Submit(cluster, sweep, trial);
  cluster.Train(1);  // it has a checkpoint
  Look(cluster, sweep);
  sweep.Interrupt();
  const SweepEffects effects = sweep.Decide();
  EXPECT_TRUE(effects.submit.empty());
  EXPECT_THAT(effects.cancel, ElementsAre(0, 1));
  for (const int trial : effects.cancel) cluster.Cancel(sweep.trials()[trial].job());
  Look(cluster, sweep);
  EXPECT_EQ(sweep.trials()[0].state, TrialState::kPaused);
  EXPECT_EQ(sweep.trials()[1].state, TrialState::kWaiting);
  Sweep next(Options(2), sweep.trials());
  EXPECT_THAT(next.Decide().submit, ElementsAre(0, 1));
  EXPECT_EQ(next.KeyOf(0), "sweep-k-1-2");  // another job than the cancelled one
  EXPECT_TRUE(next.Resumes(0));
  EXPECT_FALSE(next.Resumes(1));
}

TEST(Sweep, AJobThatIsGoneIsAFailure) {
  FakeCluster cluster(3, SomeLoss);
  Sweep sweep(Options(1), NewTrials(1));
  for (const int trial : sweep.Decide().submit) Submit(cluster, sweep, trial);
  sweep.OnJobGone(0, "job 1 was deleted");
  EXPECT_EQ(sweep.trials()[0].state, TrialState::kFailed);
  EXPECT_TRUE(sweep.done());
}

TEST(TrialState, TextsReadBack) {
  for (int i = 0; i <= static_cast<int>(TrialState::kCancelled); ++i) {
    const auto state = static_cast<TrialState>(i);
    EXPECT_EQ(TrialStateOf(TrialStateText(state)).value(), state);
  }
  EXPECT_FALSE(TrialStateOf("lost").ok());
}

}  // namespace
}  // namespace cairn
