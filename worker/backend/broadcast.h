// Walks: which numbers of several tensors meet, as numpy broadcasts, line by line.
//
// Immutable after construction; any thread. Invariants: axes of 1 are dropped and neighbours joined where every tensor
// has them side by side, so that tensors of one shape are one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tensor/buffer.h"

namespace cairn {

// A tensor's place of number (0, 0, ...), and how far it is to the next one along each axis (0: the axis is repeated).
struct WalkedTensor {
  std::vector<int64_t> strides;
  int64_t begin = 0;
};

// Strides of a dense tensor `shape` that is broadcast to `output`: both without examples. The walk's axes are the
// examples and then those of `output`. shared: one tensor for all examples.
WalkedTensor BroadcastTo(const Shape& shape, const Shape& output, bool shared);

class Walk {
 public:
  // dims: of all axes. tensors: each with a stride for each axis.
  Walk(std::vector<int64_t> dims, std::vector<WalkedTensor> tensors);

  int64_t line() const { return dims_.back(); }  // numbers of a line
  int64_t stride(size_t tensor) const { return tensors_[tensor].strides.back(); }

  // fn(places of the line's first number in each tensor), in the order of the axes.
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
