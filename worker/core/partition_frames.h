// PartitionFrames: the frames of a job's exchange with its partitions: those that the core sends, and the checks of
// those that arrive.
//
// Part of Context; no state of its own. A ps is a peer: a frame that is wrong gets UNAVAILABLE and is asked for again.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"
#include "common/tensor/buffer.h"
#include "common/tensor/frame.h"
#include "common/tensor/gradient_rounding.h"
#include "common/tensor/summation_tree.h"
#include "worker/core/assigned_job.h"

namespace cairn::replica {

class PartitionFrames {
 public:
  // All outlive it.
  PartitionFrames(const JobTerms& job, const JobSchedule& schedule, const Assignment& assignment)
      : job_(job), schedule_(schedule), assignment_(assignment) {}

  Frame MakePull(uint32_t partition) const;
  // gradient: the sum, empty where examples == 0; float32, or already of the wire type (packed). Shared, not copied,
  // where it is of the wire type. A float32 sum is rounded like a gradient of the node's first replica alone.
  Frame MakePush(uint32_t partition, const TreeNode& node, int64_t step, uint64_t examples, const Buffer& gradient,
                 bool packed) const;
  Frame MakeClip(uint32_t partition, int64_t step, std::string factors, uint64_t norms_xxh3) const;
  // How the step's gradients in the partition are rounded. Keeps a reference to the job.
  GradientRounding RoundingOf(uint32_t partition, int64_t step) const;

  // VALUES must carry a loss scale where the job has one.
  absl::Status CheckLossScale(const Frame& frame) const;
  // The frame must hold all values of the partition.
  absl::Status CheckValues(const Frame& frame, uint32_t partition) const;
  // Of a frame that CheckValues accepts: its values to their place in the parameter space.
  void CopyValues(const Frame& frame, Buffer& into) const;

 private:
  // Of this job, to this partition.
  Frame MakeFrame(v1::ExchangeFrame::Kind kind, uint32_t partition) const;
  GradientRounding ValuesOf(uint32_t partition, v1::DataType type) const;

  const JobTerms& job_;
  const JobSchedule& schedule_;
  const Assignment& assignment_;
};

}  // namespace cairn::replica
