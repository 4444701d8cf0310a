// What a Python program is given of a call: the examples, and Cairn's buffers as memory views, without copies.
//
// Python may keep such an object and use it at any time, on any thread. Invariants:
//   1. `final` does not reach a call that has returned: Close waits for one that is under way, and later ones raise.
//   2. Memory views are of memory that is valid until the call returns. Python must not use them later. After the call
//      a step gives none.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "worker/backend/external/external_backend.h"

namespace cairn {

// As Python sees a job (ProgramJob).
struct PythonJob {
  ProgramJob job;
  // (name, shape, kind, offset) of each variable, in order.
  pybind11::list Variables() const;
};

class PythonStep {
 public:
  // With the interpreter's lock. The batch and all spans outlive Close.
  PythonStep(std::shared_ptr<const PythonJob> job, const ProgramBatch& batch, absl::Span<const float> values);
  void SetStep(const StepInfo& info, absl::Span<float> numbers, ProgramGradients* gradients);
  void SetOutputs(absl::Span<float> outputs) { outputs_ = outputs; }
  // With the interpreter's lock, which it gives up meanwhile: another thread of Python may be within `final`.
  void Close();

  int64_t examples() const { return examples_; }
  const std::string& split() const { return split_; }
  pybind11::object Indices() const;  // array of int64, or None
  pybind11::object Inputs() const;   // memory view [examples, shape...] of float32 or uint8, or None
  pybind11::object Labels() const;   // memory view [examples, labels] of float32, or None
  pybind11::memoryview Values() const;
  pybind11::memoryview Gradients() const;
  pybind11::memoryview Outputs() const;
  uint64_t values_address() const { return reinterpret_cast<uint64_t>(values_.data()); }
  uint64_t gradients_address() const { return reinterpret_cast<uint64_t>(numbers_.data()); }
  const StepInfo& info() const { return info_; }
  // Without the interpreter's lock: what is final is sent.
  void Final(int variable);

 private:
  const std::shared_ptr<const PythonJob> job_;
  const Batch* batch_;
  const std::vector<int64_t> indices_;
  const std::string split_;
  const int64_t examples_;
  absl::Span<const float> values_;
  absl::Span<float> numbers_, outputs_;
  StepInfo info_;
  absl::Mutex mutex_;
  ProgramGradients* gradients_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

void DefineStep(pybind11::module_& module);

}  // namespace cairn
