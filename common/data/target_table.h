// TargetTable: the target of each example of a split if it is not a single label (data.targets).
//
// Immutable and thread-safe. The indices are those of ExampleTable.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

class TargetTable {
 public:
  virtual ~TargetTable() = default;
  // target: its size is that of the shape in data.targets.
  virtual absl::Status Read(int64_t index, absl::Span<float> target) const = 0;
};

// All targets in memory: [size][width].
class FloatTargets : public TargetTable {
 public:
  FloatTargets(std::vector<float> numbers, int64_t width) : numbers_(std::move(numbers)), width_(width) {}
  absl::Status Read(int64_t index, absl::Span<float> target) const override;

 private:
  const std::vector<float> numbers_;
  const int64_t width_;
};

// One picture per example, pixels 0 .. 255. [height, width]: class indices, resized to the nearest pixel. [height,
// width, 1 or 3]: numbers, resized bilinearly like the examples.
class PictureTargets : public TargetTable {
 public:
  PictureTargets(std::vector<std::string> files, const Shape& shape) : files_(std::move(files)), shape_(shape) {}
  absl::Status Read(int64_t index, absl::Span<float> target) const override;

 private:
  const std::vector<std::string> files_;
  const Shape shape_;
};

// Finds the pictures in `dir` that have the names of those of `examples` under `root`, except for the extension.
// Errors: NOT_FOUND names the first example without one.
absl::StatusOr<std::vector<std::string>> MatchPictures(const std::string& root, const std::string& dir,
                                                       const std::vector<std::string>& examples);

}  // namespace cairn
