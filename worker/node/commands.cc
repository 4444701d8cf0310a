#include "worker/node/commands.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "client/parameter_client.h"
#include "common/base/log.h"
#include "common/data/csv_heads.h"
#include "common/data/middle_crop.h"
#include "common/data/output_targets.h"
#include "common/data/text_dataset.h"
#include "common/model/data_check.h"
#include "common/model/epoch_figures.h"
#include "common/model/inputs_check.h"
#include "common/model/metric_sums.h"
#include "common/model/model_inputs.h"
#include "common/model/weights_digest.h"
#include "worker/core/replica_core.h"
#include "worker/core/report_book.h"
#include "worker/limits.h"
#include "worker/node/inspection.h"
#include "worker/node/restorer.h"
#include "worker/node/weights_reader.h"
#include "worker/train/evaluate_blocks.h"
#include "worker/train/prediction.h"
#include "worker/train/trainer.h"

namespace cairn {
namespace {

constexpr absl::Duration kPullTimeout = absl::Seconds(60);
constexpr int64_t kDigestPartitions = 8;

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

// The reply that there is, or one with the error.
template <typename Reply>
Reply& TakeReply(absl::StatusOr<Reply> result, Reply* out) {
  if (result.ok()) {
    *out = *std::move(result);
  } else {
    out->set_error(std::string(result.status().message()));
  }
  return *out;
}

}  // namespace

Commands::Commands(Services services)
    : services_(std::move(services)),
      prober_({services_.pool, services_.datasets, services_.decode_threads, services_.is_idle, 0}),
      data_("data"),
      fetched_("fetch"),
      jobs_("jobs"),
      evaluations_("evaluate") {}

Commands::~Commands() { Stop(); }

void Commands::Stop() {
  stopping_ = true;
  data_.Stop();
  fetched_.Stop();
  jobs_.Stop();
  evaluations_.Stop();
  prober_.Stop();
}

bool Commands::Enter() {
  if (++waiting_ <= kWorkerCommandsMax) return true;
  --waiting_;
  return false;
}

// ---- InspectData ----

void Commands::Inspect(const v1::InspectData& command) {
  const auto send = [this](v1::DataInfoReply reply) {
    v1::NodeMessage message;
    *message.mutable_data_info() = std::move(reply);
    services_.send(std::move(message));
  };
  if (!Enter()) {
    return send(InspectionReply(command.request_id(), absl::ResourceExhaustedError("the worker is busy; try again")));
  }
  SerialExecutor& executor = InspectsRemotely(command, *services_.datasets, services_.remote) ? fetched_ : data_;
  executor.Post([this, command, send, deadline = absl::Now() + kProbeAnswerMax] {
    if (stopping_) return Leave();
    v1::DataInfoReply reply = InspectJob(command, *services_.datasets, services_.remote);
    if (!command.probe() || !reply.error().empty()) {
      send(std::move(reply));
      return Leave();
    }
    prober_.Probe(command.spec(), deadline, [this, send, reply = std::move(reply)](v1::StepProbe probe) {
      v1::DataInfoReply measured = reply;
      *measured.mutable_probe() = std::move(probe);
      send(std::move(measured));
      Leave();
    });
  });
}

// ---- EvaluateShard ----

void Commands::Evaluate(const v1::EvaluateShard& command) {
  const auto reply = [this](const v1::EvaluateShard& request, absl::StatusOr<v1::EvaluateShardReply> result) {
    v1::NodeMessage message;
    v1::EvaluateShardReply& out = TakeReply(std::move(result), message.mutable_evaluated());
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

struct Commands::Subject {
  uint64_t request_id = 0;
  std::shared_ptr<const JobModel> model;
  std::shared_ptr<const Dataset> dataset;
  Buffer values;
  uint64_t version = 0;
};

absl::StatusOr<std::shared_ptr<const Commands::Subject>> Commands::SubjectOf(const v1::EvaluateShard& command) {
  const uint64_t serial = ++subject_serial_;
  evaluations_.PostAfter(kValuesKept, [this, serial] { ForgetSubject(serial); });
  if (subject_ != nullptr && subject_->request_id == command.request_id()) return subject_;
  subject_.reset();
  auto subject = std::make_shared<Subject>();
  subject->request_id = command.request_id();
  subject->model = services_.model_of(command.job_id());
  const bool own = subject->model == nullptr;
  if (own) {
    CAIRN_ASSIGN_OR_RETURN(subject->model, MakeJobModel(command.spec()));
  }
  const Graph &graph = *subject->model->graph, &given = *subject->model->given;
  const v1::Data& data = command.has_data() ? command.data() : command.spec().data();
  const Shape shape = ExampleShape(data, ModelInputShape(given));
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> examples,
                         services_.datasets->Open(data, shape, DatasetCache::How::kShared, kInspectFetchMax));
  CAIRN_RETURN_IF_ERROR(CheckInputSizes(given, data, examples->input_sizes()));
  CAIRN_ASSIGN_OR_RETURN(examples, WithTexts(std::move(examples), given));
  subject->dataset =
      WithJobTargets(AsModelInput(std::move(examples), data, ModelInputShape(graph)), data, command.spec(), graph);
  if (own) subject->model = WithInputs(*subject->model, subject->dataset->element());
  if (subject->dataset->example_size() != NumElements(ModelInputShape(graph))) {
    const std::string columns = TellColumns(data, shape);
    return absl::InvalidArgumentError(absl::StrCat("data.path: an example has ", subject->dataset->example_size(),
                                                   " numbers, the model's input is ", ToString(ModelInputShape(graph)),
                                                   columns.empty() ? "" : ": ", columns));
  }
  if (command.has_data()) CAIRN_RETURN_IF_ERROR(CheckSameInputs(command.spec().data(), data, shape));
  if (command.weights().empty()) {
    CAIRN_ASSIGN_OR_RETURN(PulledVariables pulled,
                           PullAll(command.job_id(), command.spec(), command.routes(), graph.space_size()));
    subject->values = std::move(pulled.values);
    subject->version = pulled.version;
  } else {
    absl::StatusOr<ReadWeights> read = ReadWeightsOf(given, command.weights(), services_.remote);
    if (!read.ok()) return Annotate(read.status(), "weights");
    subject->values = std::move(read->values);
    subject->version = static_cast<uint64_t>(read->step);
  }
  subject_ = subject;
  return subject;
}

// Does nothing if it was used since.
void Commands::ForgetSubject(uint64_t serial) {
  if (serial == subject_serial_) subject_.reset();
}

namespace {

// Runs work in parts on the slots, after training. Waits for all parts. Returns CANCELLED if `stopping` is set first; a
// part may then still run, using only data that it owns.
class Parts {
 public:
  explicit Parts(int parts) : left_(parts), results_(static_cast<size_t>(parts), absl::CancelledError("stopped")) {}

  void Done(int part, absl::Status status) {
    absl::MutexLock lock(&mutex_);
    results_[static_cast<size_t>(part)] = std::move(status);
    --left_;
  }
  absl::Status Wait(const std::atomic<bool>& stopping) {
    absl::MutexLock lock(&mutex_);
    const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return left_ == 0; };
    while (!mutex_.AwaitWithTimeout(absl::Condition(&done), kStopPoll)) {
      if (stopping) return absl::CancelledError("the worker is stopping");
    }
    for (const absl::Status& result : results_) CAIRN_RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

 private:
  static constexpr absl::Duration kStopPoll = absl::Milliseconds(100);
  absl::Mutex mutex_;
  int left_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> results_ ABSL_GUARDED_BY(mutex_);  // by part
};

v1::Split SplitOf(const v1::EvaluateShard& command) {
  return command.split() == v1::SPLIT_UNSPECIFIED ? v1::TEST : command.split();
}

// Blocks of the shard per task: after these a slot returns to training.
constexpr int64_t kBlocksOfTask = 4;

}  // namespace

absl::StatusOr<v1::EvaluateShardReply> Commands::EvaluateNow(const v1::EvaluateShard& command) {
  if (command.shards() == 0 || command.shard() >= command.shards()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no shard ", command.shard(), " of ", command.shards()));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<const Subject> subject, SubjectOf(command));
  if (!command.predict()) CAIRN_RETURN_IF_ERROR(CheckLabelled(*subject->dataset));
  const v1::Split split = SplitOf(command);
  const int64_t shard = command.shard(), shards = command.shards();
  const int64_t examples = subject->dataset->size(split), block = subject->model->options.batch_max;
  const PlaceRange places =
      command.predict() ? Share(examples, shard, shards) : ExamplesOfShard(examples, block, shard, shards);
  const int64_t run = kBlocksOfTask * block;
  const int count = static_cast<int>((places.size() + run - 1) / run);
  const auto parts = std::make_shared<Parts>(count);
  // By part; each is written only by its task, and read after Wait.
  const auto sums = std::make_shared<std::vector<BatchSums>>(count);
  const auto outputs = std::make_shared<std::vector<std::string>>(count);
  for (int part = 0; part < count; ++part) {
    const PlaceRange range{places.begin + part * run, std::min(places.begin + (part + 1) * run, places.end)};
    services_.pool->Submit(
        ComputePool::Priority::kEvaluation, [=, this, predict = command.predict()](ProgramCache& programs) {
          const auto compute = [&]() -> absl::Status {
            CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(subject->model));
            if (predict) {
              CAIRN_ASSIGN_OR_RETURN((*outputs)[static_cast<size_t>(part)],
                                     PredictBlocks(*program, *subject->model, {*subject->dataset, split, range},
                                                   subject->values.floats(), stopping_));
              return absl::OkStatus();
            }
            CAIRN_ASSIGN_OR_RETURN((*sums)[static_cast<size_t>(part)],
                                   EvaluateBlocks(*program, *subject->model, {*subject->dataset, split, range},
                                                  subject->values.floats(), stopping_));
            return absl::OkStatus();
          };
          parts->Done(part, compute());
        });
  }
  CAIRN_RETURN_IF_ERROR(parts->Wait(stopping_));
  if (command.predict()) SendOutputs(command, *subject, places, *outputs);
  v1::EvaluateShardReply reply;
  reply.set_version(subject->version);
  v1::MetricSums& total = *reply.mutable_sums();
  total.mutable_metrics()->Resize(MetricSumCount(command.spec()), 0);
  for (const BatchSums& part : *sums) AddSums(ToMetricSums(part), total.metrics_size(), total);
  return reply;
}

void Commands::SendOutputs(const v1::EvaluateShard& command, const Subject& subject, PlaceRange places,
                           const std::vector<std::string>& outputs) {
  v1::NodeMessage message;
  v1::PredictBlock& block = *message.mutable_predicted();
  block.set_request_id(command.request_id());
  block.set_shard(command.shard());
  block.set_first_example(static_cast<uint64_t>(places.begin));
  block.set_examples(static_cast<uint64_t>(places.size()));
  for (int64_t side : subject.model->graph->output().output) block.add_output_shape(static_cast<int32_t>(side));
  for (const std::string& part : outputs) block.mutable_outputs()->append(part);
  const size_t left = kPredictBlockBytesMax - std::min(kPredictBlockBytesMax, block.outputs().size());
  std::vector<std::string> names = InputNames({*subject.dataset, SplitOf(command), places}, left);
  if (names.empty() && places.size() > 0) {
    LogWarning("job %d: the outputs of shard %d are sent without the names of their inputs, which take too much room",
               command.job_id(), command.shard());
  }
  block.mutable_inputs()->Assign(std::make_move_iterator(names.begin()), std::make_move_iterator(names.end()));
  services_.send(std::move(message));
}

// ---- Finalize ----

void Commands::Finalize(const v1::Finalize& command) {
  const auto reply = [this](const v1::Finalize& request, absl::StatusOr<v1::FinalizeReply> result) {
    v1::NodeMessage message;
    v1::FinalizeReply& out = TakeReply(std::move(result), message.mutable_finalized());
    out.set_job_id(request.job_id());
    out.set_generation(request.generation());
    services_.send(std::move(message));
  };
  if (!Enter()) return reply(command, absl::ResourceExhaustedError("the worker is busy; try again"));
  jobs_.Post([this, command, reply] {
    if (!stopping_) reply(command, DigestNow(command));
    Leave();
  });
}

// ---- Restore ----

void Commands::Restore(const v1::Restore& command) {
  const auto reply = [this](const v1::Restore& request, absl::StatusOr<v1::RestoreReply> result) {
    v1::NodeMessage message;
    v1::RestoreReply& out = TakeReply(std::move(result), message.mutable_restored());
    out.set_request_id(request.request_id());
    out.set_job_id(request.job_id());
    services_.send(std::move(message));
  };
  if (!Enter()) return reply(command, absl::ResourceExhaustedError("the worker is busy; try again"));
  jobs_.Post([this, command, reply] {
    if (!stopping_) reply(command, RestoreJob(command, stopping_, services_.remote));
    Leave();
  });
}

// Pulls a few partitions at a time: a worker that holds no variables (CENTRAL_STORAGE) has no memory for all. The job
// does not advance any more; a ps that came back with an older version is not waited for. Whether the variables are
// finite is looked at too, since nothing else reads all of them again.
absl::StatusOr<v1::FinalizeReply> Commands::DigestNow(const v1::Finalize& command) {
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(command.spec().model()));
  std::vector<v1::Route> routes = Routes(command.routes());
  std::sort(routes.begin(), routes.end(),
            [](const v1::Route& a, const v1::Route& b) { return a.range().begin() < b.range().begin(); });
  WeightsDigest digest(graph);
  std::map<uint32_t, uint64_t> wanted;  // the wanted version of each partition
  for (int i = 0; i < std::min(command.routes_size(), command.versions_size()); ++i)
    wanted[command.routes(i).range().partition()] = command.versions(i);
  for (size_t first = 0; first < routes.size(); first += kDigestPartitions) {
    const auto begin = routes.begin() + static_cast<int64_t>(first);
    std::vector<v1::Route> some(begin, begin + std::min<int64_t>(kDigestPartitions, routes.end() - begin));
    const uint64_t base = some.front().range().begin();
    for (v1::Route& route : some) {
      route.mutable_range()->set_begin(route.range().begin() - base);
      route.mutable_range()->set_end(route.range().end() - base);
    }
    CAIRN_ASSIGN_OR_RETURN(const PulledVariables pulled,
                           PullVariables(command.job_id(), some,
                                         /*consistent=*/wanted.empty() && IsSynchronous(command.spec()), kPullTimeout));
    for (size_t i = 0; i < some.size(); ++i) {
      const auto want = wanted.find(some[i].range().partition());
      if (want == wanted.end() || want->second == pulled.versions[i]) continue;
      return absl::UnavailableError(absl::StrFormat("ps \"%s\" has partition %d at version %d, the job ends with %d",
                                                    some[i].ps(), some[i].range().partition(), pulled.versions[i],
                                                    want->second));
    }
    digest.Add(pulled.values.floats());
  }
  if (digest.done() != graph.space_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ps hold ", digest.done(), " numbers, the model has ", graph.space_size()));
  }
  v1::FinalizeReply reply;
  reply.set_not_finite(digest.not_finite());
  reply.set_digest(digest.Hex());
  return reply;
}

}  // namespace cairn
