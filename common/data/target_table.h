// TargetTable: what the model is to give for each example of a split, where that is not one label (data.targets), and
// the weights of examples (data.weight_column).
//
// Immutable and thread-safe, as ExampleTable, whose indices these are.
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
  // target: as many numbers as the shape in data.targets has.
  virtual absl::Status Read(int64_t index, absl::Span<float> target) const = 0;
};

// All in memory: [size][width].
class FloatTargets : public TargetTable {
 public:
  FloatTargets(std::vector<float> numbers, int64_t width) : numbers_(std::move(numbers)), width_(width) {}
  absl::Status Read(int64_t index, absl::Span<float> target) const override;

 private:
  const std::vector<float> numbers_;
  const int64_t width_;
};

// One picture for each example, pixels 0 .. 255. [height, width]: class numbers, of which resizing takes the nearest
// one. [height, width, 1 or 3]: numbers, resized bilinearly as the examples.
class PictureTargets : public TargetTable {
 public:
  PictureTargets(std::vector<std::string> files, const Shape& shape) : files_(std::move(files)), shape_(shape) {}
  absl::Status Read(int64_t index, absl::Span<float> target) const override;

 private:
  const std::vector<std::string> files_;
  const Shape shape_;
};

// The pictures of `dir` that are called as those of `examples` under `root`, whatever they end in. Errors: NOT_FOUND
// names the first example without one.
absl::StatusOr<std::vector<std::string>> MatchPictures(const std::string& root, const std::string& dir,
                                                       const std::vector<std::string>& examples);

}  // namespace cairn
