// The yardstick of the speed benchmarks: the small CNN trained by nothing but a loop of oneDNN primitives, as one would
// write it by hand for this one model: data in memory, weights kept in the layouts that the primitives choose, plain
// SGD, no names, no graph, no cluster.
//
// The model: input [28, 28, 1], Conv2D(32, 3, same, relu), MaxPooling2D, Conv2D(64, 3, same, relu), MaxPooling2D,
// Flatten, Dense(10), softmax cross-entropy.
#pragma once

#include <cstdint>

namespace cairn::bench {

struct BareResult {
  double images_per_second = 0;
  double images_per_cpu_second = 0;      // of the process: steadier on a busy machine
  double first_loss = 0, last_loss = 0;  // means of a batch: that it trains at all
};

// Trains for about `seconds` on one OpenMP thread of the calling thread.
BareResult RunBareCnn(int64_t batch, double seconds);

}  // namespace cairn::bench
