#include "replay/replay.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/clock.h"
#include "common/model/weights_digest.h"
#include "replay/partitions.h"
#include "replay/replay_run.h"
#include "worker/node/backend_select.h"

namespace cairn {
namespace {

// "auto": of the kind that computed the job's newest steps, since another one has other bits.
absl::StatusOr<std::unique_ptr<Backend>> BackendFor(const v1::JobStatus& job, const std::string& device) {
  if (device != "auto" || job.devices().empty()) return SelectBackend(device);
  const bool gpu = *job.devices().rbegin() == v1::GPU;
  absl::StatusOr<std::unique_ptr<Backend>> backend = SelectBackend(gpu ? "gpu" : "cpu");
  if (backend.ok() || !gpu) return backend;
  return absl::FailedPreconditionError(absl::StrCat(
      "--device: job ", job.job_id(), " ran on a GPU, and there is none here to compute with (",
      backend.status().message(), "); replay it where there is one, or give --device=cpu, whose bits are others"));
}

// A job's run with all that it stands on; what computes is gone before what it uses.
class Replayer {
 public:
  static absl::StatusOr<std::unique_ptr<Replayer>> Open(const v1::JobStatus& job, const ReplayOptions& options,
                                                        bool finite);

  const Graph& graph() const { return *graph_; }
  const v1::AssignReplicas& assignment() const { return assignment_; }
  const ReplayOrigin& origin() const { return origin_; }
  ComputePool& pool() { return *pool_; }
  ReplayRun& run() { return *run_; }

  // The next step, unless the caller wants no more.
  absl::StatusOr<ReplayedStep> Next(const std::function<void(const ReplayedReplica&)>& on_replica = nullptr);

 private:
  Replayer(const v1::JobStatus& job, const ReplayOptions& options)
      : options_(options), assignment_(MakeReplayAssignment(job, options.source)) {}
  absl::Status OpenRun(const v1::JobStatus& job, bool finite);
  absl::StatusOr<TrainingBatches> OpenBatches(const v1::JobStatus& job);

  const ReplayOptions options_;
  const v1::AssignReplicas assignment_;
  std::shared_ptr<const Graph> graph_;  // of the spec, for digests
  ReplayOrigin origin_;
  int64_t next_ = 0;
  RealClock clock_;
  DatasetCache datasets_{clock_};
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ComputePool> pool_;
  std::unique_ptr<ReplayRun> run_;
};

absl::StatusOr<std::unique_ptr<Replayer>> Replayer::Open(const v1::JobStatus& job, const ReplayOptions& options,
                                                         bool finite) {
  CAIRN_RETURN_IF_ERROR(CheckReplayable(job, options.source, options.step));
  std::unique_ptr<Replayer> replayer(new Replayer(job, options));
  CAIRN_RETURN_IF_ERROR(replayer->OpenRun(job, finite));
  return replayer;
}

absl::Status Replayer::OpenRun(const v1::JobStatus& job, bool finite) {
  CAIRN_ASSIGN_OR_RETURN(Graph graph, Graph::Build(assignment_.spec().model()));
  graph_ = std::make_shared<const Graph>(std::move(graph));
  int64_t first = options_.step;
  if (finite && job.has_not_finite_step()) {  // it may have come earlier, in that epoch
    const int64_t epoch = job.not_finite_step() / std::max<int64_t>(1, job.steps_per_epoch());
    first = std::min(first, epoch * job.steps_per_epoch());
  }
  CAIRN_ASSIGN_OR_RETURN(ReplayStart start, FindReplayStart(job, assignment_, options_.source, first, finite));
  CAIRN_RETURN_IF_ERROR(CheckRates(job, start.step, options_.step));
  CAIRN_ASSIGN_OR_RETURN(TrainingBatches batches, OpenBatches(job));
  CAIRN_ASSIGN_OR_RETURN(backend_, BackendFor(job, options_.device));
  CAIRN_ASSIGN_OR_RETURN(ReplayPartitions partitions, ReplayPartitions::Make(assignment_));
  if (start.state) CAIRN_RETURN_IF_ERROR(partitions.Restore(assignment_, *start.state));
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int slots = backend_->slots_default() > 0 ? backend_->slots_default() : threads;
  pool_ = std::make_unique<ComputePool>(std::min(slots, std::max(1, assignment_.spec().replicas())), *backend_);
  run_ = std::make_unique<ReplayRun>(assignment_, std::move(batches), std::move(partitions), *pool_);
  origin_ = {std::move(start.from), start.step, std::move(start.skipped), backend_->device()};
  next_ = start.step;
  return run_->Begin();
}

absl::StatusOr<TrainingBatches> Replayer::OpenBatches(const v1::JobStatus& job) {
  const std::atomic<bool> dropped{false};
  CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const JobModel> model, MakeJobModel(assignment_.spec()));
  CAIRN_ASSIGN_OR_RETURN(const TrainingData data, OpenTrainingData(std::move(model), job.data(), datasets_, dropped));
  const auto train = static_cast<uint64_t>(data.dataset->size(v1::TRAIN));
  if (train != job.data().train_examples()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.path: %s holds %d training examples here, but the job was trained on %d; give its data with --data",
        assignment_.spec().data().path(), train, job.data().train_examples()));
  }
  return MakeTrainingBatches(data, BatchSourceOptions());
}

absl::StatusOr<ReplayedStep> Replayer::Next(const std::function<void(const ReplayedReplica&)>& on_replica) {
  if (options_.go_on != nullptr && !options_.go_on(next_)) return absl::CancelledError("the replay was interrupted");
  ++next_;
  return run_->Next(on_replica);
}

// ---- a step ----

// Sums of squares over a layer's variables.
class NormsOfLayers {
 public:
  explicit NormsOfLayers(const Graph& graph) : graph_(graph), gradient_(static_cast<size_t>(graph.space_size()), 0.0) {}

  void AddGradient(const ReplayedReplica& replica) {
    const absl::Span<const float> gradient = replica.gradient.floats();
    for (size_t i = 0; i < gradient_.size() && i < gradient.size(); ++i) gradient_[i] += gradient[i];
  }

  std::vector<LayerNorms> Take(const ReplayedStep& step) const {
    std::vector<LayerNorms> layers;
    const absl::Span<const float> before = step.before.floats(), after = step.after.floats();
    const double examples = std::max<double>(1, static_cast<double>(step.sums.examples()));
    for (const Variable& variable : graph_.variables()) {
      const std::string& name = graph_.nodes()[static_cast<size_t>(variable.node)].name;
      if (layers.empty() || layers.back().layer != name) layers.push_back({name});
      LayerNorms& layer = layers.back();
      for (auto i = static_cast<size_t>(variable.offset), end = i + static_cast<size_t>(variable.size); i < end; ++i) {
        const double update = static_cast<double>(after[i]) - before[i], gradient = gradient_[i] / examples;
        layer.weights += static_cast<double>(after[i]) * after[i];
        layer.update += update * update;
        if (variable.kind == VariableKind::kTrainable) layer.gradient += gradient * gradient;
      }
    }
    for (LayerNorms& layer : layers) {
      layer.weights = std::sqrt(layer.weights);
      layer.update = std::sqrt(layer.update);
      layer.gradient = std::sqrt(layer.gradient);
    }
    return layers;
  }

 private:
  const Graph& graph_;
  std::vector<double> gradient_;  // of the sum over all examples
};

std::string DigestOf(const Graph& graph, const Buffer& values) {
  WeightsDigest digest(graph);
  digest.Add(values.floats());
  return digest.Hex();
}

// Compares the values after the step, or goes on to the next step whose digest is known; at most as many steps as lie
// between two digests that a job records.
absl::StatusOr<std::optional<ReplayResult::Check>> CheckBits(const v1::JobStatus& job, const ReplayOptions& options,
                                                             Replayer& replayer, std::string digest) {
  int64_t updates = options.step + 1;
  const int64_t every = std::max<int64_t>(DigestEverySteps(job.spec()), kDigestEveryStepsDefault);
  const int64_t last = std::min(options.step + every, StepsWithRates(job));
  for (const int64_t target : RecordedUpdates(job, options.source)) {
    if (target < updates) continue;
    if (target > last) break;
    const auto recorded = FindRecordedDigest(job, replayer.assignment(), replayer.graph(), options.source, target);
    if (!recorded) continue;
    for (; updates < target; ++updates) {
      CAIRN_ASSIGN_OR_RETURN(const ReplayedStep step, replayer.Next());
      if (updates + 1 == target) digest = DigestOf(replayer.graph(), step.after);
    }
    return ReplayResult::Check{target, digest, *recorded};
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<ReplayResult> ReplayStep(const v1::JobStatus& job, const ReplayOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Replayer> replayer, Replayer::Open(job, options, /*finite=*/false));
  for (int64_t step = replayer->origin().first_step; step < options.step; ++step) {
    CAIRN_RETURN_IF_ERROR(replayer->Next().status());
  }
  NormsOfLayers norms(replayer->graph());
  ReplayResult result;
  {
    CAIRN_ASSIGN_OR_RETURN(const ReplayedStep step,
                           replayer->Next([&](const ReplayedReplica& replica) { norms.AddGradient(replica); }));
    result.step = step.step;
    result.sums = step.sums;
    result.learning_rate = step.learning_rate;
    result.loss_scale = step.loss_scale;
    result.layers = norms.Take(step);
    result.digest = DigestOf(replayer->graph(), step.after);
  }
  result.origin = replayer->origin();
  CAIRN_ASSIGN_OR_RETURN(result.check, CheckBits(job, options, *replayer, result.digest));
  return result;
}

absl::StatusOr<FindResult> FindNotFinite(const v1::JobStatus& job, const ReplayOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Replayer> replayer, Replayer::Open(job, options, /*finite=*/true));
  NotFiniteFinder finder(replayer->run().batches(), replayer->pool());
  FindResult result;
  result.origin = replayer->origin();
  for (int64_t number = result.origin.first_step; number <= options.step && !result.found; ++number) {
    absl::Status trouble;
    CAIRN_ASSIGN_OR_RETURN(const ReplayedStep step, replayer->Next([&](const ReplayedReplica& replica) {
      if (result.found || !trouble.ok()) return;
      absl::StatusOr<std::optional<NotFinite>> found = finder.LookAt(replica);
      if (found.ok()) {
        result.found = *std::move(found);
      } else {
        trouble = found.status();
      }
    }));
    CAIRN_RETURN_IF_ERROR(trouble);
    if (!result.found) result.found = finder.LookAt(step);
    result.last_step = number;
  }
  return result;
}

}  // namespace cairn
