// Goal: what a worker sends under each strategy, message by message: one push a partition for a whole subtree of
// replicas; a local_sync group pushes its sum as one, and staleness is what others did meanwhile; what the node adds up
// is clipped and rounded as what is added up here.
#include <cmath>
#include <vector>

#include "common/tensor/dtype.h"
#include "tests/unit/model/model_text.h"
#include "tests/unit/worker/strategies_fixture.h"

namespace cairn {
namespace {

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

// Partition 0 was clipped by a factor of a sum that partition 1 lost then, with its primary. What that one measures
// anew is of other gradients, and would give another factor: a step is clipped by one.
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
  for (const replica::Send& push : sent) {
    EXPECT_EQ(push.frame.version, 5u) << "of the values";
    v1::EpochFigures figures;
    ASSERT_TRUE(figures.ParseFromString(push.frame.figures));
    EXPECT_EQ(figures.replica_steps(), push.frame.partition.value == 0 ? 2u : 0u);
    EXPECT_EQ(figures.train().examples(), push.frame.partition.value == 0 ? 4u : 0u);
  }
  Feed(replica::Reply{sent[0].request, absl::UnavailableError("the stream broke")});
  now_ += absl::Seconds(2);
  Feed(replica::Timer{});
  const std::vector<replica::Send> again = TakePushes();
  ASSERT_EQ(again.size(), size_t{1});
  EXPECT_EQ(again[0].frame.payload.floats()[0], 3) << "added up once";
  reports.clear();
  Answer(again[0], 9, 1);
  Answer(sent[1], 6, 1);
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
  EXPECT_EQ(
      failure,
      "the partitions differ in the loss scale after step 2: 4 in partition 1, 8 in others; resume from a checkpoint");
}

TEST_F(StrategiesTest, ASplitGroupIsRefused) {
  v1::AssignReplicas assignment = Assignment(v1::PARAMETER_SERVER, 4, {1, 2});
  assignment.mutable_spec()->set_local_sync(2);
  Feed(replica::Assign{assignment});
  EXPECT_EQ(
      failure,
      "assignment: the 2 replicas of a local_sync group are not together; coordinator and worker are of different "
      "versions");
}

// ---- sums of the node ----

class JoiningTest : public StrategiesTest {
 protected:
  JoiningTest() : StrategiesTest(Joining()) {}
  // A group of two on this worker, clipped by the norm of everything.
  v1::AssignReplicas Clipped() {
    v1::AssignReplicas assignment = Assignment(v1::PARAMETER_SERVER, 4, {2, 3});
    assignment.mutable_spec()->set_local_sync(2);
    assignment.mutable_spec()->set_wire_dtype(v1::BFLOAT16);
    assignment.mutable_spec()->mutable_optimizer()->set_global_clipnorm(1);
    *assignment.mutable_spec()->mutable_model() =
        FromText<v1::Model>("layers { input { shape: 15 } } layers { dense { units: 1 } }");
    return assignment;
  }
};

// The sum comes in float32, is clipped when all of it is there, and is rounded then.
TEST_F(JoiningTest, AnAsynchronousSumOfTheNodeIsClippedBeforeItIsRounded) {
  Feed(replica::Assign{Clipped()});
  AnswerPulls(0);
  const std::vector<replica::Compute> work = TakeComputes();
  ASSERT_EQ(work.size(), size_t{2});
  ASSERT_NE(work[0].joint, nullptr);
  EXPECT_EQ(work[0].joint, work[1].joint);
  EXPECT_EQ(work[0].joint->type, v1::FLOAT32);
  EXPECT_EQ(work[0].joint->node, (TreeNode{2, 2}));
  Buffer sum = work[0].joint->gradient;
  for (float& number : sum.mutable_floats()) number = 4;
  for (uint32_t p = 0; p < kPartitions; ++p) Feed(replica::GradientSummed{work[0].joint->number, p, p + 1});
  EXPECT_TRUE(pushes.empty()) << "the norm is of all of it";
  Feed(replica::Computed{work[0].work, BatchSums{2, 1, {}}});
  EXPECT_TRUE(pushes.empty());
  Feed(replica::Computed{work[1].work, BatchSums{2, 1, {}}});
  const std::vector<replica::Send> sent = TakePushes();
  ASSERT_EQ(sent.size(), size_t{kPartitions});
  for (const replica::Send& push : sent) {
    EXPECT_EQ(push.frame.examples, 4u);
    EXPECT_EQ(push.frame.dtype, v1::BFLOAT16);
    ASSERT_EQ(push.frame.payload.size(), kNumbers * 2);
    std::vector<float> numbers(kNumbers);
    ToFloat({push.frame.payload.data(), push.frame.payload.size()}, v1::BFLOAT16, absl::MakeSpan(numbers));
    EXPECT_EQ(numbers[0], 1) << "the mean is 1 in 16 places, its norm 4: a quarter of the sum is left";
  }
}

// One replica whose push is clipped: nothing is to be added up or rounded where it is computed, but with pieces there
// is.
TEST_F(JoiningTest, AReplicaAloneHasASumOfItsPiecesOnly) {
  for (const int pieces : {1, 2}) {
    for (const v1::Strategy strategy : {v1::PARAMETER_SERVER, v1::MULTI_WORKER_MIRRORED, v1::CENTRAL_STORAGE}) {
      v1::AssignReplicas assignment = Assignment(strategy, 2, {1});
      assignment.set_job_id(static_cast<uint64_t>(pieces * 10 + strategy));
      assignment.mutable_spec()->set_accumulate_steps(pieces);
      assignment.set_steps_per_epoch(4 / pieces);
      assignment.set_total_steps(4 / pieces);
      ReplicaCore core(Joining());
      std::vector<replica::Compute> found;
      const auto feed = [&](replica::Event event) {
        std::vector<replica::Send> sent;
        for (replica::Effect& effect : core.Step(std::move(event), now_)) {
          if (auto* send = std::get_if<replica::Send>(&effect)) sent.push_back(std::move(*send));
          if (auto* compute = std::get_if<replica::Compute>(&effect)) found.push_back(std::move(*compute));
        }
        return sent;
      };
      for (const replica::Send& pull : feed(replica::Assign{assignment})) {
        Frame frame;
        frame.kind = v1::ExchangeFrame::VALUES;
        frame.partition = pull.frame.partition;
        frame.dtype = v1::FLOAT32;
        frame.payload = Buffer::Zeros(kNumbers * sizeof(float));
        feed(replica::Reply{pull.request, std::move(frame)});
      }
      ASSERT_EQ(found.size(), size_t{1}) << v1::Strategy_Name(strategy);
      EXPECT_EQ(found[0].joint != nullptr, pieces > 1) << v1::Strategy_Name(strategy);
      if (pieces > 1) {
        EXPECT_EQ(found[0].joint->type, v1::FLOAT32);
      }
    }
  }
}

}  // namespace
}  // namespace cairn
