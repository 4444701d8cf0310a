#include "common/data/external_dataset.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/example_key.h"

namespace cairn {
namespace {

class ExternalDataset final : public Dataset {
 public:
  explicit ExternalDataset(const v1::ExternalData& external) : external_(external) {
    info_.set_path("the program's data");  // where messages name it
    info_.add_example_shape(static_cast<int32_t>(kExampleKeyBytes));
    info_.set_train_examples(size(v1::TRAIN));
    info_.set_validation_examples(size(v1::VALIDATION));
    info_.set_test_examples(size(v1::TEST));
  }

  const v1::DataInfo& info() const override { return info_; }
  int64_t size(v1::Split split) const override {
    switch (split) {
      case v1::TRAIN: return external_.examples();
      case v1::VALIDATION: return external_.validation_examples();
      default: return external_.test_examples();
    }
  }
  int64_t example_size() const override { return kExampleKeyBytes; }
  int64_t label_size() const override { return 0; }
  Element element() const override { return Element::kByte; }
  bool in_memory() const override { return true; }

  absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const override {
    uint8_t key[kExampleKeyBytes];
    CAIRN_RETURN_IF_ERROR(ReadBytes(split, index, key, label));
    std::copy(std::begin(key), std::end(key), example);
    return absl::OkStatus();
  }

  absl::Status ReadBytes(v1::Split split, int64_t index, uint8_t* example, float*) const override {
    if (index < 0 || index >= size(split)) {
      return absl::OutOfRangeError(absl::StrCat("data.external: example ", index, " of the ", v1::Split_Name(split),
                                                " split, which has ", size(split)));
    }
    WriteExampleKey({split == v1::SPLIT_UNSPECIFIED ? v1::TEST : split, index}, example);
    return absl::OkStatus();
  }

 private:
  const v1::ExternalData external_;
  v1::DataInfo info_;
};

}  // namespace

std::shared_ptr<const Dataset> MakeExternalDataset(const v1::ExternalData& external) {
  return std::make_shared<ExternalDataset>(external);
}

}  // namespace cairn
