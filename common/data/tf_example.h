// Reads tf.train.Example in place: finds a record's features by iterating over the bytes, without parsing them into a
// message.
//
//   Example  := (1: Features)*      Features := (1: Entry)*      Entry := 1: name, 2: Feature
//   Feature  := 1: BytesList | 2: FloatList | 3: Int64List      List := (1: value)*, numbers packed or one by one
//
// Pure functions. They accept arbitrary bytes: errors (DATA_LOSS) say what is wrong; their callers say where. No length
// exceeds that of the enclosing message. Values are skipped until they are requested, so a picture of several megabytes
// costs nothing before that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/data/byte_window.h"

namespace cairn {

enum class FeatureKind { kEmpty, kBytes, kFloats, kInts };
const char* ToText(FeatureKind kind);  // "bytes_list"

// A feature's list, as the range of its bytes.
struct FeaturePlace {
  FeatureKind kind = FeatureKind::kEmpty;
  uint64_t begin = 0, end = 0;
};

// Calls `visit` for each feature of the Example in [begin, end). If a name occurs twice, the last one counts, as in
// protobuf. `name` is valid during the call, and only until the window is used.
absl::Status WalkFeatures(ByteWindow& window, uint64_t begin, uint64_t end,
                          absl::FunctionRef<absl::Status(absl::string_view name, const FeaturePlace& place)> visit);

// Iterates over the numbers of a FloatList or Int64List. Stops when `take` returns false.
absl::Status WalkNumbers(ByteWindow& window, const FeaturePlace& place, absl::FunctionRef<bool(double)> take);
// Iterates over the values of a BytesList, as ranges. Stops when `take` returns false.
absl::Status WalkBytes(ByteWindow& window, const FeaturePlace& place,
                       absl::FunctionRef<bool(uint64_t begin, uint64_t end)> take);

// One feature of an example to be written.
struct FeatureValue {
  std::string name;
  FeatureKind kind = FeatureKind::kBytes;
  std::string bytes;  // kBytes: the only value
  std::vector<float> floats;
  std::vector<int64_t> ints;
};
// Serializes the Example, with its features sorted by name.
std::string WriteExample(std::vector<FeatureValue> features);

}  // namespace cairn
