// Goal: what a worker sends under each strategy, message by message: one push a partition for a whole subtree of replicas;
// central storage pulls what a layer wants and forgets it after, and computes a lost gradient again; a local_sync group
// pushes its sum as one, and staleness is what others did meanwhile.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/model/clip_norm.h"
#include "worker/replica_core.h"

namespace cairn {
namespace {

constexpr int kPartitions = 2;
constexpr uint64_t kNumbers = 16;  // of a partition

v1::AssignReplicas Assignment(v1::Strategy strategy, int replicas, const std::vector<int>& own,
                              const std::string& address = "ps-0:7071") {
  v1::AssignReplicas message;
  message.set_job_id(7);
  message.set_generation(1);
  message.set_assignment(1);
  v1::JobSpec& spec = *message.mutable_spec();
  spec.set_strategy(strategy);
  spec.set_replicas(replicas);
  spec.set_batch_size(8);
  spec.set_epochs(1);
  spec.mutable_optimizer()->set_learning_rate(0.1f);
  spec.mutable_optimizer()->mutable_sgd();
  message.mutable_data()->set_train_examples(32);
  message.set_steps_per_epoch(4);
  message.set_total_steps(4);
  for (int r : own) message.add_replicas(r);
  for (uint32_t p = 0; p < kPartitions; ++p) {
    v1::Route& route = *message.add_routes();
    route.mutable_range()->set_partition(p);
    route.mutable_range()->set_begin(p * kNumbers);
    route.mutable_range()->set_end((p + 1) * kNumbers);
    route.set_address(address);
  }
  return message;
}

using Places = std::vector<std::pair<uint64_t, uint32_t>>;  // work, partition

class StrategiesTest : public ::testing::Test {
 protected:
  void Feed(replica::Event event) {
    for (replica::Effect& effect : core_.Step(std::move(event), now_)) {
      if (auto* send = std::get_if<replica::Send>(&effect)) {
        (send->frame.kind == v1::ExchangeFrame::PUSH   ? pushes
         : send->frame.kind == v1::ExchangeFrame::CLIP ? clips
                                                       : pulls)
            .push_back(std::move(*send));
      } else if (auto* compute = std::get_if<replica::Compute>(&effect)) {
        computes.push_back(std::move(*compute));
      } else if (auto* evaluate = std::get_if<replica::Evaluate>(&effect)) {
        evaluations.push_back(std::move(*evaluate));
      } else if (auto* here_effect = std::get_if<replica::WeightsHere>(&effect)) {
        here.emplace_back(here_effect->work, here_effect->partition);
      } else if (auto* stop = std::get_if<replica::StopWork>(&effect)) {
        stopped.push_back(stop->work);
      } else if (auto* report = std::get_if<replica::Report>(&effect)) {
        reports.push_back(std::move(report->report));
      } else if (auto* fail = std::get_if<replica::Fail>(&effect)) {
        failure = fail->message;
      }
    }
  }
  // The answer to a pull or a push: values of this version, each the partition's number + version.
  void Answer(const replica::Send& send, uint64_t version, uint64_t sequence = 0, std::string scalars = "") {
    Frame frame;
    frame.scalars = std::move(scalars);
    frame.kind = v1::ExchangeFrame::VALUES;
    frame.partition = send.frame.partition;
    frame.version = version;
    frame.sequence = sequence;
    frame.loss_scale = loss_scale;
    if (send.frame.reply_dtype == v1::DATA_TYPE_UNSPECIFIED) {  // of a push that wants no values
      Feed(replica::Reply{send.request, std::move(frame)});
      return;
    }
    frame.dtype = v1::FLOAT32;
    const std::vector<float> values(kNumbers, static_cast<float>(send.frame.partition.value) + static_cast<float>(version));
    frame.payload = Buffer::CopyOf(values.data(), values.size() * sizeof(float));
    Feed(replica::Reply{send.request, std::move(frame)});
  }
  void AnswerPulls(uint64_t version, uint64_t sequence = 0) {
    for (const replica::Send& pull : std::exchange(pulls, {})) Answer(pull, version, sequence);
  }
  // The whole gradient, `value` in each place.
  void Finish(replica::Compute compute, float value) {
    for (float& g : compute.gradient.mutable_floats()) g = value;
    const uint64_t work = compute.work;
    compute.values = compute.gradient = {};
    Feed(replica::GradientReady{work, 0, kPartitions});
    BatchSums sums;
    sums.examples = 2;
    sums.loss = 1;
    Feed(replica::Computed{work, sums});
  }
  void EndEvaluation(const replica::Evaluate& evaluate) {
    BatchSums sums;
    sums.examples = static_cast<uint64_t>(evaluate.places.size());
    Feed(replica::Evaluated{evaluate.work, sums});
  }
  // Of so many examples the replica was told to have validated, after so many steps.
  uint64_t Validated(int replica, int64_t step) const {
    uint64_t examples = 0;
    for (const v1::ReplicaReport& report : reports) {
      if (report.replica() == replica && report.has_validation() && report.validation_step() == step) {
        examples += report.validation().examples();
      }
    }
    return examples;
  }
  // The answer to a push: what the partition has in the one norm over all.
  void AnswerNorms(const replica::Send& send, float gradient) {
    Frame frame;
    frame.kind = v1::ExchangeFrame::NORMS;
    frame.partition = send.frame.partition;
    frame.sequence = send.frame.sequence;
    frame.scalars = Norms(gradient);
    Feed(replica::Reply{send.request, std::move(frame)});
  }
  static std::string Norms(float gradient) {
    const std::vector<float> numbers(kNumbers, gradient);
    NormRecord record{0, kNumbers, kPartitions * kNumbers, {}};
    record.squares.Add(numbers, 1);
    return EncodeNorms({&record, 1});
  }
  std::vector<replica::Compute> TakeComputes() { return std::exchange(computes, {}); }
  std::vector<replica::Send> TakePushes() { return std::exchange(pushes, {}); }

  ReplicaCore core_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<replica::Send> pushes, pulls, clips;
  std::vector<replica::Compute> computes;
  std::vector<replica::Evaluate> evaluations;
  Places here;
  std::vector<uint64_t> stopped;
  std::vector<v1::ReplicaReport> reports;
  std::string failure;
  float loss_scale = 0;  // of the answers
};

// Of 8 replicas this worker has the upper half: one push a partition and step, not four.
TEST_F(StrategiesTest, AWholeSubtreeIsOnePush) {
  Feed(replica::Assign{Assignment(v1::MULTI_WORKER_MIRRORED, 8, {4, 5, 6, 7})});
  AnswerPulls(0);
  for (uint64_t step = 0; step < 4; ++step) {
    std::vector<replica::Compute> work = TakeComputes();
    ASSERT_EQ(work.size(), size_t{4});
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(pushes.empty()) << "before the last of the subtree";
      Finish(std::move(work[i]), static_cast<float>(i + 1));
    }
    const std::vector<replica::Send> sent = TakePushes();
    ASSERT_EQ(sent.size(), size_t{kPartitions});
    for (const replica::Send& push : sent) {
      EXPECT_EQ(push.frame.replica_first.value, 4);
      EXPECT_EQ(push.frame.replica_count, 4u);
      EXPECT_EQ(push.frame.examples, 4u);
      EXPECT_EQ(push.frame.payload.floats()[0], 10) << "reduced here";
      Answer(push, step + 1);
    }
  }
}

// With a backup replica the others' gradients make the step while this worker's second replica still validates.
TEST_F(StrategiesTest, AStepEndsWithItsLastValidationWhoeverMadeIt) {
  v1::AssignReplicas assignment = Assignment(v1::MULTI_WORKER_MIRRORED, 4, {0, 1});
  assignment.mutable_spec()->set_backup_replicas(1);
  assignment.mutable_spec()->set_validation_freq_steps(1);
  assignment.mutable_data()->set_validation_examples(8);
  Feed(replica::Assign{assignment});
  AnswerPulls(1);
  ASSERT_EQ(evaluations.size(), size_t{2});
  EndEvaluation(evaluations[0]);
  Finish(TakeComputes().at(0), 1);
  for (const replica::Send& push : TakePushes()) Answer(push, 2);
  EXPECT_TRUE(TakeComputes().empty()) << "replica 1 has not validated";
  EXPECT_EQ(evaluations.size(), size_t{2});
  EndEvaluation(evaluations[1]);
  for (replica::Compute& late : TakeComputes()) Finish(std::move(late), 1);  // its figures belong to the step
  EXPECT_TRUE(TakePushes().empty()) << "too late to count";
  ASSERT_EQ(evaluations.size(), size_t{4}) << "the next step";
  now_ += absl::Seconds(1);
  Feed(replica::Timer{});
  EXPECT_EQ(Validated(0, 1), 2u);
  EXPECT_EQ(Validated(1, 1), 2u);
}

// Factors go with the name of the norms that they are of; what the partition measured anew is named anew.
TEST_F(StrategiesTest, AClipNamesItsNorms) {
  v1::AssignReplicas assignment = Assignment(v1::MULTI_WORKER_MIRRORED, 4, {0});
  assignment.mutable_spec()->set_backup_replicas(1);
  assignment.mutable_spec()->mutable_optimizer()->set_global_clipnorm(1);
  Feed(replica::Assign{assignment});
  AnswerPulls(0);
  Finish(TakeComputes().at(0), 1);
  std::vector<replica::Send> sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{2});
  AnswerNorms(sent[0], 3);
  EXPECT_TRUE(clips.empty()) << "a share is missing";
  AnswerNorms(sent[1], 4);
  ASSERT_EQ(clips.size(), size_t{1}) << "the first partition decides";
  EXPECT_EQ(clips[0].frame.partition.value, 0u);
  EXPECT_EQ(clips[0].frame.norms_xxh3, HashOfNorms(Norms(3)));
  const replica::Send refused = clips[0];
  clips.clear();
  Feed(replica::Reply{refused.request, absl::AbortedError("the factors are of other norms")});
  sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{1}) << "pushed again";
  AnswerNorms(sent[0], 5);
  ASSERT_EQ(clips.size(), size_t{1});
  EXPECT_EQ(clips[0].frame.partition.value, 0u);
  EXPECT_EQ(clips[0].frame.norms_xxh3, HashOfNorms(Norms(5)));
  EXPECT_EQ(DecodeFactors(clips[0].frame.scalars, 1).value()[0], 1 / std::sqrt(16.0 * (16 + 25)));
}

// Partition 0 was clipped by a factor of a sum that partition 1 lost then, with its primary. What that one measures anew is of other gradients,
// and would give another factor: a step is clipped by one.
TEST_F(StrategiesTest, AStepIsClippedByOneFactorThoughASumIsLost) {
  v1::AssignReplicas assignment = Assignment(v1::MULTI_WORKER_MIRRORED, 4, {0});
  assignment.mutable_spec()->set_backup_replicas(1);
  assignment.mutable_spec()->mutable_optimizer()->set_global_clipnorm(1);
  Feed(replica::Assign{assignment});
  AnswerPulls(0);
  Finish(TakeComputes().at(0), 1);
  std::vector<replica::Send> sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{2});
  AnswerNorms(sent[0], 3);
  AnswerNorms(sent[1], 4);
  ASSERT_FALSE(clips.empty());
  const replica::Send first = clips[0];
  EXPECT_EQ(first.frame.partition.value, 0u);
  clips.clear();
  // Another worker's CLIP came first, with a factor of other norms of partition 1.
  const double applied = 1 / std::sqrt(16.0 * (9 + 36));
  Answer(first, 1, 1, Norms(3) + EncodeFactors({&applied, 1}));
  ASSERT_EQ(clips.size(), size_t{1}) << "what partition 0 applied is known";
  EXPECT_EQ(clips[0].frame.partition.value, 1u);
  EXPECT_EQ(clips[0].frame.norms_xxh3, HashOfNorms(Norms(4)));
  EXPECT_EQ(DecodeFactors(clips[0].frame.scalars, 1).value()[0], applied);
  const replica::Send refused = clips[0];
  clips.clear();
  Feed(replica::Reply{refused.request, absl::AbortedError("the sum is not here")});
  sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{1});
  AnswerNorms(sent[0], 100);
  ASSERT_EQ(clips.size(), size_t{1});
  EXPECT_EQ(clips[0].frame.norms_xxh3, HashOfNorms(Norms(100)));
  EXPECT_EQ(DecodeFactors(clips[0].frame.scalars, 1).value()[0], applied) << "that of the step";
  Answer(clips[0], 1, 1, Norms(100) + EncodeFactors({&applied, 1}));
  EXPECT_EQ(TakeComputes().size(), size_t{1}) << "the next step";
}

// ---- CENTRAL_STORAGE ----

class CentralStorageTest : public StrategiesTest {
 protected:
  void Begin(const std::vector<int>& own) {
    Feed(replica::Assign{Assignment(v1::CENTRAL_STORAGE, 2, own)});
    AnswerPulls(0);
  }
  void Want(uint64_t work, uint32_t begin, uint32_t end) { Feed(replica::WeightsWanted{work, begin, end}); }
};

TEST_F(CentralStorageTest, ValuesComeWhenWantedAndGoWhenDone) {
  Begin({0});
  EXPECT_TRUE(pulls.empty()) << "nothing before a layer wants it";
  const std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{1});
  EXPECT_TRUE(work[0].by_layer);
  const uint64_t id = work[0].work;
  Want(id, 0, 1);
  ASSERT_EQ(pulls.size(), size_t{1});
  EXPECT_EQ(pulls[0].frame.want_version, 0u);
  AnswerPulls(0);
  EXPECT_EQ(here, (Places{{id, 0}}));
  EXPECT_EQ(work[0].values.floats()[0], 0);
  here.clear();
  Want(id, 0, 2);  // the next layer begins in the same partition
  ASSERT_EQ(pulls.size(), size_t{1}) << "partition 0 is here";
  EXPECT_EQ(here, (Places{{id, 0}}));
  AnswerPulls(0);
  Feed(replica::WeightsDone{id, 0, 1});
  Want(id, 0, 1);
  EXPECT_TRUE(pulls.empty()) << "still wanted by the second layer";
  Feed(replica::WeightsDone{id, 0, 1});
  Feed(replica::WeightsDone{id, 0, 2});
  here.clear();
  Want(id, 0, 1);
  Want(id, 0, 1);
  ASSERT_EQ(pulls.size(), size_t{1}) << "forgotten, pulled anew";
  AnswerPulls(0);
  EXPECT_EQ(here, (Places{{id, 0}, {id, 0}})) << "each wish is granted";
  Want(99, 0, 1);
  EXPECT_EQ(stopped, (std::vector<uint64_t>{99})) << "a work that nobody knows";
}

TEST_F(CentralStorageTest, ReplicasPushOneByOneAndTheStepEndsWithTheLastAnswer) {
  Begin({0, 1});
  std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{2});
  Finish(std::move(work[0]), 1);
  std::vector<replica::Send> first = TakePushes();
  ASSERT_EQ(first.size(), size_t{kPartitions}) << "the first one's gradient does not wait";
  EXPECT_EQ(first[0].frame.replica_count, 1u);
  EXPECT_EQ(first[0].frame.payload.size(), kNumbers * sizeof(float));
  EXPECT_EQ(first[0].frame.reply_dtype, v1::DATA_TYPE_UNSPECIFIED) << "no values, please";
  Finish(std::move(work[1]), 2);
  std::vector<replica::Send> second = TakePushes();
  ASSERT_EQ(second.size(), size_t{kPartitions});
  EXPECT_EQ(second[1].frame.payload.floats()[0], 2);
  Answer(first[0], 1);
  Answer(second[0], 1);  // once is enough
  EXPECT_TRUE(TakeComputes().empty());
  Answer(second[1], 1);
  work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{2});
  EXPECT_EQ(work[0].step, 1);
}

TEST_F(CentralStorageTest, ALostGradientIsComputedAgain) {
  Begin({0});
  std::vector<replica::Compute> work = TakeComputes();
  Finish(std::move(work[0]), 1);
  std::vector<replica::Send> sent = TakePushes();
  Answer(sent[0], 1);
  Feed(replica::Reply{sent[1].request, absl::UnavailableError("the stream broke")});
  EXPECT_TRUE(TakeComputes().empty()) << "after a pause";
  now_ += absl::Seconds(2);
  Feed(replica::Timer{});
  work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{1});
  EXPECT_EQ(work[0].step, 0);
  Want(work[0].work, 0, 1);
  ASSERT_EQ(pulls.size(), size_t{1});
  EXPECT_EQ(pulls[0].frame.want_version, 0u) << "the values of before the update";
  Finish(std::move(work[0]), 1);
  sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{1}) << "what was answered is not sent again";
  EXPECT_EQ(sent[0].frame.partition.value, 1u);
  Answer(sent[0], 1);
  EXPECT_EQ(TakeComputes().at(0).step, 1);
}

// A slot may begin with a work only after it was told to stop it: it hears so when it asks for values. Else it would wait for values of a step
// that is over, and its slot with it.
TEST_F(CentralStorageTest, AWorkWhoseReplicaIsGoneIsStoppedWheneverItBegins) {
  Begin({0, 1});
  const std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{2});
  v1::AssignReplicas without = Assignment(v1::CENTRAL_STORAGE, 2, {0});
  without.set_assignment(2);
  Feed(replica::Assign{without});
  EXPECT_EQ(stopped, (std::vector<uint64_t>{work[1].work}));
  stopped.clear();
  Want(work[1].work, 0, 1);
  EXPECT_EQ(stopped, (std::vector<uint64_t>{work[1].work}));
  EXPECT_TRUE(pulls.empty());
  Feed(replica::WeightsDone{work[1].work, 0, 1});
  Feed(replica::Computed{work[1].work, absl::CancelledError("stopped")});
  EXPECT_EQ(failure, "");
  Want(work[0].work, 0, 1);
  EXPECT_EQ(pulls.size(), size_t{1}) << "the other one goes on";
}

TEST_F(CentralStorageTest, AJobThatWentOnIsFoundAgain) {
  Begin({0});
  const std::vector<replica::Compute> work = TakeComputes();
  Want(work[0].work, 0, 1);
  Feed(replica::Reply{pulls[0].request, absl::FailedPreconditionError("want_version 0 is gone")});
  EXPECT_EQ(stopped, (std::vector<uint64_t>{work[0].work}));
  pulls.clear();
  Feed(replica::Computed{work[0].work, absl::CancelledError("stopped")});
  EXPECT_EQ(failure, "");
  now_ += absl::Seconds(2);
  Feed(replica::Timer{});
  ASSERT_EQ(pulls.size(), size_t{kPartitions});
  const std::vector<replica::Send> found = std::exchange(pulls, {});
  Answer(found[0], 2);
  Answer(found[1], 3);
  EXPECT_EQ(TakeComputes().at(0).step, 2) << "the version that all have, or had";
}

// A replica without examples in the step still validates when all partitions have made the update: the step waits for it, and goes on.
TEST_F(CentralStorageTest, AStepEndsWithItsLastValidation) {
  v1::AssignReplicas assignment = Assignment(v1::CENTRAL_STORAGE, 2, {0, 1});
  assignment.mutable_spec()->set_validation_freq_steps(3);
  assignment.mutable_data()->set_validation_examples(8);
  assignment.mutable_data()->set_train_examples(25);  // the last step has one
  Feed(replica::Assign{assignment});
  AnswerPulls(3);
  ASSERT_EQ(evaluations.size(), size_t{2});
  EndEvaluation(evaluations[0]);
  Finish(TakeComputes().at(0), 1);
  for (const replica::Send& push : TakePushes()) Answer(push, 4);  // somebody else had pushed replica 1's
  EXPECT_EQ(core_.step(), 3) << "replica 1 has not validated";
  EndEvaluation(evaluations[1]);
  ASSERT_EQ(evaluations.size(), size_t{4}) << "all steps are done: the epoch's validation";
  EXPECT_EQ(core_.step(), 3) << "the last step is over with it";
  EndEvaluation(evaluations[2]);
  EndEvaluation(evaluations[3]);
  EXPECT_EQ(core_.step(), 4);
  now_ += absl::Seconds(1);
  Feed(replica::Timer{});
  EXPECT_EQ(Validated(0, 3), 4u);
  EXPECT_EQ(Validated(1, 3), 4u);
}

// ---- PARAMETER_SERVER with local_sync ----

TEST_F(StrategiesTest, AGroupPushesItsSumAsOne) {
  v1::AssignReplicas assignment = Assignment(v1::PARAMETER_SERVER, 4, {2, 3});
  assignment.mutable_spec()->set_local_sync(2);
  Feed(replica::Assign{assignment});
  ASSERT_EQ(pulls.size(), size_t{kPartitions}) << "one set of values for both";
  EXPECT_EQ(pulls[0].frame.replica_first.value, 1) << "the group";
  AnswerPulls(5, 0);
  std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{2});
  EXPECT_EQ(work[0].replica.value, 2);
  EXPECT_EQ(work[1].replica.value, 3);
  Finish(std::move(work[1]), 2);
  EXPECT_TRUE(pushes.empty()) << "both or none";
  Finish(std::move(work[0]), 1);
  const std::vector<replica::Send> sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{kPartitions});
  EXPECT_EQ(sent[0].frame.replica_first.value, 1);
  EXPECT_EQ(sent[0].frame.replica_count, 1u);
  EXPECT_EQ(sent[0].frame.sequence, 1u);
  EXPECT_EQ(sent[0].frame.examples, 4u);
  EXPECT_EQ(sent[0].frame.payload.floats()[0], 3);
  Feed(replica::Reply{sent[0].request, absl::UnavailableError("the stream broke")});
  now_ += absl::Seconds(2);
  Feed(replica::Timer{});
  const std::vector<replica::Send> again = TakePushes();
  ASSERT_EQ(again.size(), size_t{1});
  EXPECT_EQ(again[0].frame.payload.floats()[0], 3) << "added up once";
  reports.clear();
  Answer(again[0], 9, 1);    // 3 others since version 5
  Answer(sent[1], 6, 1);     // none
  ASSERT_EQ(reports.size(), size_t{2}) << "a step of each replica";
  EXPECT_EQ(reports[0].train().examples(), 2u);
  EXPECT_EQ(reports[0].staleness_sum() + reports[1].staleness_sum(), 3u);
  EXPECT_EQ(reports[0].staleness_count() + reports[1].staleness_count(), 2u);
  EXPECT_EQ(std::max(reports[0].staleness_max(), reports[1].staleness_max()), 3u);
  EXPECT_EQ(TakeComputes().size(), size_t{2});
}

// ---- FLOAT16 ----

// Asynchronous: who computes a gradient sees all of it, and says that it is left out to every partition.
TEST_F(StrategiesTest, AnAsynchronousGradientThatIsNotFiniteIsLeftOutAsAWhole) {
  v1::AssignReplicas assignment = Assignment(v1::PARAMETER_SERVER, 2, {0});
  v1::JobSpec& spec = *assignment.mutable_spec();
  spec.set_compute_dtype(v1::FLOAT16);
  v1::Model& model = *spec.mutable_model();  // one kernel as large as the space
  model.add_layers()->mutable_input()->add_shape(static_cast<int64_t>(kPartitions * kNumbers));
  model.add_layers()->mutable_dense()->set_units(1);
  model.mutable_layers(1)->mutable_dense()->set_use_bias(false);
  Feed(replica::Assign{assignment});
  ASSERT_EQ(failure, "");
  AnswerPulls(0, 0);
  EXPECT_TRUE(TakeComputes().empty()) << "an answer without a scale is asked for again";
  now_ += absl::Seconds(2);
  loss_scale = 8;
  Feed(replica::Timer{});
  AnswerPulls(0, 0);
  std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].loss_scale, 8);
  replica::Compute compute = std::move(work[0]);
  work.clear();
  for (float& g : compute.gradient.mutable_floats()) g = 1;
  compute.gradient.mutable_floats()[kNumbers + 3] = NAN;
  const uint64_t number = compute.work;
  compute = {};
  Feed(replica::GradientReady{number, 0, kPartitions});
  EXPECT_TRUE(pushes.empty()) << "the rest may not be finite";
  Feed(replica::Computed{number, BatchSums{4, 1, {}}});
  loss_scale = 4;
  ASSERT_EQ(pushes.size(), size_t{kPartitions});
  for (const replica::Send& push : TakePushes()) {
    EXPECT_TRUE(push.frame.not_finite);
    EXPECT_EQ(push.frame.loss_scale, 8);
    EXPECT_EQ(push.frame.examples, 0u);
    EXPECT_TRUE(push.frame.payload.empty());
    Answer(push, 1, 1);
  }
  work = TakeComputes();
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].loss_scale, 4);
  Finish(std::move(work[0]), 1);
  ASSERT_EQ(pushes.size(), size_t{kPartitions});
  for (const replica::Send& push : TakePushes()) {
    EXPECT_FALSE(push.frame.not_finite);
    EXPECT_EQ(push.frame.loss_scale, 4);
    EXPECT_EQ(push.frame.examples, 4u);
  }
}

TEST_F(StrategiesTest, PartitionsThatDifferInTheLossScaleFailTheJob) {
  v1::AssignReplicas assignment = Assignment(v1::MULTI_WORKER_MIRRORED, 1, {0});
  assignment.mutable_spec()->set_compute_dtype(v1::FLOAT16);
  Feed(replica::Assign{assignment});
  loss_scale = 8;
  AnswerPulls(2);
  std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), 1u);
  EXPECT_EQ(work[0].loss_scale, 8);
  Finish(std::move(work[0]), 1);
  for (const replica::Send& push : TakePushes()) {
    EXPECT_EQ(push.frame.loss_scale, 8);
    Answer(push, 3);
    loss_scale /= 2;
  }
  EXPECT_EQ(failure, "the partitions differ in the loss scale after step 2: 4 in partition 1, 8 in others; resume from a checkpoint");
}

TEST_F(StrategiesTest, ASplitGroupIsRefused) {
  v1::AssignReplicas assignment = Assignment(v1::PARAMETER_SERVER, 4, {1, 2});
  assignment.mutable_spec()->set_local_sync(2);
  Feed(replica::Assign{assignment});
  EXPECT_EQ(failure,
            "assignment: the 2 replicas of a local_sync group are not together; coordinator and worker are of different "
            "versions");
}

}  // namespace
}  // namespace cairn
