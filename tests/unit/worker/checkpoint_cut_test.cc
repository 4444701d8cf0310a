// Goal: a cut is whole, of one version, and its manifest holds what the partitions said; anything else is an error that
// names the ps. The book keeps keep_max checkpoints, the best, and those that wait to be compared.
#include "worker/checkpoint/checkpoint_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/checkpoint/checkpoint_book.h"
#include "worker/limits.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Dense 2 -> 1: 3 numbers in 2 partitions of 16, on "a" and "b".
std::shared_ptr<const v1::AssignReplicas> Assignment(bool synchronous, float momentum) {
  auto assignment = std::make_shared<v1::AssignReplicas>();
  v1::JobSpec& spec = *assignment->mutable_spec();
  spec.mutable_model()->add_layers()->mutable_input()->add_shape(2);
  spec.mutable_model()->add_layers()->mutable_dense()->set_units(1);
  spec.set_strategy(synchronous ? v1::MULTI_WORKER_MIRRORED : v1::PARAMETER_SERVER);
  spec.mutable_optimizer()->mutable_sgd()->set_momentum(momentum);
  spec.set_replicas(2);
  assignment->set_steps_per_epoch(5);
  assignment->set_total_steps(10);
  for (uint32_t p = 0; p < 2; ++p) {
    v1::Route& route = *assignment->add_routes();
    route.set_ps(p == 0 ? "a" : "b");
    route.mutable_range()->set_partition(p);
    route.mutable_range()->set_begin(16 * p);
    route.mutable_range()->set_end(16 * (p + 1));
  }
  return assignment;
}

// A tensor of a partition, all of whose numbers are `number`.
Frame Tensor(uint32_t partition, uint32_t tensor, uint32_t tensors, float number, uint64_t version,
             std::vector<uint64_t> sequences) {
  Frame frame;
  frame.kind = v1::ExchangeFrame::IMAGE;
  frame.tensor = tensor;
  frame.tensors = tensors;
  frame.dtype = v1::FLOAT32;
  frame.payload = Buffer::Allocate(16 * sizeof(float));
  for (float& f : frame.payload.mutable_floats()) f = number;
  if (tensor == 0) {
    v1::PartitionImage image;
    image.set_begin(16 * partition);
    image.set_end(16 * (partition + 1));
    image.set_slots(tensors - 1);
    image.set_version(version);
    for (uint64_t s : sequences) image.mutable_sequences()->add_last_sequence(s);
    frame.image = image.SerializeAsString();
  }
  return frame;
}

TEST(CheckpointCut, HasEveryTensorInItsPlace) {
  CheckpointCut cut(7, 7, Assignment(true, 0.9f));
  for (uint32_t p = 0; p < 2; ++p) {
    for (uint32_t t = 0; t < 2; ++t)
      cut.Add(p, Tensor(p, t, 2, 10.0f * static_cast<float>(p) + static_cast<float>(t), 7, {7, 7}));
    EXPECT_TRUE(cut.End(p, absl::OkStatus()).ok());
  }
  const auto contents = cut.Contents(JobId(3));
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->values.floats()[15], 0);
  EXPECT_EQ(contents->values.floats()[16], 10);
  ASSERT_EQ(contents->slots.size(), 1u);
  EXPECT_EQ(contents->slots[0].floats()[0], 1);
  EXPECT_EQ(contents->slots[0].floats()[31], 11);
  EXPECT_EQ(contents->manifest.step, 7);
  EXPECT_EQ(contents->manifest.job_id, 3u);
  EXPECT_TRUE(contents->manifest.replica_step.empty());
}

TEST(CheckpointCut, AnAsynchronousOneHasTheTables) {
  CheckpointCut cut(9, std::nullopt, Assignment(false, 0));
  cut.Add(0, Tensor(0, 0, 1, 0, 7, {3, 4}));
  cut.Add(1, Tensor(1, 0, 1, 0, 7, {5, 2}));
  for (size_t p = 0; p < 2; ++p) EXPECT_TRUE(cut.End(p, absl::OkStatus()).ok());
  const auto contents = cut.Contents(JobId(1));
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_THAT(contents->manifest.replica_step, ElementsAre(3, 2));
  EXPECT_EQ(contents->manifest.step, 2);
  EXPECT_THAT(contents->manifest.partitions[1].sequences, ElementsAre(5, 2));
}

TEST(CheckpointCut, HasTheLossScaleOfAllPartitions) {
  const auto cut_with = [](float first, float second) {
    CheckpointCut cut(7, 7, Assignment(true, 0));
    for (uint32_t p = 0; p < 2; ++p) {
      Frame tensor = Tensor(p, 0, 1, 0, 7, {7, 7});
      v1::PartitionImage image;
      EXPECT_TRUE(image.ParseFromString(tensor.image));
      image.mutable_loss_scale()->set_scale(p == 0 ? first : second);
      tensor.image = image.SerializeAsString();
      cut.Add(p, tensor);
      EXPECT_TRUE(cut.End(p, absl::OkStatus()).ok());
    }
    return cut.Contents(JobId(3));
  };
  EXPECT_EQ(cut_with(8, 8)->manifest.loss_scale.scale(), 8);
  EXPECT_THAT(std::string(cut_with(8, 4).status().message()),
              HasSubstr("ps \"b\": its partition has a different loss scale from the others"));
}

TEST(CheckpointCut, WhatDoesNotFitIsNamed) {
  const auto end = [](const Frame& frame, absl::Status status = absl::OkStatus()) {
    CheckpointCut cut(7, 7, Assignment(true, 0));
    cut.Add(1, frame);
    return std::string(cut.End(1, status).message());
  };
  EXPECT_THAT(end(Tensor(1, 0, 1, 0, 8, {8, 8})), HasSubstr("ps \"b\": received version 8, expected 7"));
  EXPECT_THAT(end(Tensor(0, 0, 1, 0, 7, {7, 7})), HasSubstr("is not of this job's partition"));
  EXPECT_THAT(end(Tensor(1, 0, 2, 0, 7, {7, 7})), HasSubstr("is not of this job's partition"));
  EXPECT_THAT(end(Tensor(1, 0, 1, 0, 7, {7})), HasSubstr("is not of this job's partition"));
  EXPECT_THAT(end(Tensor(1, 1, 1, 0, 7, {})), HasSubstr("tensor 1 of the image"));
  EXPECT_THAT(end(Tensor(1, 0, 1, 0, 7, {7, 7}), absl::UnavailableError("gone")), HasSubstr("ps \"b\": gone"));
  CheckpointCut cut(7, 7, Assignment(true, 0));
  EXPECT_THAT(std::string(cut.End(0, absl::OkStatus()).message()), HasSubstr("holds no image"));
}

v1::CheckpointInfo Info(int64_t step) {
  v1::CheckpointInfo info;
  info.set_step(step);
  info.set_written_unix_ms(step);
  return info;
}

TEST(CheckpointBook, KeepsTheNewest) {
  v1::Checkpoints rule;
  rule.set_keep_max(2);
  CheckpointBook book;
  for (int64_t step : {1, 2, 3}) book.Written(Info(step));
  EXPECT_THAT(book.Prune(rule, 5).steps, ElementsAre(1));
  EXPECT_THAT(book.Prune(rule, 5).steps, IsEmpty());
  v1::AssignReplicas older;  // of before
  for (int64_t step : {0, 1, 2}) *older.add_checkpoints() = Info(step);
  book.Know(older.checkpoints());
  EXPECT_THAT(book.Prune(rule, 5).steps, ElementsAre(0));
  book.Written(Info(1));  // once more: the job was taken back
  EXPECT_THAT(book.Prune(rule, 5).steps, ElementsAre(2));
}

TEST(CheckpointBook, KeepsTheBestAndWhatIsComparedLater) {
  v1::Checkpoints rule;
  rule.set_keep_max(1);
  rule.set_save_best("loss");
  CheckpointBook book;
  v1::CheckpointInfo best = Info(5);
  best.set_best(true);
  book.Best(best);
  for (int64_t step : {5, 10, 12, 15, 16}) book.Written(Info(step));
  EXPECT_THAT(book.Prune(rule, 5).steps, ElementsAre(12)) << "no figure is of step 12";
  v1::AssignReplicas later;
  for (int64_t step : {5, 10, 15, 16}) *later.add_checkpoints() = Info(step);
  EXPECT_FALSE(book.Know(later.checkpoints()));
  later.mutable_checkpoints(0)->set_compared(true);
  later.mutable_checkpoints(2)->set_compared(true);
  later.mutable_checkpoints(2)->set_written_unix_ms(7);  // one of before, that was written again since
  EXPECT_TRUE(book.Know(later.checkpoints()));
  EXPECT_FALSE(book.Know(later.checkpoints())) << "no news";
  const CheckpointBook::Pruned pruned = book.Prune(rule, 5);
  EXPECT_THAT(pruned.steps, ElementsAre(5));
  EXPECT_THAT(pruned.not_compared, IsEmpty());
  EXPECT_TRUE(book.Find(10));
  EXPECT_FALSE(book.Find(5)) << "it is there as the best one only";
}

TEST(CheckpointBook, WhatIsComparedLaterIsBounded) {
  v1::Checkpoints rule;
  rule.set_keep_max(1);
  rule.set_save_best("loss");
  CheckpointBook book;
  for (size_t epoch = 1; epoch <= kComparedLaterMax; ++epoch) book.Written(Info(static_cast<int64_t>(epoch) * 5));
  EXPECT_THAT(book.Prune(rule, 5).steps, IsEmpty());
  book.Written(Info(200));
  const CheckpointBook::Pruned pruned = book.Prune(rule, 5);
  EXPECT_THAT(pruned.steps, ElementsAre(5));
  EXPECT_THAT(pruned.not_compared, ElementsAre(5)) << "it is said in the log";
}

}  // namespace
}  // namespace cairn
