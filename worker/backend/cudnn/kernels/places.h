// Positions in images [examples, height, width, channels].
#pragma once

#include "worker/backend/cudnn/kernels/numbers.h"

namespace cairn::cudnn::kernels {

// The position of number i of [examples, height, width, channels].
struct Place {
  int64_t example, y, x, channel;
};
struct Places {
  Divider height, width, channels;
  Places(const int64_t shape[3], int64_t n) : height(shape[0], n), width(shape[1], n), channels(shape[2], n) {}
  CAIRN_DEVICE Place Of(int64_t i) const {
    Place p;
    int64_t rest;
    p.channel = channels.Split(i, &rest);
    p.x = width.Split(rest, &rest);
    p.y = height.Split(rest, &p.example);
    return p;
  }
  CAIRN_DEVICE int64_t Index(int64_t example, int64_t y, int64_t x, int64_t channel) const {
    return ((example * height.divisor() + y) * width.divisor() + x) * channels.divisor() + channel;
  }
};

inline int64_t Count(const Window& w, const int64_t shape[3]) { return w.examples * shape[0] * shape[1] * shape[2]; }
// Whether all of these lengths and offsets of rows are multiples of eight.
inline bool Wide(int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0, int64_t e = 0) {
  return (a | b | c | d | e) % kWide == 0;
}

}  // namespace cairn::cudnn::kernels
