// WeightsDigest: the digest of a model's variables. It covers each variable's name and numbers, in the model's order,
// and depends neither on the padding between them nor on the partitions.
//
// Not thread-safe. Invariants:
//   1. Pieces of any size give the same digest as the whole parameter space at once.
//   2. It is XXH3-128, in hex: it shows a difference, not who made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "cairn/v1/job.pb.h"
#include "common/base/digest.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

class WeightsDigest {
 public:
  // graph: outlives it.
  explicit WeightsDigest(const Graph& graph) : graph_(graph) {}

  // The next numbers of the parameter space.
  void Add(absl::Span<const float> values);
  int64_t done() const { return done_; }  // numbers added
  // The first variable with a number that is not finite; empty: none so far.
  const std::string& not_finite() const { return not_finite_; }
  // After the whole parameter space was added.
  std::string Hex() const { return digest_.Hex(); }

 private:
  const Graph& graph_;
  Digest digest_;
  size_t variable_ = 0;  // the first that is not complete
  int64_t done_ = 0;
  std::string not_finite_;
};

// After how many steps the digest of the variables is recorded (JobSpec.digest_every_steps); 0: never, for the bits of
// a step are not determined by the job, or no worker has all variables. `spec` is resolved.
int64_t DigestEverySteps(const v1::JobSpec& spec);
inline constexpr int64_t kDigestEveryStepsDefault = 100;

// Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`. Strategy and backup_replicas must be checked before.
absl::Status CheckDigestEverySteps(const v1::JobSpec& spec);

}  // namespace cairn
