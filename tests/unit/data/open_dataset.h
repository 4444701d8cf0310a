// Opens a data set by its path: its examples, or the error of one that cannot be read.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/data/dataset.h"

namespace cairn {

using DatasetPtr = std::shared_ptr<const Dataset>;

inline absl::StatusOr<DatasetPtr> Open(
    const std::string& path, const Shape& shape = {}, const std::function<void(v1::Data*)>& change = [](v1::Data*) {}) {
  v1::Data data;
  data.set_path(path);
  change(&data);
  return OpenDataset(data, shape);
}

inline std::pair<std::vector<float>, float> Example(const Dataset& dataset, v1::Split split, int64_t index) {
  std::vector<float> example(dataset.example_size());
  float label = -1;
  const absl::Status status = dataset.Read(split, index, example.data(), &label);
  EXPECT_TRUE(status.ok()) << status;
  return {example, label};
}

// An example with all numbers of its target.
struct Read {
  std::vector<float> example, target;
};
inline Read ReadOne(const Dataset& dataset, v1::Split split, int64_t index) {
  Read r;
  r.example.resize(static_cast<size_t>(dataset.example_size()));
  r.target.assign(static_cast<size_t>(dataset.label_size()) + 1, -7);  // one more than is written
  const absl::Status status = dataset.Read(split, index, r.example.data(), r.target.data());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(r.target.back(), -7);
  r.target.pop_back();
  return r;
}

inline void ExpectError(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), testing::HasSubstr(part));
}

}  // namespace cairn
