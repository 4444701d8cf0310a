// What a data set is, for people: kind, examples of each split, shape, range of values, classes and how often each
// occurs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/data.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct SplitSummary {
  std::string name;  // "train", "validation", "test"
  int64_t examples = 0;
  std::vector<int64_t> class_examples;  // by class; empty where labels are numbers
  double label_min = 0, label_max = 0;
};

struct DatasetSummary {
  v1::DataInfo info;
  std::array<SplitSummary, 3> splits;  // examples == 0: the data set has no such split
  int64_t sampled = 0;                 // training examples that the next two are of, spread evenly
  double value_min = 0, value_max = 0;
  // IMAGE_FOLDER: sizes of the sampled pictures before they are resized; else 0.
  int64_t height_min = 0, height_max = 0, width_min = 0, width_max = 0;
};

// The data set's own splits; shares of data.validation_split and data.test_split are not taken. An image folder needs
// no size here. Errors as OpenDataset's.
absl::StatusOr<DatasetSummary> SummarizeDataset(const v1::Data& data);

// Several lines, the last one with its end.
std::string ToText(const DatasetSummary& summary);

// Both at once.
absl::StatusOr<std::string> DescribeDataset(const v1::Data& data);

}  // namespace cairn
