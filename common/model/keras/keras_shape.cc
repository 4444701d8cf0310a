#include "common/model/keras/keras_shape.h"

#include <limits>

#include "absl/strings/str_cat.h"

namespace cairn {

constexpr char kOpenShapeAdvice[] =
    "is open; say data.image_height and data.image_width, or data.tfrecord.shape, submit the job where its data is, "
    "show the model with --input-shape, or build it with a shape such as (28, 28, 1)";

absl::StatusOr<v1::InputLayer> ReadBatchShape(const Json& batch_shape) {
  v1::InputLayer input;
  const auto bad = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("the input's shape ", ShownJson(batch_shape), " ", what));
  };
  if (!batch_shape.is_array() || batch_shape.empty()) return bad("is not a list such as [null, 28, 28, 1]");
  for (size_t i = 1; i < batch_shape.size(); ++i) {
    const Json& side = batch_shape[i];
    if (side.is_null()) return bad(kOpenShapeAdvice);
    if (!side.is_number_integer() || side.get<double>() < 1 ||
        side.get<double>() > std::numeric_limits<int32_t>::max()) {
      return bad("has a side that is not a positive number");
    }
    input.add_shape(side.get<int32_t>());
  }
  return input;
}

}  // namespace cairn
