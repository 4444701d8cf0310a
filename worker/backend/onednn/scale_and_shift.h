// ScaleAndShift: gamma and beta of a normalization as arguments of oneDNN's primitives: the scale and the shift of each
// channel. A layer has both, one or none of them.
//
// Part of an Op: used while the operation is compiled.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "worker/backend/onednn/builder.h"

namespace cairn::onednn {

// The arguments of a primitive: DNNL_ARG_..., memory.
using Arguments = std::vector<std::pair<int, dnnl::memory>>;

class ScaleAndShift {
 public:
  ScaleAndShift(const PlanBuilder& b, const Node& node, int64_t channels);

  // use_scale, use_shift.
  dnnl::normalization_flags flags() const;
  // The propagation kind of the backward primitive: of the data alone if there is neither.
  dnnl::prop_kind backward_kind() const;
  void AddForward(PlanBuilder& b, Arguments* arguments) const;
  // Adds the values and the gradients. The gradients of frozen variables go to a buffer that nobody reads: a backward
  // primitive with scale or shift cannot compute the gradient of the input alone.
  void AddBackward(PlanBuilder& b, Arguments* arguments) const;

 private:
  const Variable* const gamma_;
  const Variable* const beta_;
  const Desc channels_;
};

}  // namespace cairn::onednn
