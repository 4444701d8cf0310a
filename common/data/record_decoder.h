// What of a tf.train.Example is the input and what the label, and how one record's are read.
//
// Pure functions; any thread. They take any bytes: errors (DATA_LOSS) say what is wrong, their callers say in which
// file and record.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/data/tf_example.h"
#include "common/tensor/buffer.h"

namespace cairn {

// A feature of so many numbers.
struct RecordFeaturePart {
  std::string feature;
  Shape shape;
};

// What is read of every record.
struct RecordSpec {
  std::string input, label;  // label: empty where the data has targets
  std::string weight;        // feature; empty: none
  std::vector<RecordFeaturePart> targets;
  std::vector<RecordFeaturePart> inputs;                          // of data.inputs: instead of `input`, end to end
  v1::TfRecord::Encoding encoding = v1::TfRecord::ENCODING_AUTO;  // known once it is resolved
  Shape shape;
  int32_t label_offset = 0;
  int64_t example_size = 0;

  // Its inputs are bytes, else floats.
  bool decodes_to_bytes() const { return encoding == v1::TfRecord::JPEG_OR_PNG || encoding == v1::TfRecord::RAW_UINT8; }
};

// One number, label_offset taken from it.
absl::StatusOr<float> ReadLabel(ByteWindow& window, const RecordSpec& spec, const FeaturePlace& place);

// The input that lies at `place` of the record, into `out`: example_size bytes or floats. Floats are finite.
absl::Status DecodeInput(absl::string_view record, const RecordSpec& spec, const FeaturePlace& place, void* out);

}  // namespace cairn
