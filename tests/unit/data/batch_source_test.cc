// Goal: batches are a pure function of (seed, plan): every example once an epoch, the same as a plain loop whatever the
// threads, the prefetch and the order of access; errors are returned by Get; memory is reused, and never while it is
// being read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "common/base/random.h"
#include "common/data/augment.h"
#include "common/data/dataset.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Example i is three numbers i, i + 0.25, -i; its label is i.
class CountingDataset : public Dataset {
 public:
  explicit CountingDataset(int64_t size, int64_t broken = -1, bool in_memory = false)
      : size_(size), broken_(broken), in_memory_(in_memory) {}
  bool in_memory() const override { return in_memory_; }
  const v1::DataInfo& info() const override { return info_; }
  int64_t size(v1::Split split) const override { return split == v1::TRAIN ? size_ : 0; }
  int64_t example_size() const override { return 3; }
  int64_t label_size() const override { return 1; }
  absl::Status Read(v1::Split, int64_t index, float* example, float* label) const override {
    ++reads;
    if (index == broken_) return absl::DataLossError("picture 7 is broken");
    example[0] = static_cast<float>(index);
    example[1] = static_cast<float>(index) + 0.25f;
    example[2] = -static_cast<float>(index);
    *label = static_cast<float>(index);
    return absl::OkStatus();
  }
  mutable std::atomic<int64_t> reads = 0;

 private:
  const v1::DataInfo info_;
  const int64_t size_, broken_;
  const bool in_memory_;
};

std::vector<float> Labels(const Batch& batch) { return {batch.labels.floats().begin(), batch.labels.floats().end()}; }

// The expected answer of Get, from the definitions alone.
std::vector<float> NaiveLabels(const StepPlan& plan, const BatchSourceOptions& options, int64_t step, int replica) {
  std::vector<float> labels;
  const PlaceRange places = plan.Places(step, ReplicaId(replica));
  const Permutation order(StreamKey(options.seed, RandomStream::kShuffle), step / plan.steps_per_epoch, plan.examples);
  for (int64_t p = places.begin; p < places.end; ++p) {
    labels.push_back(static_cast<float>(options.shuffle ? order(p) : p));
  }
  return labels;
}

void ExpectNaive(const absl::StatusOr<Batch>& batch, const StepPlan& plan, const BatchSourceOptions& options,
                 int64_t step, int replica) {
  ASSERT_TRUE(batch.ok()) << batch.status();
  const std::vector<float> expected = NaiveLabels(plan, options, step, replica);
  ASSERT_EQ(batch->examples, static_cast<int64_t>(expected.size()));
  EXPECT_EQ(Labels(*batch), expected) << "step " << step << " replica " << replica;
  for (int64_t i = 0; i < batch->examples; ++i) {
    EXPECT_EQ(batch->inputs.floats()[3 * i], expected[i]);
    EXPECT_EQ(batch->inputs.floats()[3 * i + 1], expected[i] + 0.25f);
    EXPECT_EQ(batch->inputs.floats()[3 * i + 2], -expected[i]);
  }
}

TEST(BatchSourceTest, EveryExampleOnceAnEpoch) {
  const auto dataset = std::make_shared<CountingDataset>(103);
  const StepPlan plan = StepPlan::Make(103, 10, 3, 0, 3);
  BatchSource source(dataset, plan, {.seed = 4, .shuffle = true, .decode_threads = 2, .prefetch = 2});
  std::vector<std::vector<float>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<float> seen;
    for (int64_t s = 0; s < plan.steps_per_epoch; ++s) {
      for (int r = 0; r < 3; ++r) {
        const auto batch = source.Get(epoch * plan.steps_per_epoch + s, ReplicaId(r));
        ASSERT_TRUE(batch.ok()) << batch.status();
        for (float label : batch->labels.floats()) seen.push_back(label);
      }
    }
    EXPECT_EQ(seen.size(), 103);
    EXPECT_EQ(std::set<float>(seen.begin(), seen.end()).size(), 103);
    orders.push_back(seen);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(BatchSourceTest, EqualsAPlainLoopWhateverThreadsAndPrefetch) {
  const StepPlan plan = StepPlan::Make(97, 16, 4, 0, 2);
  for (bool shuffle : {true, false}) {
    for (int threads : {0, 1, 3}) {
      for (int prefetch : {0, 1, 5}) {
        const BatchSourceOptions options{
            .seed = 9, .shuffle = shuffle, .decode_threads = threads, .prefetch = prefetch};
        BatchSource source(std::make_shared<CountingDataset>(97), plan, options);
        for (int64_t s = 0; s < plan.total_steps; ++s) {
          for (int r = 0; r < 4; ++r) ExpectNaive(source.Get(s, ReplicaId(r)), plan, options, s, r);
        }
      }
    }
  }
}

TEST(BatchSourceTest, AnyOrderOfAccess) {
  const uint32_t seed = 77;
  const StepPlan plan = StepPlan::Make(50, 8, 2, 0, 4);
  const BatchSourceOptions options{.seed = 1, .shuffle = true, .decode_threads = 2, .prefetch = 3};
  BatchSource source(std::make_shared<CountingDataset>(50), plan, options);
  for (uint32_t i = 0; i < 500; ++i) {
    const PhiloxBlock random = Philox({seed, 0}, {i, 0, 0, 0});
    const int64_t step = random[0] % plan.total_steps;
    const int replica = random[1] % 2;
    SCOPED_TRACE("seed 77");
    ExpectNaive(source.Get(step, ReplicaId(replica)), plan, options, step, replica);
    if (random[2] % 5 == 0) source.Forget(ReplicaId(random[3] % 2));
  }
}

TEST(BatchSourceTest, ManyThreadsAskAtOnce) {
  const StepPlan plan = StepPlan::Make(200, 16, 4, 0, 3);
  const BatchSourceOptions options{.seed = 3, .shuffle = true, .decode_threads = 2, .prefetch = 2};
  for (bool in_memory : {false, true}) {
    BatchSource source(std::make_shared<CountingDataset>(200, -1, in_memory), plan, options);
    std::vector<std::thread> threads;
    for (int r = 0; r < 4; ++r) {
      threads.emplace_back([&, r] {
        for (int64_t s = 0; s < plan.total_steps; ++s) ExpectNaive(source.Get(s, ReplicaId(r)), plan, options, s, r);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// Batches that are held keep their numbers while later ones are decoded into reused memory.
TEST(BatchSourceTest, HeldBatchesStayAsTheyAre) {
  const StepPlan plan = StepPlan::Make(400, 8, 1, 0, 1);
  const BatchSourceOptions options{.seed = 3, .shuffle = true, .decode_threads = 1, .prefetch = 4};
  std::map<int64_t, Batch> held;
  {
    BatchSource source(std::make_shared<CountingDataset>(400), plan, options);
    for (int64_t s = 0; s < plan.total_steps; ++s) {
      auto batch = source.Get(s, ReplicaId(0));
      ASSERT_TRUE(batch.ok());
      if (s % 3 == 0) held[s] = *std::move(batch);
    }
  }
  for (const auto& [step, batch] : held) ExpectNaive(batch, plan, options, step, 0);  // also after the source is gone
}

TEST(BatchSourceTest, MoreReplicasThanExamplesGiveEmptyBatches) {
  const StepPlan plan = StepPlan::Make(9, 8, 8, 0, 1);
  BatchSource source(std::make_shared<CountingDataset>(9), plan, {});
  EXPECT_EQ(source.Get(1, ReplicaId(0))->examples, 1);
  EXPECT_EQ(source.Get(1, ReplicaId(7))->examples, 0);
}

TEST(BatchSourceTest, ErrorsComeOutOfGet) {
  const StepPlan plan = StepPlan::Make(40, 8, 1, 0, 1);
  const BatchSourceOptions options{.seed = 0, .shuffle = false, .decode_threads = 1, .prefetch = 2};
  BatchSource source(std::make_shared<CountingDataset>(40, /*broken=*/17), plan, options);
  for (int64_t s : {0, 1, 2, 3, 4}) {
    const auto batch = source.Get(s, ReplicaId(0));
    if (s == 2) {
      EXPECT_EQ(batch.status().code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(batch.status().message()), HasSubstr("picture 7"));
    } else {
      EXPECT_TRUE(batch.ok()) << batch.status();
    }
  }
  EXPECT_EQ(source.Get(5, ReplicaId(0)).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(source.Get(-1, ReplicaId(0)).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(source.Get(0, ReplicaId(1)).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(BatchSourceTest, AnotherNumberOfExamplesThanPlannedIsRefused) {
  BatchSource source(std::make_shared<CountingDataset>(39), StepPlan::Make(40, 8, 1, 0, 1), {});
  const absl::Status status = source.Get(0, ReplicaId(0)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("39"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("40"));
}

// Batches that were decoded ahead are used: one replica reads no example twice in an epoch.
TEST(BatchSourceTest, NothingIsDecodedTwice) {
  const auto dataset = std::make_shared<CountingDataset>(640);
  const StepPlan plan = StepPlan::Make(640, 8, 1, 0, 1);
  {
    BatchSource source(dataset, plan, {.seed = 1, .shuffle = true, .decode_threads = 2, .prefetch = 4});
    for (int64_t s = 0; s < plan.total_steps; ++s) ASSERT_TRUE(source.Get(s, ReplicaId(0)).ok());
  }
  EXPECT_LE(dataset->reads, 640);
}

// The augmentation of an example depends on the pass and on its number, whatever the step, the replica and the thread.
TEST(BatchSourceTest, AugmentsByPassAndExample) {
  v1::Data data;
  data.add_augmentation()->mutable_random_brightness()->add_factor(0.3f);
  const StepPlan plan = StepPlan::Make(50, 8, 2, 17, 2);  // 7 batches a pass
  for (int threads : {0, 2}) {
    BatchSourceOptions options{.seed = 6, .shuffle = true, .decode_threads = threads, .prefetch = 2};
    options.augmenter = Augmenter::Make(data, {1, 1, 3}, options.seed).value();
    BatchSource source(std::make_shared<CountingDataset>(50, -1, /*in_memory=*/true), plan, options);
    for (int64_t step = 0; step < plan.total_steps; ++step) {
      const Permutation order(StreamKey(6, RandomStream::kShuffle), plan.PassOf(step), 50);
      for (int r = 0; r < 2; ++r) {
        const auto batch = source.Get(step, ReplicaId(r));
        ASSERT_TRUE(batch.ok()) << batch.status();
        const PlaceRange places = plan.Places(step, ReplicaId(r));
        for (int64_t i = 0; i < batch->examples; ++i) {
          const float number = static_cast<float>(order(places.begin + i));
          float expected[3] = {number, number + 0.25f, -number};
          options.augmenter->Apply(plan.PassOf(step), order(places.begin + i), expected);
          EXPECT_EQ(batch->labels.floats()[i], number);
          for (int j = 0; j < 3; ++j) EXPECT_EQ(batch->inputs.floats()[3 * i + j], expected[j]) << step;
        }
      }
    }
  }
}

// A crop makes the model's input from examples of another size.
TEST(BatchSourceTest, ExamplesMayHaveAnotherSizeThanTheModelsInput) {
  v1::Data data;
  data.set_image_height(1);
  data.set_image_width(3);
  data.add_augmentation()->mutable_random_crop()->set_height(1);
  const StepPlan plan = StepPlan::Make(50, 8, 2, 0, 2);
  for (const int32_t width : {2, 4}) {
    v1::RandomCrop& crop = *data.mutable_augmentation(0)->mutable_random_crop();
    crop.set_width(width == 2 ? 2 : 3);
    crop.set_padding(0);
    BatchSourceOptions options{.seed = 6, .shuffle = false, .decode_threads = 2, .prefetch = 2};
    options.augmenter = Augmenter::Make(data, {1, width, 1}, options.seed).value();
    BatchSource source(std::make_shared<CountingDataset>(50, -1, /*in_memory=*/true), plan, options);
    std::set<float> firsts;
    for (int64_t step = 0; step < plan.total_steps; ++step) {
      const auto batch = source.Get(step, ReplicaId(0));
      ASSERT_TRUE(batch.ok()) << batch.status();
      ASSERT_EQ(batch->inputs.floats().size(), static_cast<size_t>(batch->examples * width));
      for (int64_t i = 0; i < batch->examples; ++i) {
        const float number = batch->labels.floats()[i];
        float expected[4] = {number, number + 0.25f, -number};
        options.augmenter->Apply(plan.PassOf(step), static_cast<uint64_t>(number), expected);
        for (int j = 0; j < width; ++j) EXPECT_EQ(batch->inputs.floats()[width * i + j], expected[j]) << step;
        if (width == 2) firsts.insert(expected[0] - number);
      }
    }
    if (width == 2) {
      EXPECT_GT(firsts.count(0), 0u);
      EXPECT_GT(firsts.count(0.25f), 0u);
    }
  }
}

// Example i is three bytes i, i + 1, 255 - i.
class ByteDataset : public CountingDataset {
 public:
  explicit ByteDataset(bool in_memory) : CountingDataset(50, -1, in_memory) {}
  Element element() const override { return Element::kByte; }
  absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const override {
    uint8_t bytes[3];
    CAIRN_RETURN_IF_ERROR(ReadBytes(split, index, bytes, label));
    BytesToFloats(bytes, 3, example);
    return absl::OkStatus();
  }
  absl::Status ReadBytes(v1::Split, int64_t index, uint8_t* example, float* label) const override {
    const auto number = static_cast<uint8_t>(index);
    example[0] = number;
    example[1] = static_cast<uint8_t>(number + 1);
    example[2] = static_cast<uint8_t>(255 - number);
    *label = number;
    return absl::OkStatus();
  }
};

TEST(BatchSourceTest, BytesStayBytesUnlessTheyAreAugmented) {
  v1::Data data;
  data.add_augmentation()->mutable_random_brightness()->add_factor(0.3f);
  const StepPlan plan = StepPlan::Make(50, 8, 2, 0, 2);
  for (bool in_memory : {false, true}) {
    for (bool augments : {false, true}) {
      BatchSourceOptions options{.seed = 6, .shuffle = true, .decode_threads = 2, .prefetch = 2};
      if (augments) options.augmenter = Augmenter::Make(data, {1, 1, 3}, options.seed).value();
      BatchSource source(std::make_shared<ByteDataset>(in_memory), plan, options);
      EXPECT_EQ(source.element(), augments ? Element::kFloat : Element::kByte);
      for (int64_t step = 0; step < plan.total_steps; ++step) {
        const auto batch = source.Get(step, ReplicaId(step % 2));
        ASSERT_TRUE(batch.ok()) << batch.status();
        ASSERT_EQ(batch->element, source.element());
        ASSERT_EQ(batch->input_numbers(), batch->examples * 3);
        for (int64_t i = 0; i < batch->examples && !augments; ++i) {
          const auto number = static_cast<uint8_t>(batch->labels.floats()[i]);
          const uint8_t* example = batch->inputs.data() + 3 * i;
          EXPECT_EQ(example[0], number);
          EXPECT_EQ(example[1], number + 1);
          EXPECT_EQ(example[2], 255 - number);
        }
      }
    }
  }
}

TEST(BatchSourceTest, AlignedForVectors) {
  BatchSource source(std::make_shared<CountingDataset>(40), StepPlan::Make(40, 7, 1, 0, 1), {});
  std::vector<uintptr_t> misaligned;
  for (int64_t s = 0; s < 6; ++s) {
    const auto batch = source.Get(s, ReplicaId(0));
    misaligned.push_back(reinterpret_cast<uintptr_t>(batch->inputs.data()) % 64);
    misaligned.push_back(reinterpret_cast<uintptr_t>(batch->labels.data()) % 64);
  }
  EXPECT_THAT(misaligned, Each(0));
}

}  // namespace
}  // namespace cairn
