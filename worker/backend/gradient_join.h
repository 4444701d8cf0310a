// GradientJoin: the sum of several replicas' gradients (or one's alone) as a backend makes it where it computes: one
// gradient leaves the worker, in the type in which it is sent.
//
// Made by Backend::Join for one step, given to Program::TrainJoined of each replica that has examples, from any threads
// in any order; nobody waits for another. Invariants:
//   1. The bits are those of SumSubtree (common/tensor/summation_tree.h), every node rounded to the type.
//   2. Every range is told once, when the last replica's gradient is in it. If one never comes, some are never told.
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
  std::vector<bool> leaves;  // of node.count: whether that replica has examples; at least one has
  std::vector<int64_t>
      ends;  // of the ranges that are told one by one: the first from 0, the last to space_size(); of whole 64 bytes
  v1::DataType type = v1::FLOAT32;  // of the sum, or BFLOAT16, FLOAT16
  GradientLayout layout;            // of the job
  Buffer into;                      // number i of the space at byte i * SizeOf(type), as PackRounded writes it
  std::function<void(uint32_t range)> ready;  // the sum's range is final in `into`. On the thread of any replica.
};

class GradientJoin {
 public:
  virtual ~GradientJoin() = default;
};

}  // namespace cairn
