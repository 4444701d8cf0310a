// WrappedDataset: another data set, of which a subclass changes something.
//
// Thread rule: as Dataset. Methods that a subclass does not override forward to the other data set, except for reading,
// which every subclass implements.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/data/dataset.h"

namespace cairn {

class WrappedDataset : public Dataset {
 public:
  explicit WrappedDataset(std::shared_ptr<const Dataset> examples) : examples_(std::move(examples)) {}

  const v1::DataInfo& info() const override { return examples_->info(); }
  int64_t size(v1::Split split) const override { return examples_->size(split); }
  int64_t example_size() const override { return examples_->example_size(); }
  int64_t label_size() const override { return examples_->label_size(); }
  std::string no_training() const override { return examples_->no_training(); }
  std::string no_labels() const override { return examples_->no_labels(); }
  bool weighted() const override { return examples_->weighted(); }
  float Weight(v1::Split split, int64_t index) const override { return examples_->Weight(split, index); }
  std::string NameOf(v1::Split split, int64_t index) const override { return examples_->NameOf(split, index); }

 protected:
  const Dataset& examples() const { return *examples_; }

 private:
  const std::shared_ptr<const Dataset> examples_;
};

// The other data set's examples with different targets. The numbers of an example have its element type.
class DatasetWithTargets : public WrappedDataset {
 public:
  using WrappedDataset::WrappedDataset;

  Element element() const final { return examples().element(); }
  bool in_memory() const final { return examples().in_memory(); }
  absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const final {
    return ReadWith(Element::kFloat, split, index, reinterpret_cast<uint8_t*>(example), label);
  }
  absl::Status ReadBytes(v1::Split split, int64_t index, uint8_t* example, float* label) const final {
    return ReadWith(Element::kByte, split, index, example, label);
  }

 protected:
  // example: numbers of type `element`. Errors: as Dataset::Read.
  virtual absl::Status ReadWith(Element element, v1::Split split, int64_t index, uint8_t* example,
                                float* label) const = 0;
};

}  // namespace cairn
