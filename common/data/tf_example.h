// tf.train.Example, read where it lies: a record's features are found by walking over the bytes, without a message of
// them.
//
//   Example  := (1: Features)*      Features := (1: Entry)*      Entry := 1: name, 2: Feature
//   Feature  := 1: BytesList | 2: FloatList | 3: Int64List      List := (1: value)*, numbers packed or one by one
//
// Pure functions. They take any bytes: errors (DATA_LOSS) say what is wrong, their callers say where; nothing that is
// read is longer than what it stands in. Values are skipped, not read: a picture of megabytes costs nothing until it is
// asked for.
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

// A feature's list, by the places of its bytes.
struct FeaturePlace {
  FeatureKind kind = FeatureKind::kEmpty;
  uint64_t begin = 0, end = 0;
};

// Calls `visit` for each feature of the Example in [begin, end). A name that comes twice counts as its last, as
// everywhere in protobuf. `name` is valid during the call, and only before the window is used.
absl::Status WalkFeatures(ByteWindow& window, uint64_t begin, uint64_t end,
                          absl::FunctionRef<absl::Status(absl::string_view name, const FeaturePlace& place)> visit);

// The numbers of a FloatList or Int64List, one after another. Stops where `take` is false.
absl::Status WalkNumbers(ByteWindow& window, const FeaturePlace& place, absl::FunctionRef<bool(double)> take);
// The values of a BytesList as ranges. Stops where `take` is false.
absl::Status WalkBytes(ByteWindow& window, const FeaturePlace& place,
                       absl::FunctionRef<bool(uint64_t begin, uint64_t end)> take);

// One feature of an example that is written.
struct FeatureValue {
  std::string name;
  FeatureKind kind = FeatureKind::kBytes;
  std::string bytes;  // kBytes: the one value
  std::vector<float> floats;
  std::vector<int64_t> ints;
};
// The Example's bytes, features in the order of their names.
std::string WriteExample(std::vector<FeatureValue> features);

}  // namespace cairn
