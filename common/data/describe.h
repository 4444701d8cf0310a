// Describes a data set for people: kind, examples of each split, shape, range of values, classes and their frequencies.
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
  std::vector<int64_t> class_examples;  // by class; empty if labels are not classes
  double label_min = 0, label_max = 0;
};

struct DatasetSummary {
  v1::DataInfo info;
  std::array<SplitSummary, 3> splits;  // examples == 0: the data set does not have the split
  // How many training examples, spread evenly, the next two fields are computed from.
  int64_t sampled = 0;
  double value_min = 0, value_max = 0;
  // CSV: `column 3 ("title"): texts, as "A day" in line 2`, for each column of texts; and how many columns of numbers
  // are beside them.
  std::vector<std::string> text_columns;
  int64_t number_columns = 0, different_texts = 0;
  // IMAGE_FOLDER: the original sizes of the sampled pictures; else 0.
  int64_t height_min = 0, height_max = 0, width_min = 0, width_max = 0;
};

// Describes the data set's own splits, as LoadAsFound (csv_texts.h) finds them; texts is for that. The fields
// data.validation_split and data.test_split are ignored. An image folder needs no size here. Errors: as LoadAsFound.
absl::StatusOr<DatasetSummary> SummarizeDataset(const v1::Data& data, const std::vector<std::string>& texts = {});

// Several lines, each with a line end.
std::string ToText(const DatasetSummary& summary);

// SummarizeDataset and ToText in one call.
absl::StatusOr<std::string> DescribeDataset(const v1::Data& data);

}  // namespace cairn
