#include "worker/commands.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/parameter_client.h"
#include "common/base/digest.h"
#include "worker/replica_core.h"
#include "worker/restorer.h"
#include "worker/trainer.h"

namespace cairn {
namespace {

constexpr absl::Duration kPullTimeout = absl::Seconds(60);

std::vector<v1::Route> Routes(const google::protobuf::RepeatedPtrField<v1::Route>& routes) {
  return {routes.begin(), routes.end()};
}

absl::StatusOr<PulledVariables> PullAll(uint64_t job_id, const v1::JobSpec& spec,
                                        const google::protobuf::RepeatedPtrField<v1::Route>& routes,
                                        int64_t space_size) {
  CAIRN_ASSIGN_OR_RETURN(PulledVariables pulled,
                         PullVariables(job_id, Routes(routes), IsSynchronous(spec), kPullTimeout));
  if (pulled.values.size() != static_cast<size_t>(space_size) * sizeof(float)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ps hold ", pulled.values.size() / sizeof(float), " numbers, the model has ", space_size));
  }
  return pulled;
}

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

Commands::Commands(Services services) : services_(std::move(services)), data_("data"), evaluations_("evaluate") {}

Commands::~Commands() { Stop(); }

void Commands::Stop() {
  stopping_ = true;
  data_.Stop();
  evaluations_.Stop();
}

bool Commands::Enter() {
  if (++waiting_ <= kCommandsMax) return true;
  --waiting_;
  return false;
}

// ---- InspectData ----

void Commands::Inspect(const v1::InspectData& command) {
  const auto reply = [this](const v1::InspectData& request, const absl::StatusOr<v1::DataInfo>& info) {
    v1::NodeMessage message;
    v1::DataInfoReply& out = *message.mutable_data_info();
    out.set_request_id(request.request_id());
    absl::Status status = info.status();
    if (status.ok()) *out.mutable_info() = *info;
    if (status.ok() && request.has_spec()) {
      const v1::JobSpec& spec = request.spec();
      const StepPlan plan = StepPlan::Of(spec, static_cast<int64_t>(info->train_examples()));
      const absl::StatusOr<v1::CheckpointFacts> facts = InspectCheckpoint(spec, plan.steps_per_epoch);
      if (facts.ok()) *out.mutable_checkpoint() = *facts;
      status = facts.status();
    }
    if (!status.ok()) out.set_error(TextOf(status));
    services_.send(std::move(message));
  };
  if (!Enter()) return reply(command, absl::ResourceExhaustedError("the worker is busy; try again"));
  data_.Post([this, command, reply] {
    if (!stopping_) {
      const Shape shape(command.input_shape().begin(), command.input_shape().end());
      const auto dataset = services_.datasets->Open(command.data(), shape, /*fresh=*/true);
      if (dataset.ok()) {
        reply(command, (*dataset)->info());
      } else {
        reply(command, dataset.status());
      }
    }
    Leave();
  });
}

// ---- EvaluateShard ----

void Commands::Evaluate(const v1::EvaluateShard& command) {
  const auto reply = [this](const v1::EvaluateShard& request, absl::StatusOr<v1::EvaluateShardReply> result) {
    v1::NodeMessage message;
    v1::EvaluateShardReply& out = *message.mutable_evaluated();
    if (result.ok()) {
      out = *std::move(result);
    } else {
      out.set_error(TextOf(result.status()));
    }
    out.set_request_id(request.request_id());
    out.set_shard(request.shard());
    services_.send(std::move(message));
  };
  if (!Enter()) return reply(command, absl::ResourceExhaustedError("the worker is busy; try again"));
  evaluations_.Post([this, command, reply] {
    if (!stopping_) reply(command, EvaluateNow(command));
    Leave();
  });
}

namespace {

// The parts of one evaluation on their way through the slots.
struct Evaluation {
  std::shared_ptr<const JobModel> model;
  std::shared_ptr<const Dataset> dataset;
  Buffer values;
  v1::Split split = v1::TEST;
  uint32_t shard = 0, shards = 1;

  absl::Mutex mutex;
  int parts_left ABSL_GUARDED_BY(mutex) = 0;
  std::vector<absl::StatusOr<BatchSums>> results ABSL_GUARDED_BY(mutex);  // by part
};

constexpr absl::Duration kStopPoll = absl::Milliseconds(100);

// Blocks of the shard in one task: a slot is back at training after these.
constexpr int64_t kBlocksOfTask = 4;

}  // namespace

absl::StatusOr<v1::EvaluateShardReply> Commands::EvaluateNow(const v1::EvaluateShard& command) {
  if (command.shards() == 0 || command.shard() >= command.shards()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no shard ", command.shard(), " of ", command.shards()));
  }
  auto evaluation = std::make_shared<Evaluation>();
  evaluation->model = services_.model_of(command.job_id());
  if (evaluation->model == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(evaluation->model, MakeJobModel(command.spec()));
  }
  const Graph& graph = *evaluation->model->graph;
  CAIRN_ASSIGN_OR_RETURN(evaluation->dataset,
                         services_.datasets->Open(command.spec().data(), graph.input_shape(), /*fresh=*/false));
  if (evaluation->dataset->example_size() != NumElements(graph.input_shape())) {
    return absl::InvalidArgumentError(absl::StrCat("data.path: an example has ", evaluation->dataset->example_size(),
                                                   " numbers, the model's input is ", ToString(graph.input_shape())));
  }
  CAIRN_ASSIGN_OR_RETURN(PulledVariables pulled,
                         PullAll(command.job_id(), command.spec(), command.routes(), graph.space_size()));
  evaluation->values = std::move(pulled.values);
  evaluation->split = command.split() == v1::SPLIT_UNSPECIFIED ? v1::TEST : command.split();
  evaluation->shard = command.shard();
  evaluation->shards = command.shards();

  // Examples shard, shard + shards, ...: place i of the shard is example shard + i * shards.
  const int64_t examples = evaluation->dataset->size(evaluation->split);
  const int64_t places = (examples - command.shard() + command.shards() - 1) / command.shards();
  const int64_t run = kBlocksOfTask * evaluation->model->options.batch_max;
  const int parts = static_cast<int>((std::max<int64_t>(places, 0) + run - 1) / run);
  {
    absl::MutexLock lock(&evaluation->mutex);
    evaluation->parts_left = parts;
    evaluation->results.assign(static_cast<size_t>(parts), absl::CancelledError("stopped"));
  }
  for (int part = 0; part < parts; ++part) {
    const PlaceRange range{part * run, std::min((part + 1) * run, places)};
    services_.pool->Submit(ComputePool::Priority::kEvaluation, [this, evaluation, range, part](ProgramCache& programs) {
      const auto compute = [&]() -> absl::StatusOr<BatchSums> {
        CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(evaluation->model));
        const auto index = [&](int64_t place) { return evaluation->shard + place * evaluation->shards; };
        return EvaluateBlocks(*program, *evaluation->model, *evaluation->dataset, evaluation->split, range, index,
                              evaluation->values.floats(), stopping_);
      };
      absl::StatusOr<BatchSums> sums = compute();
      absl::MutexLock lock(&evaluation->mutex);
      evaluation->results[static_cast<size_t>(part)] = std::move(sums);
      --evaluation->parts_left;
    });
  }

  absl::MutexLock lock(&evaluation->mutex);
  const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(evaluation->mutex) { return evaluation->parts_left == 0; };
  while (!evaluation->mutex.AwaitWithTimeout(absl::Condition(&done), kStopPoll)) {
    if (stopping_) return absl::CancelledError("the worker is stopping");
  }
  v1::EvaluateShardReply reply;
  reply.set_version(pulled.version);
  v1::MetricSums& sums = *reply.mutable_sums();
  for (int m = 0; m < command.spec().metrics_size(); ++m) sums.add_metrics(0);
  for (const absl::StatusOr<BatchSums>& part : evaluation->results) {
    CAIRN_RETURN_IF_ERROR(part.status());
    sums.set_examples(sums.examples() + part->examples);
    sums.set_loss(sums.loss() + part->loss);
    for (int m = 0; m < std::min<int>(sums.metrics_size(), static_cast<int>(part->metrics.size())); ++m) {
      sums.set_metrics(m, sums.metrics(m) + part->metrics[static_cast<size_t>(m)]);
    }
  }
  return reply;
}

// ---- Finalize ----

void Commands::Finalize(const v1::Finalize& command) {
  const auto reply = [this](uint64_t job_id, const absl::StatusOr<std::string>& digest) {
    v1::NodeMessage message;
    v1::FinalizeReply& out = *message.mutable_finalized();
    out.set_job_id(job_id);
    if (digest.ok()) {
      out.set_digest(*digest);
    } else {
      out.set_error(TextOf(digest.status()));
    }
    services_.send(std::move(message));
  };
  if (!Enter()) return reply(command.job_id(), absl::ResourceExhaustedError("the worker is busy; try again"));
  data_.Post([this, command, reply] {
    if (!stopping_) reply(command.job_id(), DigestNow(command));
    Leave();
  });
}

// ---- Restore ----

void Commands::Restore(const v1::Restore& command) {
  const auto reply = [this](const v1::Restore& request, absl::StatusOr<v1::RestoreReply> result) {
    v1::NodeMessage message;
    v1::RestoreReply& out = *message.mutable_restored();
    if (result.ok()) {
      out = *std::move(result);
    } else {
      out.set_error(TextOf(result.status()));
    }
    out.set_request_id(request.request_id());
    out.set_job_id(request.job_id());
    services_.send(std::move(message));
  };
  if (!Enter()) return reply(command, absl::ResourceExhaustedError("the worker is busy; try again"));
  data_.Post([this, command, reply] {
    if (!stopping_) reply(command, RestoreJob(command, stopping_));
    Leave();
  });
}

// Over each variable's name and numbers, in the model's order: the padding between them has no part in it, nor have
// partitions.
absl::StatusOr<std::string> Commands::DigestNow(const v1::Finalize& command) {
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(command.spec().model()));
  CAIRN_ASSIGN_OR_RETURN(const PulledVariables pulled,
                         PullAll(command.job_id(), command.spec(), command.routes(), graph.space_size()));
  Digest digest;
  for (const Variable& variable : graph.variables()) {
    digest.Add(variable.name.data(), variable.name.size());
    digest.Add(pulled.values.floats().data() + variable.offset, static_cast<size_t>(variable.size) * sizeof(float));
  }
  return digest.Hex();
}

}  // namespace cairn
