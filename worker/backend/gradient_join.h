// GradientJoin: the sum of the gradients of one or several replicas, made by the backend where it computes them, so
// that one gradient leaves the worker, in the type in which it is sent.
//
// Backend::Join makes one for a step. It is given to Program::TrainJoined of each replica that has examples, on any
// threads and in any order; no call waits for another. Invariants:
//   1. The bits are those of SumSubtree (common/tensor/summation_tree.h), with every node rounded to the type.
//   2. A range is announced once, when the gradient of the last replica has been added. If a replica never comes, some
//      ranges are never announced.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cairn/v1/types.pb.h"
#include "common/tensor/buffer.h"
#include "common/tensor/summation_tree.h"

namespace cairn {

struct JoinOptions {
  TreeNode node;
  std::vector<bool> leaves;  // node.count of them: whether that replica has examples; at least one has
  // The ends of the ranges that are announced one by one. The first begins at 0, the last ends at space_size(); each is
  // a multiple of 64 bytes.
  std::vector<int64_t> ends;
  v1::DataType type = v1::FLOAT32;  // of the sum: FLOAT32, BFLOAT16 or FLOAT16
  GradientLayout layout;            // of the job
  Buffer into;                      // number i of the space at byte i * SizeOf(type), as PackRounded writes it
  std::function<void(uint32_t range)> ready;  // the range is final in `into`; called on the thread of any replica
};

class GradientJoin {
 public:
  virtual ~GradientJoin() = default;
};

}  // namespace cairn
