// A data set by its path, its examples, and what is said of one that cannot be read.
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

inline void ExpectError(const absl::Status& status, absl::StatusCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), testing::HasSubstr(part));
}

}  // namespace cairn
