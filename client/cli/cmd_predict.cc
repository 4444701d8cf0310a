// cairn predict ID --split test -o FILE: writes the model's outputs for the examples of a split, in order.
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/evaluation_flags.h"
#include "client/cli/prediction_writer.h"
#include "common/data/csv_unlabelled.h"
#include "common/model/data_check.h"
#include "common/model/graph.h"
#include "common/model/model_inputs.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

// Where nothing but the number of columns says that there is no label. Where the file is not on this machine, nothing.
void TellUnlabelled(const v1::JobStatus& job, const v1::PredictRequest& request) {
  if (!request.has_data()) return;
  const absl::StatusOr<Graph> graph = Graph::Build(job.spec().model());
  if (!graph.ok()) return;
  if (!IsGuessedUnlabelled(request.data(), ExampleShape(request.data(), ModelInputShape(*graph)))) return;
  absl::FPrintF(stderr,
                "cairn: %s has as many columns as the model has inputs: it was taken as having no label column\n",
                request.data().path());
}

absl::Status Predict(const Globals& globals, const PredictOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const JobRef ref, JobRef::Parse(options.what.job));
  PredictionFormat format = globals.json ? PredictionFormat::kJsonLines : PredictionFormat::kCsv;
  if (options.output != "-") {
    CAIRN_ASSIGN_OR_RETURN(format, PredictionFormatOf(options.output));
  }
  CAIRN_ASSIGN_OR_RETURN(const v1::Split split, ParseSplit(options.what.split));
  JobClient client(globals.client);
  CAIRN_ASSIGN_OR_RETURN(const v1::JobStatus job,
                         options.what.weights.empty() ? client.GetWithWeights(ref) : client.Get(ref));
  std::unique_ptr<ClassDecision> decision;
  if (options.classes) {
    CAIRN_ASSIGN_OR_RETURN(ClassDecision made, ClassDecision::Of(job));
    decision = std::make_unique<ClassDecision>(std::move(made));
  }
  CAIRN_ASSIGN_OR_RETURN(const v1::EvaluateRequest what, EvaluateRequestOf(job, split, options.what));
  v1::PredictRequest request;
  *request.mutable_job() = what.job();
  request.set_split(what.split());
  request.set_weights(what.weights());
  if (what.has_data()) *request.mutable_data() = what.data();
  CAIRN_ASSIGN_OR_RETURN(std::vector<NamedOutput> outputs, OutputsOf(job.spec()));
  const auto write = [&](auto& writer, const std::string& paths) -> absl::Status {
    v1::Split answered = v1::SPLIT_UNSPECIFIED;
    CAIRN_RETURN_IF_ERROR(client.Predict(request, [&](const v1::PredictResponse& part) {
      answered = part.split();
      return writer.Write(part);
    }));
    CAIRN_RETURN_IF_ERROR(writer.Close());
    const v1::Split taken = TellSplit(options.what, answered);
    TellUnlabelled(job, request);
    if (options.output == "-") return absl::OkStatus();
    if (globals.json) {
      absl::PrintF("{\"job_id\":%d,\"split\":\"%s\",\"examples\":%d}\n", job.job_id(), v1::Split_Name(taken),
                   writer.examples());
    } else {
      absl::PrintF("%s: outputs of %s examples, by job %d\n", paths, Thousands(writer.examples()), job.job_id());
    }
    return absl::OkStatus();
  };
  if (!outputs.empty() && format == PredictionFormat::kNpy && options.output != "-") {
    CAIRN_ASSIGN_OR_RETURN(const auto files, NpyByOutput::Open(options.output, std::move(outputs)));
    return write(*files, absl::StrJoin(files->paths(), ", "));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<PredictionWriter> writer,
                         PredictionWriter::Open(options.output, format, std::move(decision)));
  writer->NameOutputs(std::move(outputs));
  return write(*writer, options.output);
}

}  // namespace

int RunPredict(const Globals& globals, const PredictOptions& options) {
  const absl::Status status = Predict(globals, options);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace cairn
