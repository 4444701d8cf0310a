// cairn evaluate ID --split test: computes the loss and metrics of a job's weights.
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/evaluation_flags.h"
#include "common/report/figures.h"
#include "common/report/json.h"

namespace cairn {
int RunEvaluate(const Globals& globals, const EvaluateOptions& options) {
  const auto ref = JobRef::Parse(options.job);
  if (!ref.ok()) return Fail(ref.status());
  const auto split = ParseSplit(options.split);
  if (!split.ok()) return Fail(split.status());
  JobClient client(globals.client);
  const auto job = options.weights.empty() ? client.GetWithWeights(*ref) : client.Get(*ref);
  if (!job.ok()) return Fail(job.status());
  const auto request = EvaluateRequestOf(*job, *split, options);
  if (!request.ok()) return Fail(request.status());
  const auto response = client.Evaluate(*request);
  if (!response.ok()) return Fail(response.status());
  const v1::Split taken = TellSplit(options, response->split());
  if (globals.json) {
    absl::PrintF("%s\n", EvaluateJson(*job, taken, *response));
    return kExitOk;
  }
  absl::PrintF("job %d, %s: %s examples", job->job_id(), absl::AsciiStrToLower(v1::Split_Name(taken)),
               Thousands(response->sums().examples()));
  for (const auto& [name, value] : MeanFigures(job->spec(), response->sums()))
    absl::PrintF(" - %s: %s", name, FigureText(value));
  absl::PrintF("\n");
  return kExitOk;
}

}  // namespace cairn
