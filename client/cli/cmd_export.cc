// cairn export ID -o FILE: exports a job's variables, which it pulls from the ps that hold them.
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/output_file.h"
#include "client/job_client.h"
#include "client/parameter_client.h"
#include "common/formats/keras_archive.h"
#include "common/formats/onnx_file.h"
#include "common/formats/safetensors.h"
#include "common/formats/torch_layout.h"
#include "common/model/data_check.h"
#include "common/model/fault_check.h"
#include "common/model/graph.h"
#include "common/model/model_inputs.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

constexpr absl::Duration kPullTimeout = absl::Minutes(2);

absl::StatusOr<std::vector<v1::Route>> RoutesOf(const v1::JobStatus& job) {
  std::vector<v1::Route> routes;
  for (const v1::PartitionPlacement& p : job.partitions()) {
    if (p.primary_address().empty()) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "job %d: partition %d has no server now; see `cairn nodes` and try again", job.job_id(), p.partition()));
    }
    v1::Route route;
    route.mutable_range()->set_partition(p.partition());
    route.mutable_range()->set_begin(p.begin());
    route.mutable_range()->set_end(p.end());
    route.set_ps(p.primary());
    route.set_address(p.primary_address());
    routes.push_back(std::move(route));
  }
  if (routes.empty()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("job %d is %s and has no weights yet", job.job_id(), StateText(job.state())));
  }
  return routes;
}

// Adds advice for the case that a ps is gone.
absl::Status Advise(const absl::Status& status, uint64_t job) {
  if (absl::IsFailedPrecondition(status)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the weights of job %d are not of one step: %s\nA ps was restarted and came back with what "
                        "its disk had: use a "
                        "checkpoint of the job, or submit it again.",
                        job, status.message()));
  }
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  return absl::Status(
      status.code(),
      absl::StrFormat(
          "the weights of job %d cannot be read now: %s\nSee `cairn nodes`. Start that ps again on its data "
          "directory, or wait until a backup has taken its place; then try again.",
          job, status.message()));
}

// A random_crop at the head is not a layer of the model.
void NoteCrop(const v1::JobSpec& spec, const Graph& graph) {
  const Shape &input = ModelInputShape(graph), examples = ExampleShape(spec.data(), input);
  if (examples == input) return;
  absl::FPrintF(stderr,
                "cairn: note: the file takes what random_crop left of the examples, %s of %s, and does not crop by "
                "itself; crop what it is given\n",
                ToString(input), ToString(examples));
}

enum class Format { kSafetensors, kKeras, kWeightsH5, kOnnx };

absl::StatusOr<Format> FormatOf(const ExportOptions& options) {
  const std::string& f = options.format;
  const auto is = [&](absl::string_view format, absl::string_view ending) {
    return f.empty() ? absl::EndsWithIgnoreCase(options.output, ending) : f == format;
  };
  Format format = Format::kSafetensors;
  if (is("keras", ".keras")) {
    format = Format::kKeras;
  } else if (is("weights.h5", ".weights.h5")) {
    format = Format::kWeightsH5;
  } else if (is("onnx", ".onnx")) {
    format = Format::kOnnx;
  } else if (!f.empty() && f != "safetensors") {
    return absl::InvalidArgumentError(absl::StrFormat("--format %s: use safetensors, keras, weights.h5 or onnx", f));
  } else if (const std::string ending = std::filesystem::path(options.output).extension().string();
             f.empty() && !ending.empty() && !absl::EqualsIgnoreCase(ending, ".safetensors")) {
    return absl::InvalidArgumentError(
        absl::StrFormat("-o %s: no format has the ending \"%s\"; use .safetensors, .keras, .weights.h5 or .onnx, or "
                        "name one with --format",
                        options.output, ending));
  }
  if (options.layout != "keras" && options.layout != "torch") {
    return absl::InvalidArgumentError(absl::StrFormat("--layout %s: use keras or torch", options.layout));
  }
  if (options.layout == "torch" && format != Format::kSafetensors) {
    return absl::InvalidArgumentError(
        "--layout torch: only of --format safetensors; the other formats have one layout");
  }
  if (options.fold_batch_norm && format != Format::kOnnx) {
    return absl::InvalidArgumentError(
        "--fold-batch-norm: only of --format onnx; the other formats hold the model as it was trained");
  }
  return format;
}

absl::Status WriteAsSafetensors(const ExportOptions& options, const v1::JobStatus& job, const Graph& graph,
                                absl::Span<const float> values, uint64_t version) {
  std::map<std::string, std::string> metadata = {{"format", "cairn"},
                                                 {"job", job.spec().name()},
                                                 {"job_id", absl::StrCat(job.job_id())},
                                                 {"version", absl::StrCat(version)},
                                                 {"digest", job.digest()}};
  std::vector<SafetensorView> tensors;
  if (options.layout == "torch") {
    metadata["format"] = "pt";  // PyTorch's readers expect it
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Safetensor> torch, ToTorchLayout(graph, values));
    for (const Safetensor& t : torch) tensors.push_back({t.name, t.shape, t.data.floats()});
    return WriteSafetensors(options.output, tensors, metadata);
  }
  for (const Variable& v : graph.variables()) {
    tensors.push_back({v.name, v.shape, values.subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size))});
  }
  return WriteSafetensors(options.output, tensors, metadata);
}

absl::Status Export(const Globals& globals, const ExportOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const Format format, FormatOf(options));
  CAIRN_RETURN_IF_ERROR(CheckOutputFile(options.output));  // before gigabytes are pulled
  CAIRN_ASSIGN_OR_RETURN(const JobRef ref, JobRef::Parse(options.job));
  CAIRN_ASSIGN_OR_RETURN(const v1::JobStatus job, JobClient(globals.client).GetWithWeights(ref));
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(job.spec().model()));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Route> routes, RoutesOf(job));
  const absl::StatusOr<PulledVariables> pulled =
      PullVariables(job.job_id(), routes, IsSynchronous(job.spec()), kPullTimeout, /*moves_on=*/!IsFinal(job.state()));
  if (!pulled.ok()) return Advise(pulled.status(), job.job_id());
  const absl::Span<const float> values = pulled->values.floats();
  if (values.size() < static_cast<size_t>(graph.space_size())) {
    return absl::DataLossError(
        absl::StrFormat("the servers hold %d numbers, the model needs %d; are coordinator and client of one version?",
                        values.size(), graph.space_size()));
  }
  const std::string& name = job.spec().model().name().empty() ? job.spec().name() : job.spec().model().name();
  switch (format) {
    case Format::kSafetensors:
      CAIRN_RETURN_IF_ERROR(WriteAsSafetensors(options, job, graph, values, pulled->version));
      break;
    case Format::kKeras:
      CAIRN_RETURN_IF_ERROR(WriteKerasArchive(options.output, name, graph, values, &job.spec().data()));
      break;
    case Format::kWeightsH5: CAIRN_RETURN_IF_ERROR(WriteKerasWeightsFile(options.output, graph, values)); break;
    case Format::kOnnx:
      CAIRN_RETURN_IF_ERROR(WriteOnnxFile(options.output, {name, options.fold_batch_norm}, graph, values));
      break;
  }
  if (format == Format::kKeras || format == Format::kOnnx) NoteCrop(job.spec(), graph);
  if (!globals.json) {
    absl::PrintF("%s: %d variables, %s parameters, version %d, of job %d\n", options.output, graph.variables().size(),
                 Thousands(static_cast<uint64_t>(graph.parameters())), pulled->version, job.job_id());
  }
  return absl::OkStatus();
}

}  // namespace

int RunExport(const Globals& globals, const ExportOptions& options) {
  const absl::Status status = Export(globals, options);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cairn
