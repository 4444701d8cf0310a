#include "common/data/middle_crop.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/data/warp.h"
#include "common/data/wrapped_dataset.h"
#include "common/model/data_check.h"

namespace cairn {
namespace {

class MiddleCrop : public WrappedDataset {
 public:
  MiddleCrop(std::shared_ptr<const Dataset> examples, const PictureShape3& from, const PictureShape3& to)
      : WrappedDataset(std::move(examples)),
        from_(from),
        to_(to),
        height_(std::clamp<int64_t>(from.width * to.height / to.width, 1, from.height)),
        width_(std::clamp<int64_t>(from.height * to.width / to.height, 1, from.width)) {}

  int64_t example_size() const override { return to_.size(); }
  absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const override {
    static thread_local std::vector<float> picture;
    picture.resize(static_cast<size_t>(from_.size()));
    CAIRN_RETURN_IF_ERROR(examples().Read(split, index, picture.data(), label));
    CropAndResize(from_, {(from_.height - height_) / 2, (from_.width - width_) / 2, height_, width_}, to_,
                  picture.data(), example);
    return absl::OkStatus();
  }

 private:
  const PictureShape3 from_, to_;
  const int64_t height_, width_;  // of the part
};

}  // namespace

std::shared_ptr<const Dataset> AsModelInput(std::shared_ptr<const Dataset> examples, const v1::Data& data,
                                            const Shape& input_shape) {
  const Shape from = ExampleShape(data, input_shape);
  if (from == input_shape || examples->example_size() != NumElements(from)) return examples;
  return std::make_shared<MiddleCrop>(std::move(examples), PictureShape3{from[0], from[1], from[2]},
                                      PictureShape3{input_shape[0], input_shape[1], input_shape[2]});
}

}  // namespace cairn
