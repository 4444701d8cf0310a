// Goal: the public originals, if they are there (CAIRN_DATA, or ../shared/data beside the sources), are read as what
// they are known to be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "common/data/dataset.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;

// Empty: it is not there.
std::string RealData(const std::string& name) {
  std::vector<std::string> roots;
  if (const char* data = std::getenv("CAIRN_DATA")) roots.push_back(data);
  if (const char* source = std::getenv("CAIRN_SOURCE")) roots.push_back(std::string(source) + "/../shared/data");
  for (const std::string& root : roots) {
    if (std::filesystem::exists(root + "/" + name)) return root + "/" + name;
  }
  return "";
}

std::shared_ptr<const Dataset> OpenReal(const std::string& path, const Shape& shape) {
  v1::Data data;
  data.set_path(path);
  auto dataset = OpenDataset(data, shape);
  EXPECT_TRUE(dataset.ok()) << dataset.status();
  return dataset.ok() ? *dataset : nullptr;
}

TEST(RealData, FashionMnist) {
  const std::string path = RealData("fashion-mnist");
  if (path.empty()) GTEST_SKIP() << "no data";
  const auto dataset = OpenReal(path, {28, 28, 1});
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(v1::TRAIN), 60000);
  EXPECT_EQ(dataset->size(v1::TEST), 10000);
  EXPECT_EQ(dataset->info().classes(), 10);
  EXPECT_THAT(dataset->info().example_shape(), ElementsAre(28, 28, 1));
  std::vector<int> counts(10);
  std::vector<float> example(784);
  double sum = 0;
  for (int64_t i = 0; i < 60000; ++i) {
    float label;
    ASSERT_TRUE(dataset->Read(v1::TRAIN, i, example.data(), &label).ok());
    ++counts[static_cast<int>(label)];
    for (float v : example) sum += v;
  }
  EXPECT_THAT(counts, ::testing::Each(6000));
  EXPECT_NEAR(sum / 60000 / 784 / 255, 0.2860, 0.0001);  // the well-known mean
}

TEST(RealData, Digits) {
  const std::string path = RealData("digits/digits.csv.gz");
  if (path.empty()) GTEST_SKIP() << "no data";
  const auto flat = OpenReal(path, {64});
  ASSERT_NE(flat, nullptr);
  EXPECT_EQ(flat->size(v1::TRAIN), 1797);
  EXPECT_EQ(flat->info().classes(), 10);
  EXPECT_THAT(flat->info().example_shape(), ElementsAre(64));
  EXPECT_THAT(OpenReal(path, {8, 8, 1})->info().example_shape(), ElementsAre(8, 8, 1));
  float example[64], label;
  ASSERT_TRUE(flat->Read(v1::TRAIN, 1, example, &label).ok());
  EXPECT_EQ(label, 1);
  EXPECT_EQ(example[3], 12);
}

TEST(RealData, Beans) {
  const std::string path = RealData("beans");
  if (path.empty()) GTEST_SKIP() << "no data";
  const auto dataset = OpenReal(path, {128, 128, 3});
  ASSERT_NE(dataset, nullptr);
  EXPECT_EQ(dataset->size(v1::TRAIN), 1034);
  EXPECT_EQ(dataset->size(v1::VALIDATION), 133);
  EXPECT_EQ(dataset->size(v1::TEST), 128);
  EXPECT_THAT(dataset->info().class_names(), ElementsAre("angular_leaf_spot", "bean_rust", "healthy"));
  const auto batch = ReadBatch(*dataset, v1::TEST, {0, 128});  // every picture decodes
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->labels.floats()[0], 0);
  EXPECT_EQ(batch->labels.floats()[127], 2);
}

TEST(RealData, AdultsCategoriesAreExplained) {
  const std::string path = RealData("adult/adult.data");
  if (path.empty()) GTEST_SKIP() << "no data";
  v1::Data data;
  data.set_path(path);
  data.set_format(v1::Data::CSV);
  const absl::Status status = OpenDataset(data, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("line 1, column 1: \"State-gov\" is not a number"));
}

}  // namespace
}  // namespace cairn
