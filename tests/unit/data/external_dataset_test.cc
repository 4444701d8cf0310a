// Goal: the examples of data.external are their own keys, by split, as bytes and as numbers; batches have each index
// once an epoch; what is out of range, or no count, is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/data/dataset.h"
#include "common/model/example_key.h"

namespace cairn {
namespace {

v1::Data DataOf(int64_t train, int64_t validation) {
  v1::Data data;
  data.mutable_external()->set_examples(train);
  data.mutable_external()->set_validation_examples(validation);
  return data;
}

TEST(ExternalDataset, ExamplesAreTheirKeys) {
  const auto dataset = OpenDataset(DataOf(300, 2), {});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->info().train_examples(), 300u);
  EXPECT_EQ((*dataset)->info().validation_examples(), 2u);
  EXPECT_EQ((*dataset)->size(v1::TEST), 0);
  EXPECT_EQ((*dataset)->label_size(), 0);
  uint8_t key[kExampleKeyBytes];
  ASSERT_TRUE((*dataset)->ReadBytes(v1::VALIDATION, 1, key, nullptr).ok());
  EXPECT_EQ(ReadExampleKey(key).index, 1);
  EXPECT_EQ(ReadExampleKey(key).split, v1::VALIDATION);
  float numbers[kExampleKeyBytes];
  ASSERT_TRUE((*dataset)->Read(v1::TRAIN, 299, numbers, nullptr).ok());
  EXPECT_EQ(numbers[0], 43.0f);
  EXPECT_EQ(numbers[1], 1.0f);
  EXPECT_EQ((*dataset)->ReadBytes(v1::TRAIN, 300, key, nullptr).message(),
            "data.external: example 300 of the TRAIN split, which has 300");
  EXPECT_FALSE((*dataset)->ReadBytes(v1::TRAIN, -1, key, nullptr).ok());
}

TEST(ExternalDataset, ABatchHasEachExampleOnceAnEpoch) {
  const auto dataset = OpenDataset(DataOf(50, 0), {});
  ASSERT_TRUE(dataset.ok());
  v1::JobSpec spec;
  spec.set_batch_size(8);
  spec.set_replicas(3);
  spec.set_epochs(2);
  const StepPlan plan = StepPlan::Of(spec, 50);
  BatchSource batches(*dataset, plan, {});
  std::multiset<int64_t> seen;
  for (int64_t step = 0; step < plan.total_steps; ++step) {
    for (int r = 0; r < 3; ++r) {
      const absl::StatusOr<Batch> batch = batches.Get(step, ReplicaId(r));
      ASSERT_TRUE(batch.ok()) << batch.status();
      for (int64_t i = 0; i < batch->examples; ++i) {
        seen.insert(ReadExampleKey(batch->inputs.data() + i * kExampleKeyBytes).index);
      }
    }
  }
  EXPECT_EQ(seen.size(), 100u);
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(seen.count(i), 2u) << i;
}

TEST(ExternalDataset, BadCountsAreRefused) {
  EXPECT_EQ(OpenDataset(DataOf(0, 0), {}).status().message(),
            "data.external.examples: 0 is not positive; give the number of examples in the training split");
  EXPECT_EQ(OpenDataset(DataOf(1, -1), {}).status().message(),
            "data.external.validation_examples: -1 is not within 0 .. 1099511627776");
}

}  // namespace
}  // namespace cairn
