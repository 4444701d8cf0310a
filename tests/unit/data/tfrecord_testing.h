// What the tests of TFRecord data sets share: records, and the numbers that are read of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "common/base/crc32c.h"
#include "common/data/dataset.h"
#include "common/data/tf_example.h"
#include "tests/unit/data/data_files.h"

namespace cairn {

using DatasetPtr = std::shared_ptr<const Dataset>;
using Change = std::function<void(v1::Data*)>;

inline absl::StatusOr<DatasetPtr> Open(
    const std::string& path, const Shape& shape = {}, const Change& change = [](v1::Data*) {}) {
  v1::Data data;
  data.set_path(path);
  change(&data);
  return OpenDataset(data, shape);
}

inline std::vector<float> Example(const Dataset& dataset, v1::Split split, int64_t index, float* label = nullptr) {
  std::vector<float> example(dataset.example_size());
  float own = -1;
  const absl::Status status = dataset.Read(split, index, example.data(), &own);
  EXPECT_TRUE(status.ok()) << status;
  if (label != nullptr) *label = own;
  return example;
}

inline FeatureValue OfBytes(const std::string& name, const std::string& bytes) {
  return {.name = name, .kind = FeatureKind::kBytes, .bytes = bytes};
}
inline FeatureValue Ints(const std::string& name, const std::vector<int64_t>& ints) {
  return {.name = name, .kind = FeatureKind::kInts, .ints = ints};
}
inline FeatureValue Floats(const std::string& name, const std::vector<float>& floats) {
  return {.name = name, .kind = FeatureKind::kFloats, .floats = floats};
}

inline std::string Records(const std::vector<std::vector<FeatureValue>>& examples) {
  std::string bytes;
  for (const auto& features : examples) AppendRecord(WriteExample(features), &bytes);
  return bytes;
}

// Records first .. first + n - 1 of the data set that most tests use: 2x3 bytes (first number i), class i mod 10.
inline std::string Plain(int n, int first = 0) {
  std::string bytes;
  for (int i = first; i < first + n; ++i) {
    AppendRecord(WriteExample({OfBytes("image_raw", Bytes(6, i)), Ints("label", {i % 10})}), &bytes);
  }
  return bytes;
}

inline void ExpectPlain(const Dataset& dataset, v1::Split split, int64_t index, int number) {
  float label = -1;
  const std::vector<float> example = Example(dataset, split, index, &label);
  ASSERT_EQ(example.size(), 6u);
  for (int j = 0; j < 6; ++j) EXPECT_EQ(example[j], (number + 7 * j) % 256) << index << " " << j;
  EXPECT_EQ(label, number % 10);
}

}  // namespace cairn
