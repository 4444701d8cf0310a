// ExternalBackend: computes models whose layers are a user's own (model.external), by the programs that it is given.
//
// Thread rule: as Backend. A registration's `open` may be called by several threads at the same time; its result
// belongs to one slot, which calls it from one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/tensor/batch.h"
#include "worker/backend/backend.h"
#include "worker/backend/external/program_gradients.h"

namespace cairn {

// What a program is told of a job before its first batch.
struct ProgramJob {
  std::shared_ptr<const Graph> graph;  // variables, in the order in which they are numbered
  v1::External external;
  int64_t batch_max = 0;  // examples
  int threads = 1;        // JobSpec.threads_per_replica
  bool deterministic = true;
};

// The examples of a call.
struct ProgramBatch {
  // For data.external: which of the split's examples. Otherwise empty, and `batch` has the examples.
  std::vector<int64_t> indices;
  v1::Split split = v1::TRAIN;
  const Batch* batch = nullptr;  // with data.path: inputs and labels, as backends get them
  int64_t examples = 0;
};

// Sums over the batch's examples.
struct ProgramSums {
  double loss = 0;
  std::vector<double> figures;  // in the order of External.figures
};

// The program of one slot. The same job, values, batch and StepInfo must give the same bits, whatever was computed
// before: a job is bit-exact only if its program is. values: the whole parameter space; a variable's numbers begin at
// its offset.
class ExternalProgram {
 public:
  virtual ~ExternalProgram() = default;
  // Writes sums over the examples into `gradients`; for a moving average examples * the statistic.
  virtual absl::StatusOr<ProgramSums> Train(const ProgramBatch& batch, const StepInfo& info,
                                            absl::Span<const float> values, ProgramGradients& gradients) = 0;
  virtual absl::StatusOr<ProgramSums> Evaluate(const ProgramBatch& batch, absl::Span<const float> values) = 0;
  // outputs: [examples, External.output_shape...].
  virtual absl::Status Predict(const ProgramBatch& batch, absl::Span<const float> values,
                               absl::Span<float> outputs) = 0;
};

struct ProgramRegistration {
  std::string name, version;  // IsProgramName
  // Opens the program for a slot. Errors: as those of the program's calls.
  std::function<absl::StatusOr<std::unique_ptr<ExternalProgram>>(const ProgramJob& job)> open;
};

struct ExternalBackendOptions {
  std::string device = "cpu";  // shown to users
  v1::Device kind = v1::CPU;
  std::string fingerprint;  // what decides the programs' bits: versions of libraries, the processor
};

class ExternalBackend : public Backend {
 public:
  // Errors: INVALID_ARGUMENT if there is no program, or one with a bad name, or one twice.
  static absl::StatusOr<std::unique_ptr<ExternalBackend>> Make(std::vector<ProgramRegistration> programs,
                                                               ExternalBackendOptions options);

  std::string name() const override { return "external"; }
  std::string device() const override { return options_.device; }
  std::string fingerprint() const override { return options_.fingerprint; }
  v1::Device kind() const override { return options_.kind; }
  int slots_default() const override { return 1; }
  std::vector<v1::ExternalProgram> programs() const override;
  // An error of a program becomes UNAVAILABLE: another worker's program may not have it. If no other worker has the
  // program, the job fails with its text.
  absl::StatusOr<std::unique_ptr<Program>> Compile(std::shared_ptr<const Graph> graph,
                                                   const ProgramOptions& options) override;

 private:
  ExternalBackend(std::vector<ProgramRegistration> programs, ExternalBackendOptions options)
      : programs_(std::move(programs)), options_(std::move(options)) {}

  const std::vector<ProgramRegistration> programs_;
  const ExternalBackendOptions options_;
};

}  // namespace cairn
