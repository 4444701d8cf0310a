// Opens a data set and reads every example of it, as a worker does.
#pragma once

#include <vector>

#include "common/base/check.h"
#include "common/data/dataset.h"
#include "tests/fuzz/input.h"

namespace cairn {

// In a broken file every byte may be an example; more than this many show nothing new.
inline constexpr int64_t kFuzzExamplesMax = 1000;
inline constexpr int64_t kFuzzNumbersMax = 1 << 20;

inline void ReadAll(const v1::Data& data, const Shape& input_shape) {
  const auto dataset = OpenDataset(data, input_shape);
  if (!dataset.ok() || (*dataset)->example_size() > kFuzzNumbersMax) return;
  std::vector<float> example((*dataset)->example_size()), label((*dataset)->label_size());
  for (v1::Split split : {v1::TRAIN, v1::VALIDATION, v1::TEST}) {
    const int64_t size = (*dataset)->size(split);
    CAIRN_CHECK(size >= 0, "a size below 0");
    for (int64_t i = 0; i < std::min(size, kFuzzExamplesMax); ++i) {
      (void)(*dataset)->Read(split, i, example.data(), label.data());
    }
  }
}

}  // namespace cairn
