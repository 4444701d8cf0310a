// ProgramGradients: where a program writes the gradients of a batch, and says which of them are final, so that they
// travel while the others are computed.
//
// Thread rule: any thread until Finish, which returns when no other call is under way; a variable's numbers are written
// by one thread before it is final. Invariants:
//   1. Each number of the space is announced once: a variable with the padding behind it.
//   2. What nobody wrote is 0.
#pragma once

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "worker/backend/backend.h"

namespace cairn {

class ProgramGradients {
 public:
  // All arguments outlive it. numbers: the parameter space, which is set to 0.
  ProgramGradients(const Graph& graph, absl::Span<float> numbers, const GradientReady& ready);

  absl::Span<float> numbers() const { return numbers_; }
  // The gradient of a variable, by its index in Graph::variables().
  absl::Span<float> Of(int variable) const;
  // The variable's gradient is written and does not change any more. Errors: INVALID_ARGUMENT if there is no such
  // variable; FAILED_PRECONDITION if it was final before, or the call of the program has returned.
  absl::Status Final(int variable);
  // Makes the remaining variables final, from the last one on.
  void Finish();

 private:
  void Announce(size_t variable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Graph& graph_;
  const absl::Span<float> numbers_;
  const GradientReady& ready_;
  absl::Mutex mutex_;
  std::vector<bool> final_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cairn
