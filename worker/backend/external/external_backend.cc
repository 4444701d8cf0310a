#include "worker/backend/external/external_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/model/example_key.h"
#include "common/model/external_check.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

class CalledProgram : public Program {
 public:
  CalledProgram(const ProgramJob& job, std::unique_ptr<ExternalProgram> program)
      : graph_(job.graph),
        external_(job.external),
        where_(absl::StrCat("program ", ProgramText(external_.program(), external_.version()))),
        program_(std::move(program)) {}

  absl::StatusOr<BatchSums> TrainStep(const Batch& batch, const StepInfo& info, absl::Span<const float> values,
                                      absl::Span<float> gradients, const GradientReady& ready) override {
    CAIRN_ASSIGN_OR_RETURN(const ProgramBatch examples, Examples(batch));
    ProgramGradients out(*graph_, gradients, ready);
    const absl::StatusOr<ProgramSums> sums = program_->Train(examples, info, values, out);
    if (!sums.ok()) return Failed(sums.status());
    out.Finish();
    return Checked(*sums, batch);
  }

  absl::StatusOr<BatchSums> Evaluate(const Batch& batch, absl::Span<const float> values) override {
    CAIRN_ASSIGN_OR_RETURN(const ProgramBatch examples, Examples(batch));
    const absl::StatusOr<ProgramSums> sums = program_->Evaluate(examples, values);
    if (!sums.ok()) return Failed(sums.status());
    return Checked(*sums, batch);
  }

  absl::StatusOr<Buffer> Predict(const Batch& batch, absl::Span<const float> values) override {
    if (external_.output_shape().empty()) {
      return absl::FailedPreconditionError(
          "model.external.output_shape: missing, so that the job's program makes no predictions; submit a job that "
          "gives the shape of one example's");
    }
    CAIRN_ASSIGN_OR_RETURN(const ProgramBatch examples, Examples(batch));
    const int64_t numbers = batch.examples * NumElements(graph_->output().output);
    Buffer outputs = Buffer::Zeros(static_cast<size_t>(numbers) * sizeof(float));
    const absl::Status status = program_->Predict(examples, values, outputs.mutable_floats());
    if (!status.ok()) return Failed(status);
    return outputs;
  }

  uint64_t memory_bytes() const override { return 0; }  // the program's own, which nobody here knows

 private:
  absl::StatusOr<ProgramBatch> Examples(const Batch& batch) const {
    ProgramBatch examples;
    examples.examples = batch.examples;
    if (!external_.input_shape().empty()) {
      examples.batch = &batch;
      return examples;
    }
    if (batch.element != Element::kByte ||
        static_cast<int64_t>(batch.inputs.size()) != batch.examples * kExampleKeyBytes) {
      return absl::InternalError("a batch of data.external holds no keys of examples");
    }
    for (int64_t i = 0; i < batch.examples; ++i) {
      const ExampleKey key = ReadExampleKey(batch.inputs.data() + i * kExampleKeyBytes);
      examples.indices.push_back(key.index);
      examples.split = key.split;  // of all
    }
    return examples;
  }

  absl::StatusOr<BatchSums> Checked(const ProgramSums& sums, const Batch& batch) const {
    if (static_cast<int>(sums.figures.size()) != external_.figures_size()) {
      return Failed(absl::InvalidArgumentError(absl::StrCat(
          "it gave ", sums.figures.size(), " figures, model.external.figures names ", external_.figures_size())));
    }
    BatchSums checked;
    checked.examples = static_cast<uint64_t>(batch.examples);
    checked.loss = sums.loss;
    checked.metrics = sums.figures;
    return checked;
  }

  absl::Status Failed(const absl::Status& status) const {
    if (absl::IsCancelled(status)) return status;
    return absl::UnavailableError(absl::StrCat(where_, ": ", status.message()));
  }

  const std::shared_ptr<const Graph> graph_;
  const v1::External external_;
  const std::string where_;
  const std::unique_ptr<ExternalProgram> program_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExternalBackend>> ExternalBackend::Make(std::vector<ProgramRegistration> programs,
                                                                       ExternalBackendOptions options) {
  if (programs.empty()) return Bad("programs: none; a worker has one at least");
  for (size_t i = 0; i < programs.size(); ++i) {
    const ProgramRegistration& program = programs[i];
    if (!IsProgramName(program.name) || !IsProgramName(program.version)) {
      return Bad("programs[", i, "]: name and version are 1 to ", kProgramNameBytesMax,
                 " letters, digits, '-', '_' and '.'; it has ", ProgramText(program.name, program.version));
    }
    for (size_t other = 0; other < i; ++other) {
      if (programs[other].name != program.name || programs[other].version != program.version) continue;
      return Bad("programs[", i, "]: ", ProgramText(program.name, program.version), " twice; give it once");
    }
  }
  return std::unique_ptr<ExternalBackend>(new ExternalBackend(std::move(programs), std::move(options)));
}

std::vector<v1::ExternalProgram> ExternalBackend::programs() const {
  std::vector<v1::ExternalProgram> all;
  for (const ProgramRegistration& program : programs_) {
    v1::ExternalProgram& one = all.emplace_back();
    one.set_name(program.name);
    one.set_version(program.version);
  }
  return all;
}

absl::StatusOr<std::unique_ptr<Program>> ExternalBackend::Compile(std::shared_ptr<const Graph> graph,
                                                                  const ProgramOptions& options) {
  const Node& node = graph->output();
  if (node.kind != LayerKind::kExternal) {
    return absl::UnimplementedError(
        absl::StrCat("layer \"", node.name, "\": this worker has programs of its own and computes no layers; start a ",
                     "cairn-worker"));
  }
  ProgramJob job{graph, node.layer.external(), options.batch_max, options.threads, options.deterministic};
  const std::string text = ProgramText(job.external.program(), job.external.version());
  for (const ProgramRegistration& program : programs_) {
    if (program.name != job.external.program() || program.version != job.external.version()) continue;
    absl::StatusOr<std::unique_ptr<ExternalProgram>> opened = program.open(job);
    if (!opened.ok()) {
      return absl::UnavailableError(
          absl::StrCat("program ", text, ", when it was opened: ", opened.status().message()));
    }
    return std::make_unique<CalledProgram>(job, *std::move(opened));
  }
  return absl::UnimplementedError(absl::StrCat("layer \"", node.name, "\": this worker has no program ", text));
}

}  // namespace cairn
