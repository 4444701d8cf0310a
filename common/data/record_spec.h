// Derives the RecordSpec of a data set from the contents of its first record and the job's fields.
//
// Pure functions; any thread. Errors: DATA_LOSS (the bytes are not an Example), INVALID_ARGUMENT (data.tfrecord...;
// lists what the record has).
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/data/record_decoder.h"
#include "common/data/tf_example.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct RecordFeature {
  FeaturePlace place;
  int64_t values = 0;
  absl::string_view bytes;  // kBytes: the first value
  double number = 0;        // the first one
};
using RecordFeatures = std::map<std::string, RecordFeature>;

// All features of the record, as views of it.
absl::StatusOr<RecordFeatures> ReadRecordFeatures(absl::string_view record);

absl::StatusOr<RecordSpec> ResolveRecordSpec(const v1::Data& data, const Shape& input_shape,
                                             const RecordFeatures& features);

}  // namespace cairn
