// Walk: iterates over several tensors that are broadcast as in numpy, line by line.
//
// Immutable after construction; any thread. Invariant: axes of size 1 are dropped, and neighbouring axes are merged
// where they are contiguous in every tensor; so tensors of one shape are a single line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tensor/buffer.h"

namespace cairn {

// The offset of a tensor's first number, and its stride along each axis (0: the axis is repeated).
struct WalkedTensor {
  std::vector<int64_t> strides;
  int64_t begin = 0;
};

// The strides of a dense tensor of shape `shape` that is broadcast to `output`, both without the batch axis. The axes
// of the walk are the examples, then those of `output`. shared: all examples use one tensor.
WalkedTensor BroadcastTo(const Shape& shape, const Shape& output, bool shared);

class Walk {
 public:
  // dims: the sizes of all axes. tensors: each has a stride for each axis.
  Walk(std::vector<int64_t> dims, std::vector<WalkedTensor> tensors);

  int64_t line() const { return dims_.back(); }  // numbers of a line
  int64_t stride(size_t tensor) const { return tensors_[tensor].strides.back(); }

  // Calls fn(offsets of the line's first number in each tensor) for each line, in the order of the axes.
  template <typename Fn>
  void ForEachLine(Fn fn) const {
    std::vector<int64_t> at(dims_.size(), 0), places;
    for (const WalkedTensor& tensor : tensors_) places.push_back(tensor.begin);
    while (true) {
      fn(places);
      size_t axis = dims_.size() - 1;
      while (axis-- > 0) {
        for (size_t k = 0; k < tensors_.size(); ++k) places[k] += tensors_[k].strides[axis];
        if (++at[axis] < dims_[axis]) break;
        for (size_t k = 0; k < tensors_.size(); ++k) places[k] -= tensors_[k].strides[axis] * dims_[axis];
        at[axis] = 0;
      }
      if (axis == SIZE_MAX) return;
    }
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<WalkedTensor> tensors_;
};

}  // namespace cairn
