#include "client/cli/close_shape.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/data/dataset.h"
#include "common/formats/open_shape.h"

namespace cairn {

absl::Status CloseShapeByData(v1::JobSpec* spec) {
  if (!HasOpenShape(spec->model())) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(CloseShapeByFields(spec->data(), spec->mutable_model()));
  if (!HasOpenShape(spec->model())) return absl::OkStatus();
  const auto dataset = OpenDataset(spec->data(), {});
  if (!dataset.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model: its input has open dimensions, and the data does not close them (", dataset.status().message(),
        "); set data.image_height and data.image_width, or "
        "data.tfrecord.shape, or submit the job where its data is"));
  }
  const std::vector<int64_t> sizes = (*dataset)->input_sizes();
  for (size_t i = 0; i < sizes.size() && static_cast<int>(i) < spec->data().inputs_size(); ++i) {
    const v1::InputSource& source = spec->data().inputs(static_cast<int>(i));
    if (source.input().empty()) continue;
    CAIRN_RETURN_IF_ERROR(Annotate(CloseInput(source.input(), {sizes[i]}, spec->mutable_model()),
                                   absl::StrCat("data.path: ", spec->data().path(), ": feature \"", source.feature(),
                                                "\" of ", sizes[i], " numbers")));
  }
  if (!HasOpenShape(spec->model())) return absl::OkStatus();
  const auto& shape = (*dataset)->info().example_shape();
  return Annotate(CloseShape(Shape(shape.begin(), shape.end()), spec->mutable_model()),
                  absl::StrCat("data.path: ", spec->data().path()));
}

}  // namespace cairn
