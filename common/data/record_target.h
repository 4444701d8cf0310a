// What a tf.train.Example holds beside its input and label: a target of several numbers (data.targets), a weight.
//
// Pure functions; any thread. They take any bytes: errors (DATA_LOSS) say what is wrong, their callers say in which
// file and record.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/data/tf_example.h"
#include "common/tensor/buffer.h"

namespace cairn {

// What an error calls it, and the field that names it.
struct FeatureRole {
  const char *name, *field;
};
inline constexpr FeatureRole kTargetRole = {"target", "data.targets"}, kInputRole = {"input", "data.inputs"};

// `feature` of the record: a float_list or int64_list of so many numbers; or bytes: a JPEG or PNG of that size
// ([height, width] or [height, width, channels]), bytes 0 .. 255 one a number, or little-endian float32.
absl::Status ReadTarget(absl::string_view record, const std::string& feature, const Shape& shape,
                        absl::Span<float> target, const FeatureRole& role = kTargetRole);

// One number >= 0.
absl::StatusOr<float> ReadWeight(ByteWindow& window, const std::string& feature, const FeaturePlace& place);

}  // namespace cairn
