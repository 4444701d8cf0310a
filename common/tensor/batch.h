// Batch: examples that a data set passes to a program.
#pragma once

#include <cstdint>

#include "common/tensor/buffer.h"

namespace cairn {

// The type of the inputs' numbers: float32, or bytes, which stand for 0 .. 255. Training on a byte and on the float32
// of the same value gives the same bits.
enum class Element : uint8_t { kFloat, kByte };
inline int64_t SizeOf(Element element) { return element == Element::kByte ? 1 : 4; }

// Examples laid end to end, channels last.
struct Batch {
  int64_t examples = 0;
  Buffer inputs;  // [examples, input shape...] numbers of `element`
  Buffer
      labels;  // float32 [examples, label_size]: a class number, or one number per output; then any weights [examples]
  int64_t label_size = 1;
  Element element = Element::kFloat;

  int64_t input_numbers() const { return static_cast<int64_t>(inputs.size()) / SizeOf(element); }
};

inline void BytesToFloats(const uint8_t* __restrict in, int64_t count, float* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = in[i];
}

}  // namespace cairn
