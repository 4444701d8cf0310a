#include "worker/reports/summary_writer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "client/parameter_client.h"
#include "common/base/log.h"
#include "common/model/fault_check.h"
#include "common/model/graph.h"
#include "worker/reports/board_log.h"
#include "worker/reports/csv_log.h"

namespace cairn {
namespace {

constexpr absl::Duration kPullTimeout = absl::Seconds(30);

// Makes a host name usable in a file name.
std::string PlainName(std::string host) {
  for (char& c : host) {
    if (c == '/' || c == '\0') c = '-';
  }
  return host.empty() ? "localhost" : host;
}

}  // namespace

struct SummaryWriter::Job {
  Graph graph;
  std::vector<BoardLog> boards;
  std::vector<CsvLog> csvs;
};

SummaryWriter::SummaryWriter(std::string host, Clock* clock, std::function<void(v1::NodeMessage)> send)
    : host_(PlainName(std::move(host))), clock_(clock), send_(std::move(send)), executor_("summaries") {}

SummaryWriter::~SummaryWriter() { Stop(); }

void SummaryWriter::Stop() { executor_.Stop(); }

void SummaryWriter::Write(const v1::WriteSummaries& command) {
  executor_.Post([this, command] {
    const absl::Status status = WriteNow(command);
    v1::NodeMessage message;
    v1::SummariesWritten& written = *message.mutable_summaries_written();
    written.set_job_id(command.job_id());
    if (!status.ok()) {
      LogWarning("job %d: summaries: %s", command.job_id(), status.message());
      written.set_error(std::string(status.message()));
    } else if (!command.epochs().empty()) {
      written.set_epochs(command.epochs().rbegin()->epoch() + 1);
    }
    send_(std::move(message));
  });
}

void SummaryWriter::Forget(uint64_t job_id) {
  executor_.Post([this, job_id] { jobs_.erase(job_id); });
}

absl::Status SummaryWriter::WriteNow(const v1::WriteSummaries& command) {
  const v1::JobSpec& spec = command.spec();
  const absl::Time submitted = absl::FromUnixMillis(static_cast<int64_t>(command.submitted_unix_ms()));
  std::unique_ptr<Job>& job = jobs_[command.job_id()];
  if (job == nullptr) {
    auto made = std::make_unique<Job>();
    CAIRN_ASSIGN_OR_RETURN(made->graph, Graph::Build(spec.model()));
    for (const v1::Callback& callback : spec.callbacks()) {
      if (callback.has_tensorboard()) made->boards.emplace_back(callback.tensorboard(), host_);
      if (callback.has_csv_logger()) made->csvs.emplace_back(spec, callback.csv_logger(), submitted);
    }
    job = std::move(made);
  }
  Buffer weights;
  if (std::any_of(job->boards.begin(), job->boards.end(), [&](const BoardLog& b) { return b.WantsWeights(command); })) {
    auto pulled = PullVariables(command.job_id(), {command.routes().begin(), command.routes().end()},
                                IsSynchronous(spec), kPullTimeout);
    if (pulled.ok()) {
      weights = std::move(pulled->values);
    } else {
      LogWarning("job %d: no histograms of epoch %d: %s", command.job_id(), command.epochs().rbegin()->epoch() + 1,
                 pulled.status().message());
    }
  }
  const double now = absl::ToDoubleSeconds(clock_->Now() - absl::UnixEpoch());
  const std::vector<v1::EpochResult> epochs(command.epochs().begin(), command.epochs().end());
  absl::Status status;
  for (BoardLog& board : job->boards) {
    status.Update(board.Write(
        command, job->graph, weights.empty() ? absl::Span<const float>() : absl::MakeConstSpan(weights.floats()), now));
  }
  for (CsvLog& csv : job->csvs) status.Update(csv.Write(epochs));
  return status;
}

}  // namespace cairn
