// Reads what a tf.train.Example holds besides its input and label: a target of several numbers (data.targets), a
// weight.
//
// Pure functions; any thread. They accept arbitrary bytes: errors (DATA_LOSS) say what is wrong; their callers add the
// file and the record.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/data/record_decoder.h"
#include "common/data/text_store.h"
#include "common/data/tf_example.h"
#include "common/tensor/buffer.h"

namespace cairn {

// How errors name the feature, and the job's field that selects it.
struct FeatureRole {
  const char *name, *field;
};
inline constexpr FeatureRole kTargetRole = {"target", "data.targets"}, kInputRole = {"input", "data.inputs"};

// Reads `feature` of the record: a float_list or int64_list with as many numbers as `shape`; or bytes: a JPEG or PNG of
// that size ([height, width] or [height, width, channels]), one byte 0 .. 255 per number, or little-endian float32.
absl::Status ReadTarget(absl::string_view record, const std::string& feature, const Shape& shape,
                        absl::Span<float> target, const FeatureRole& role = kTargetRole);

// Appends the numbers of the record's texts, as many as the part's shape says, in `texts`. The record is the bytes
// begin .. end - 1 of the window.
absl::Status ReadTexts(ByteWindow& window, uint64_t begin, uint64_t end, const RecordFeaturePart& part,
                       TextStore* texts, std::vector<float>* numbers);

// Reads one number, which must be at least 0.
absl::StatusOr<float> ReadWeight(ByteWindow& window, const std::string& feature, const FeaturePlace& place);

}  // namespace cairn
