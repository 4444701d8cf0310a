// EinsumDense and Einsum as matrix products: y[g][r][c] = sum over i of x[g][r][i] * kernel[g][i][c], where g are the
// letters that all three share, r those of x and y, c those of the kernel and y, and i those that are summed over. The
// kernel of an Einsum is its second input.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/graph.h"

namespace cairn {

// The indices of those numbers in an example of x and of y, and in the kernel.
struct EinsumPlaces {
  int64_t shared = 1, rows = 1, columns = 1, summed = 1;
  std::vector<int32_t> x;       // [shared, rows, summed]
  std::vector<int32_t> kernel;  // [shared, summed, columns]
  std::vector<int32_t> y;       // [shared, rows, columns]
  std::vector<int32_t> bias;    // for each number of y
};

EinsumPlaces EinsumPlacesOf(const Node& node, const Shape& input);
EinsumPlaces EinsumPlacesOfTwo(const Node& node, const Shape& x, const Shape& kernel);  // of an Einsum

}  // namespace cairn
