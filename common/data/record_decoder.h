// Which parts of a tf.train.Example are the input and the label, and how they are read from one record.
//
// Pure functions; any thread. They accept arbitrary bytes: errors (DATA_LOSS) say what is wrong; their callers add the
// file and the record.
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

// A feature and how many numbers it has.
struct RecordFeaturePart {
  std::string feature;
  Shape shape;
  bool text = false;  // a bytes_list of texts, which stand in an example as their numbers in a TextStore
};

// What is read from every record.
struct RecordSpec {
  std::string input, label;  // the label is empty if the data has targets
  std::string weight;        // a feature; empty: there are no weights
  std::vector<RecordFeaturePart> targets;
  // Those of data.inputs, concatenated; they replace `input`.
  std::vector<RecordFeaturePart> inputs;
  v1::TfRecord::Encoding encoding = v1::TfRecord::ENCODING_AUTO;  // set once the spec is resolved
  Shape shape;
  int32_t label_offset = 0;
  int64_t example_size = 0;

  // Whether inputs are decoded to bytes rather than floats.
  bool decodes_to_bytes() const { return encoding == v1::TfRecord::JPEG_OR_PNG || encoding == v1::TfRecord::RAW_UINT8; }
};

// Reads one number and subtracts label_offset.
absl::StatusOr<float> ReadLabel(ByteWindow& window, const RecordSpec& spec, const FeaturePlace& place);

// Decodes the input at `place` of the record to `out`: example_size bytes or floats. Floats are finite.
absl::Status DecodeInput(absl::string_view record, const RecordSpec& spec, const FeaturePlace& place, void* out);

}  // namespace cairn
