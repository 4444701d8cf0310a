// Backend: the seam between the trainer and what computes (oneDNN on CPUs, cuDNN on GPUs, the reference in tests).
//
// A Backend is shared by all threads. A Program belongs to one thread at a time (one replica slot).
// Invariants of a Program:
//   1. Given the same graph, values, batch and StepInfo it computes the same bits, whatever it computed before.
//   2. Gradients are sums over the batch's examples, not means. For a moving average's range they are
//      examples * the batch's statistic.
//   3. It writes every number of `gradients` (padding too, with zeros) and announces each exactly once.
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
  float loss_scale = 1;  // a power of two: the loss is multiplied by it, its gradients divided by it in float32
                         // (ProgramOptions.compute FLOAT16)
  v1::DataType values = v1::FLOAT32;  // every value is a number of this type: so it may cross to a device as one
  // Of TrainJoined: a step of several pieces (JobSpec.accumulate_steps), computed one after the other by one program.
  // Their gradients are added up in their order, and the last one's call gives the sum to the join.
  bool first_piece = true, last_piece = true;
};

struct BatchSums {
  uint64_t examples = 0;
  double loss = 0;              // sum over examples
  std::vector<double> metrics;  // sums over examples, in the order of JobSpec.metrics
  // Of EvaluateBlocks: what the sums are above those doubles (common/base/exact_sum.h). A program leaves them out.
  double loss_rest = 0;
  std::vector<double> metrics_rest;
};

// Called on the computing thread: the gradients of [begin, end) are final. Ranges are multiples of kSpaceAlignment
// and come roughly from the end of the space to its beginning.
using GradientReady = std::function<void(int64_t begin, int64_t end)>;

// Where a Program gets the values that are not all in its caller's memory (CENTRAL_STORAGE). It asks for the range of a
// layer's variables before it uses them and says when it is done with them; between the two they stand in `values`.
// Called on the computing thread.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Soon wanted: the next Acquire is of this range. Does not wait.
  virtual void Prefetch(int64_t begin, int64_t end) = 0;
  // Waits until [begin, end) of the values is there. Errors: CANCELLED, nobody wants the result any more.
  virtual absl::Status Acquire(int64_t begin, int64_t end) = 0;
  // As often as Acquire.
  virtual void Release(int64_t begin, int64_t end) = 0;
};

class Program {
 public:
  virtual ~Program() = default;

  // Forward, loss, backward. values, gradients: the whole parameter space, space_size() numbers.
  // batch.examples is in [1, batch_max]. Errors: INVALID_ARGUMENT where a label is out of range.
  virtual absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                              absl::Span<float> gradients, const GradientReady& ready) = 0;
  // The same, but the gradient becomes that of replica join.node.first + leaf; the caller gets the sum only. ready: of
  // the own gradient, whose numbers are nowhere in the caller's memory. Errors: UNIMPLEMENTED, the backend does not
  // join.
  virtual absl::StatusOr<BatchSums> TrainJoined(const Batch& /*batch*/, const StepInfo& /*info*/,
                                                absl::Span<const float> /*values*/,
                                                const std::shared_ptr<GradientJoin>& /*join*/, uint32_t /*leaf*/,
                                                const GradientReady& /*ready*/) {
    return absl::UnimplementedError("this backend does not add up gradients");
  }
  // Forward with moving statistics and without dropout.
  virtual absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) = 0;
  // The same; outputs: float32 [examples, output shape...].
  virtual absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) = 0;

  // What the next TrainStep's batch will be, if the caller has it: a program may bring its inputs to the device
  // meanwhile. They are not written to until then. From within GradientReady, or between calls.
  virtual void Prefetch(const Batch& /*next*/) {}

  // From the next call on values are asked of `source`, which outlives it or is taken back with null (the default: they
  // are all there). Errors: UNIMPLEMENTED.
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
  Element inputs = Element::kFloat;    // of the batches to be expected; a program takes both
  v1::Loss loss;
  std::vector<v1::Metric> metrics;
  std::vector<v1::ClassWeight> class_weights;  // of training's loss
  // Of a job that trains several outputs (JobSpec.outputs), instead of `loss`: what the numbers of the graph's output
  // are, which is all of them joined. `metrics` begin with the losses of the trained ones (FiguresOfJob).
  std::vector<JoinedOutput> outputs;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;         // "onednn"
  virtual std::string device() const = 0;       // "cpu: Intel Xeon ... (AVX-512)"
  virtual std::string fingerprint() const = 0;  // what decides the bits: ISA, library version
  virtual v1::Device kind() const { return v1::CPU; }
  // JobSpec.compute_dtype: Compile refuses others.
  virtual bool Computes(v1::DataType compute) const { return compute == v1::FLOAT32; }
  // The programs that it computes models with (model.external); it then computes no layers.
  virtual std::vector<v1::ExternalProgram> programs() const { return {}; }
  // UNAVAILABLE once a device is lost: a call of one of its programs ended so. It stays lost until the process is
  // started again.
  virtual absl::Status health() const { return absl::OkStatus(); }
  // Replicas that a worker computes at the same time unless it is told otherwise; 0: one for each of the machine's
  // threads.
  virtual int slots_default() const { return 0; }
  // Whether it adds up gradients itself (GradientJoin); else Join is UNIMPLEMENTED.
  virtual bool joins() const { return false; }
  virtual absl::StatusOr<std::shared_ptr<GradientJoin>> Join(const std::shared_ptr<const Graph>& /*graph*/,
                                                             JoinOptions /*options*/) {
    return absl::UnimplementedError("this backend does not add up gradients");
  }
  // Errors: UNIMPLEMENTED names the layer that this backend lacks.
  virtual absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph,
                                                           const ProgramOptions& options) = 0;
};

}  // namespace cairn
