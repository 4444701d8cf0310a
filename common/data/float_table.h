// FloatTable: the numbers and labels of all examples of a split in memory. NamedFloatTable: of examples that are lines
// or files.
//
// Immutable; any thread.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/data/table.h"

namespace cairn {

class FloatTable : public ExampleTable {
 public:
  // features: those of one example after those of another; labels: not empty.
  FloatTable(std::vector<float> features, std::vector<float> labels)
      : features_(std::move(features)), labels_(std::move(labels)), example_size_(features_.size() / labels_.size()) {}
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  absl::Status Read(int64_t index, float* example, float* label) const override {
    const float* begin = features_.data() + static_cast<size_t>(index) * example_size_;
    std::copy(begin, begin + example_size_, example);
    *label = labels_[static_cast<size_t>(index)];
    return absl::OkStatus();
  }
  float Label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }

 private:
  const std::vector<float> features_, labels_;
  const size_t example_size_;
};

template <typename Name>
class NamedFloatTable : public FloatTable {
 public:
  // names: one for each example.
  NamedFloatTable(std::vector<float> features, std::vector<float> labels, std::vector<Name> names)
      : FloatTable(std::move(features), std::move(labels)), names_(std::move(names)) {}
  std::string NameOf(int64_t index) const override { return absl::StrCat(names_[static_cast<size_t>(index)]); }

 private:
  const std::vector<Name> names_;
};

}  // namespace cairn
