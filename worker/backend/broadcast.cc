#include "worker/backend/broadcast.h"

#include <algorithm>
#include <utility>

namespace cairn {

WalkedTensor BroadcastTo(const Shape& shape, const Shape& output, bool shared) {
  WalkedTensor tensor;
  tensor.strides.assign(output.size() + 1, 0);
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const size_t axis = output.size() - shape.size() + i;
    if (shape[i] == output[axis]) tensor.strides[axis + 1] = stride;
    stride *= shape[i];
  }
  if (!shared) tensor.strides[0] = stride;
  return tensor;
}

Walk::Walk(std::vector<int64_t> dims, std::vector<WalkedTensor> tensors) : tensors_(std::move(tensors)) {
  std::vector<std::vector<int64_t>> strides(tensors_.size());
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (dims[axis] == 1) continue;
    bool joins = !dims_.empty();
    for (size_t k = 0; joins && k < tensors_.size(); ++k) {
      joins = strides[k].back() == tensors_[k].strides[axis] * dims[axis];
    }
    if (!joins) dims_.push_back(1);
    dims_.back() *= dims[axis];
    for (size_t k = 0; k < tensors_.size(); ++k) {
      if (joins) strides[k].pop_back();
      strides[k].push_back(tensors_[k].strides[axis]);
    }
  }
  if (dims_.empty()) {
    dims_.push_back(1);
    for (std::vector<int64_t>& of_tensor : strides) of_tensor.push_back(1);
  }
  for (size_t k = 0; k < tensors_.size(); ++k) tensors_[k].strides = std::move(strides[k]);
}

}  // namespace cairn
