// Plan: a graph lowered for one batch size and one purpose: the launches in order, and the places of their buffers.
//
// Immutable once built; runs on one thread at a time. Invariants:
//   1. Every buffer is in the arena; two overlap only if the spans of steps in which they are used do not.
//   2. A step reads and writes only the places that it names, and nothing of the arena that no earlier step has
//      written: a run does not depend on the contents of the arena before it.
//   3. Launches depend only on the plan, not on the batch: what changes from step to step (values, inputs, labels, the
//      key of dropout) is in memory, so that a run can be recorded once and launched again.
//   4. Every range of the parameter space is released exactly once, from the end to the beginning.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/backend/arena.h"
#include "worker/backend/cudnn/machine.h"

namespace cairn::cudnn {

enum class Mode {
  kTrain,
  kEvaluate,  // the outputs as the loss wants them (LossPlan)
  kPredict,   // the outputs as the user wants them
};

// A place in the device's memory.
struct Ref {
  enum Place : uint8_t {
    kNone,
    kArena,
    kValues,
    kGradients,
    kConstants,
    kInputs,
    kLabels,
    kClassWeights,
    kKey,
    kResults,
    kRefusals,
  };
  Place place = kNone;
  int buffer = 0;      // kArena: which
  int64_t offset = 0;  // bytes
  explicit operator bool() const { return place != kNone; }
};

// The memory that a plan's references point into.
struct Run {
  Machine& machine;
  const class Plan& plan;
  char* arena = nullptr;
  float* values = nullptr;     // the parameter space
  float* gradients = nullptr;  // the parameter space
  float* constants = nullptr;  // Plan::constants
  void* inputs = nullptr;      // float32, or bytes: LoweringOptions.inputs
  float* labels = nullptr;
  float* class_weights = nullptr;
  kernels::StepKey* key = nullptr;
  double* results = nullptr;   // [1 + metrics]: sums over the batch's examples, the loss first
  double* refusals = nullptr;  // Plan::refusal_numbers

  kernels::Stream stream() const { return machine.stream(); }

  template <typename T = void>
  T* At(const Ref& ref) const;
};

class Plan {
 public:
  struct Step {
    std::string text;   // "%3 = convolution 3x3/2 of %1, conv1/kernel"
    std::string layer;  // for errors
    std::vector<Ref> reads, writes;
    std::function<absl::Status(const Run&)> enqueue;
    // Its theoretical cost: the bytes of each tensor that it names, counted once, with workspaces and scratch; the FLOP
    // of products and convolutions.
    int64_t bytes_read = 0, bytes_written = 0;
    double flop = 0;
  };
  // The steps from `begin` to the next segment read no values beyond `values_end`.
  struct Segment {
    int begin = 0;
    int64_t values_end = 0;
  };
  // The gradients of [begin, end) of the space are final after step `after`.
  struct Release {
    int after = 0;
    int64_t begin = 0, end = 0;
  };

  // What a layer says of numbers that it does not accept, and that the device found: `record` of
  // kernels::RecordRefused, which begins at number `begin` of Run::refusals.
  struct Check {
    int64_t begin = 0;
    std::function<absl::Status(const double* record)> error;  // OK: it accepts all
  };

  int64_t examples() const { return examples_; }
  int64_t arena_bytes() const { return arena_bytes_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<ArenaBuffer>& buffers() const { return buffers_; }
  // At least one; the first begins at step 0. So the values of later layers are copied to the device while earlier
  // layers compute.
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Release>& releases() const { return releases_; }
  // Numbers that steps read, and that are put onto the device once, before the first run.
  const std::vector<float>& constants() const { return constants_; }
  // In the order of the layers. All have been made by step `checked_after`, which is of the forward pass.
  const std::vector<Check>& checks() const { return checks_; }
  int64_t refusal_numbers() const { return refusal_numbers_; }
  int checked_after() const { return checked_after_; }
  const Ref& outputs() const { return outputs_; }  // float32 [examples, output shape...]
  // Which steps of the outputs count, float32; none: all.
  const Ref& mask() const { return mask_; }
  // All steps as text, one on each line, and the size of the arena: for tests and --log-level=debug.
  std::string Text() const;

  // Enqueues step `i`. Errors name the layer.
  absl::Status Enqueue(int i, const Run& run) const;

 private:
  friend class Builder;
  int64_t examples_ = 0;
  int64_t arena_bytes_ = 0;
  std::vector<Step> steps_;
  std::vector<ArenaBuffer> buffers_;
  std::vector<Segment> segments_;
  std::vector<Release> releases_;
  std::vector<float> constants_;
  std::vector<Check> checks_;
  int64_t refusal_numbers_ = 0;
  int checked_after_ = -1;
  Ref outputs_, mask_;
};

template <typename T>
T* Run::At(const Ref& ref) const {
  char* base = nullptr;
  switch (ref.place) {
    case Ref::kNone: return nullptr;
    case Ref::kArena: base = arena + plan.buffers()[ref.buffer].offset; break;
    case Ref::kValues: base = reinterpret_cast<char*>(values); break;
    case Ref::kConstants: base = reinterpret_cast<char*>(constants); break;
    case Ref::kGradients: base = reinterpret_cast<char*>(gradients); break;
    case Ref::kInputs: base = reinterpret_cast<char*>(inputs); break;
    case Ref::kLabels: base = reinterpret_cast<char*>(labels); break;
    case Ref::kClassWeights: base = reinterpret_cast<char*>(class_weights); break;
    case Ref::kKey: base = reinterpret_cast<char*>(key); break;
    case Ref::kResults: base = reinterpret_cast<char*>(results); break;
    case Ref::kRefusals: base = reinterpret_cast<char*>(refusals); break;
  }
  return reinterpret_cast<T*>(base + ref.offset);
}

}  // namespace cairn::cudnn
