// Goal: generated data sets are as described: readable, of the right shape, every class about as often, the same for
// the same seed, and the first examples do not depend on how many there are.
#include "common/data/generated.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/data/dataset.h"
#include "common/data/limits.h"
#include "tests/unit/data/data_files.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

std::shared_ptr<const Dataset> Open(const std::string& path, const Shape& shape = {}) {
  v1::Data data;
  data.set_path(path);
  auto dataset = OpenDataset(data, shape);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return dataset.ok() ? *dataset : nullptr;
}

std::vector<float> Example(const Dataset& dataset, v1::Split split, int64_t index, float* label) {
  std::vector<float> example(dataset.example_size());
  EXPECT_TRUE(dataset.Read(split, index, example.data(), label).ok());
  return example;
}

void ExpectBalanced(const Dataset& dataset, int classes) {
  std::map<float, int> counts;
  for (int64_t i = 0; i < dataset.size(v1::TRAIN); ++i) {
    float label;
    (void)Example(dataset, v1::TRAIN, i, &label);
    ++counts[label];
  }
  ASSERT_EQ(counts.size(), static_cast<size_t>(classes));
  const double expected = static_cast<double>(dataset.size(v1::TRAIN)) / classes;
  for (const auto& [label, count] : counts) EXPECT_NEAR(count, expected, 5 * std::sqrt(expected)) << label;
}

TEST(ColourGlyphs, AreACifar10DataSet) {
  TempFolder dir;
  ASSERT_TRUE(WriteColourGlyphs(dir / "a", 1003, 50, 7).ok());
  ASSERT_TRUE(WriteColourGlyphs(dir / "b", 20, 60, 7).ok());
  ASSERT_TRUE(WriteColourGlyphs(dir / "c", 20, 50, 8).ok());
  const auto a = Open(dir / "a"), b = Open(dir / "b"), c = Open(dir / "c");
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(a->info().format(), v1::Data::CIFAR10);
  EXPECT_EQ(a->size(v1::TRAIN), 1003);
  EXPECT_EQ(a->size(v1::TEST), 50);
  EXPECT_THAT(a->info().example_shape(), ElementsAre(32, 32, 3));
  EXPECT_EQ(a->info().class_names(7), "seven");
  ExpectBalanced(*a, 10);
  float label, other;
  for (int i : {0, 11, 19}) {
    EXPECT_EQ(Example(*a, v1::TRAIN, i, &label), Example(*b, v1::TRAIN, i, &other))
        << "more pictures do not change the first ones";
    EXPECT_EQ(label, other);
    EXPECT_NE(Example(*a, v1::TRAIN, i, &label), Example(*c, v1::TRAIN, i, &other)) << "another seed";
    EXPECT_NE(Example(*a, v1::TRAIN, i, &label), Example(*a, v1::TEST, i, &other));
  }
  EXPECT_EQ(WriteColourGlyphs(dir / "d", 4, 1, 1), absl::InvalidArgumentError("count: 4 is not in 5 to 10000000"));
}

TEST(Texts, AreTfRecordsOfWords) {
  TempFolder dir;
  ASSERT_TRUE(WriteTexts(dir / "a", 800, 40, 7).ok());
  const auto a = Open(dir / "a", {kTextWordsMax});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->info().format(), v1::Data::TFRECORD);
  EXPECT_EQ(a->info().classes(), kTextTopics);
  EXPECT_EQ(a->size(v1::TEST), 40);
  ExpectBalanced(*a, kTextTopics);
  for (int64_t i = 0; i < 200; ++i) {
    float label;
    const std::vector<float> words = Example(*a, v1::TRAIN, i, &label);
    size_t length = words.size();
    while (length > 0 && words[length - 1] == 0) --length;
    EXPECT_GE(length, 10u);
    for (size_t w = 0; w < length; ++w) {
      EXPECT_GE(words[w], 1);
      EXPECT_LT(words[w], kTextVocabulary);
      if (words[w] <= 400) {
        EXPECT_EQ(static_cast<int>(words[w] - 1) / 100, label) << "a topic's word in another topic's text";
      }
    }
  }
}

}  // namespace
}  // namespace cairn
