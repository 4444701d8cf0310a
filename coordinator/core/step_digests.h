// StepDigests: the digests of a job's variables after some of its steps, as its workers report them. `cairn replay`
// compares with them.
//
// Not thread-safe; one core owns it. Invariants:
//   1. At most kStepDigestsKept of a job are kept, the newest, in order of steps; a step has one.
//   2. A step that is done again (after a rollback, by another chief) must have the digest that it had: another one
//      takes its place, and the first such step of a generation is told to the user.
//   3. They are stored once a second at most, and whenever the job is stored for another reason: a coordinator that is
//      killed loses the digests of the last second.
#pragma once

#include <cstdint>
#include <map>

#include "absl/time/time.h"
#include "coordinator/core/component.h"

namespace cairn {

class StepDigests : Component {
 public:
  explicit StepDigests(Ground& ground) : Component(ground) {}

  void OnReport(const ClusterNode& node, const v1::StepDigestReport& report);

 private:
  void TellOtherBits(Job& job, const ClusterNode& node, const v1::StepDigest& had, const v1::StepDigest& digest);

  // Active jobs of which it was told, each with its generation then.
  std::map<uint64_t, uint64_t> told_;
};

}  // namespace cairn
