// Backend: the interface between the trainer and what computes gradients: oneDNN on CPUs, cuDNN on GPUs, the reference
// in tests.
//
// A Backend is shared by all threads. A Program is used by one thread at a time (that of a slot). Invariants of a
// Program:
//   1. Given the same graph, values, batch and StepInfo it computes the same bits, whatever it computed before.
//   2. Gradients are sums over the examples of the batch, not means. The gradient of a moving average is the number of
//      examples times the batch's statistic.
//   3. It writes every number of `gradients` (the padding with zeros) and announces each exactly once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/external.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/optimizer.pb.h"
#include "common/base/status.h"
#include "common/base/trace.h"
#include "common/model/graph.h"
#include "common/model/job_outputs.h"
#include "common/tensor/batch.h"
#include "common/tensor/buffer.h"
#include "worker/backend/gradient_join.h"

namespace cairn {

struct StepInfo {
  uint64_t seed = 0;  // of the job
  uint64_t step = 0;  // of the job
  uint32_t replica = 0;
  // A power of two: the loss is multiplied by it, and its gradients are divided by it in float32 (for
  // ProgramOptions.compute FLOAT16).
  float loss_scale = 1;
  v1::DataType values = v1::FLOAT32;  // every value is exact in this type, so it may be copied to a device in it
  // For TrainJoined: a step of several pieces (JobSpec.accumulate_steps), computed one after the other by one program.
  // Their gradients are added in the order of the pieces, and the call for the last one gives the sum to the join.
  bool first_piece = true, last_piece = true;
  // Null: the step is not traced. Else a program that can tell it cheaply measures its passes, and layers within them.
  const StepTrace* trace = nullptr;
};

struct BatchSums {
  uint64_t examples = 0;
  double loss = 0;              // sum over examples
  std::vector<double> metrics;  // sums over examples, in the order of JobSpec.metrics
  // Used by EvaluateBlocks: the rests of the exact sums beyond those doubles (common/base/exact_sum.h). A program does
  // not set them.
  double loss_rest = 0;
  std::vector<double> metrics_rest;
};

// Called on the computing thread: the gradients of [begin, end) are final. Ranges are multiples of kSpaceAlignment
// and come roughly from the end of the space to its beginning.
using GradientReady = std::function<void(int64_t begin, int64_t end)>;

// The source of a Program's values when they are not all in memory at once (CENTRAL_STORAGE). The program acquires the
// range of a layer's variables before it uses them and releases it afterwards; between the two they are in `values`.
// Called on the computing thread.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The next Acquire will be for this range. Does not wait.
  virtual void Prefetch(int64_t begin, int64_t end) = 0;
  // Waits until [begin, end) of the values is there. Errors: CANCELLED if nobody needs the result any more.
  virtual absl::Status Acquire(int64_t begin, int64_t end) = 0;
  // Called once for each Acquire.
  virtual void Release(int64_t begin, int64_t end) = 0;
};

class Program {
 public:
  virtual ~Program() = default;

  // Forward, loss, backward. values, gradients: the whole parameter space, space_size() numbers. batch.examples is in
  // [1, batch_max]. Errors: INVALID_ARGUMENT if a label is out of range.
  virtual absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                              absl::Span<float> gradients, const GradientReady& ready) = 0;
  // The same, but the gradient goes to `join` as that of replica join.node.first + leaf, and the caller gets only the
  // sum of all replicas. ready: called for this replica's gradient, which is nowhere in the caller's memory. Errors:
  // UNIMPLEMENTED if the backend does not add up gradients.
  virtual absl::StatusOr<BatchSums> TrainJoined(const Batch& /*batch*/, const StepInfo& /*info*/,
                                                absl::Span<const float> /*values*/,
                                                const std::shared_ptr<GradientJoin>& /*join*/, uint32_t /*leaf*/,
                                                const GradientReady& /*ready*/) {
    return absl::UnimplementedError("this backend does not add up gradients");
  }
  // Forward and loss, with moving statistics and without dropout.
  virtual absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) = 0;
  // Forward, in the same way. Returns the outputs: float32 [examples, output shape...].
  virtual absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) = 0;

  // Announces the batch of the next TrainStep, if the caller already has it: a program may copy its inputs to the
  // device meanwhile. They must not change until that step. Called between calls, or from within GradientReady.
  virtual void Prefetch(const Batch& /*next*/) {}

  // From the next call on the program gets its values from `source`, which must live until it is replaced. Null, the
  // default: all values are in memory. Errors: UNIMPLEMENTED.
  virtual absl::Status UseWeightSource(WeightSource* source) {
    if (source == nullptr) return absl::OkStatus();
    return absl::UnimplementedError("this backend cannot compute layer by layer (strategy CENTRAL_STORAGE)");
  }

  virtual uint64_t memory_bytes() const = 0;  // activations, workspaces, weights in its own layouts
};

struct ProgramOptions {
  int64_t batch_max = 0;  // examples
  int threads = 1;
  v1::DataType compute = v1::FLOAT32;  // JobSpec.compute_dtype; losses and gradients are FLOAT32
  bool deterministic = true;           // JobSpec.deterministic
  bool allow_tf32 = false;             // JobSpec.allow_tf32
  Element inputs = Element::kFloat;    // of the batches to expect; a program accepts both
  v1::Loss loss;
  std::vector<v1::Metric> metrics;
  std::vector<v1::ClassWeight> class_weights;  // for the loss of training
  // For a job that trains several outputs (JobSpec.outputs), instead of `loss`: the parts of the graph's output, which
  // is all outputs joined. `metrics` begins with the losses of the trained outputs (FiguresOfJob).
  std::vector<JoinedOutput> outputs;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "onednn"
  virtual std::string device() const = 0;       // "cpu: Intel Xeon ... (AVX-512)"
  virtual std::string fingerprint() const = 0;  // all that the bits depend on: ISA, library version
  virtual v1::Device kind() const { return v1::CPU; }
  // Whether it supports this JobSpec.compute_dtype; Compile refuses others.
  virtual bool Computes(v1::DataType compute) const { return compute == v1::FLOAT32; }
  // The programs that it computes models with (model.external); it then computes no layers.
  virtual std::vector<v1::ExternalProgram> programs() const { return {}; }
  // UNAVAILABLE once a device is lost: a call of one of its programs failed or did not end. The device stays lost until
  // the process restarts.
  virtual absl::Status health() const { return absl::OkStatus(); }
  // How many replicas a worker computes at the same time by default; 0: one for each hardware thread.
  virtual int slots_default() const { return 0; }
  // Whether the backend adds up gradients itself (GradientJoin); if not, Join returns UNIMPLEMENTED.
  virtual bool joins() const { return false; }
  virtual absl::StatusOr<std::shared_ptr<GradientJoin>> Join(const std::shared_ptr<const Graph>& /*graph*/,
                                                             JoinOptions /*options*/) {
    return absl::UnimplementedError("this backend does not add up gradients");
  }
  // Errors: UNIMPLEMENTED names the layer that this backend does not compute.
  virtual absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph,
                                                           const ProgramOptions& options) = 0;
};

}  // namespace cairn
