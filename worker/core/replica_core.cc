#include "worker/core/replica_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/overloaded.h"
#include "common/model/gradient_layout.h"
#include "common/model/loss_scale.h"
#include "common/tensor/dtype.h"
#include "worker/core/central_mode.h"
#include "worker/core/independent_mode.h"
#include "worker/core/mirrored_mode.h"
#include "worker/core/replica_context.h"

namespace cairn {

using replica::Context;
using replica::Effects;

namespace {

// The coordinator is a peer like any other: its messages are validated before use.
absl::Status CheckAssignment(const v1::AssignReplicas& message) {
  const v1::JobSpec& spec = message.spec();
  if (spec.replicas() < 1 || spec.replicas() > kReplicasMax || spec.batch_size() < spec.replicas() ||
      spec.epochs() < 1 || message.data().train_examples() < 1) {
    return absl::InvalidArgumentError("assignment: replicas, batch_size, epochs or the data's size is not filled in");
  }
  for (int32_t replica : message.replicas()) {
    if (replica < 0 || replica >= spec.replicas()) {
      return absl::InvalidArgumentError(absl::StrCat("assignment: there is no replica ", replica));
    }
  }
  if (message.routes_size() < 1 || message.routes_size() > static_cast<int>(kPartitionsMax)) {
    return absl::InvalidArgumentError(absl::StrCat("assignment: ", message.routes_size(), " routes"));
  }
  if (spec.wire_dtype() != v1::DATA_TYPE_UNSPECIFIED && BytesOf(spec.wire_dtype(), kSpaceAlignment) == 0) {
    return absl::InvalidArgumentError("assignment: wire_dtype is not known; use a newer worker");
  }
  return absl::OkStatus();
}

// Routes by partition; they cover the parameter space without gaps.
absl::StatusOr<std::vector<replica::Part>> PartsOf(const v1::AssignReplicas& message) {
  std::vector<replica::Part> parts(message.routes_size());
  for (const v1::Route& route : message.routes()) {
    const uint32_t p = route.range().partition();
    if (p >= parts.size() || !parts[p].address.empty() || route.address().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("assignment: the route of partition ", p, " is wrong or missing"));
    }
    parts[p].range = route.range();
    parts[p].address = route.address();
  }
  uint64_t begin = 0;
  for (const replica::Part& part : parts) {
    const v1::PartitionRange& range = part.range;
    if (range.begin() != begin || range.end() <= begin || range.end() % kSpaceAlignment != 0 ||
        range.end() > static_cast<uint64_t>(kParametersMax)) {
      return absl::InvalidArgumentError(absl::StrCat("assignment: the range of partition ", range.partition(), ", [",
                                                     range.begin(), ", ", range.end(), "), does not start at ", begin));
    }
    begin = range.end();
  }
  return parts;
}

// For each partition, whether its address changed.
absl::StatusOr<std::vector<char>> MovedParts(const std::vector<replica::Part>& before,
                                             const std::vector<replica::Part>& parts) {
  if (parts.size() != before.size()) return absl::InvalidArgumentError("assignment: the job's partitions changed");
  std::vector<char> moved(parts.size(), 0);
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].range.end() != before[p].range.end()) {
      return absl::InvalidArgumentError("assignment: the job's partitions changed");
    }
    moved[p] = parts[p].address != before[p].address;
  }
  return moved;
}

absl::StatusOr<Graph> GraphOf(const v1::JobSpec& spec, uint64_t space_size) {
  CAIRN_ASSIGN_OR_RETURN(Graph graph, Graph::Build(spec.model()));
  if (static_cast<uint64_t>(graph.space_size()) != space_size) {
    return absl::InvalidArgumentError("assignment: the routes are of another model");
  }
  return graph;
}

absl::StatusOr<replica::IndependentMode::Clipping> ClippingOf(const v1::JobSpec& spec, uint64_t space_size) {
  const bool clips = ClipNormOf(spec.optimizer()) != 0;
  if (!clips && !LossScaleRuleOf(spec)) return replica::IndependentMode::Clipping();
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, GraphOf(spec, space_size));
  replica::IndependentMode::Clipping clipping{StepScopesOf(graph, spec, 0, graph.space_size()), {}};
  if (clips) clipping.penalties = PenaltyRangesOf(graph, 0, graph.space_size());
  return clipping;
}

}  // namespace

ReplicaCore::ReplicaCore(const ReplicaCoreOptions& options) : context_(std::make_unique<Context>(options)) {}
ReplicaCore::~ReplicaCore() = default;

Effects ReplicaCore::Step(replica::Event event, absl::Time now) {
  Context& c = *context_;
  c.now = now;
  c.effects.clear();
  if (std::holds_alternative<replica::Drop>(event)) {
    const uint64_t works = c.works, serial = c.serial, checkpoints = c.checkpoints;
    mode_.reset();
    context_ = std::make_unique<Context>(c.options);
    // Late answers to an earlier job must not be taken for current ones.
    context_->works = works;
    context_->serial = serial;
    context_->checkpoints = checkpoints;
    return {};
  }
  if (c.failed) return {};
  if (std::holds_alternative<replica::Timer>(event) && now >= c.armed) c.armed = absl::InfiniteFuture();
  Dispatch(event);
  if (mode_ == nullptr || c.failed) return std::exchange(c.effects, {});
  if (now >= c.retry_earliest) {
    c.retry_earliest = absl::InfiniteFuture();
    mode_->ResendDue();
  }
  if (now >= c.reports.deadline() || c.reports.HasReady()) {
    for (v1::ReplicaReport& report : c.reports.Take(now)) {
      report.set_job_id(c.job.value);
      report.set_generation(c.generation.value);
      c.effects.emplace_back(replica::Report{std::move(report)});
    }
  }
  const absl::Time deadline = std::min(c.retry_earliest, c.reports.deadline());
  if (deadline < c.armed) {
    c.armed = deadline;
    c.effects.emplace_back(replica::SetTimer{deadline});
  }
  return std::exchange(c.effects, {});
}

void ReplicaCore::Dispatch(replica::Event& event) {
  // Without an assignment, any other event is an answer to an earlier job.
  if (mode_ == nullptr && !std::holds_alternative<replica::Assign>(event)) return;
  std::visit(Overloaded{
                 [&](replica::Assign& e) {
                   if (absl::Status status = OnAssign(std::move(e.message)); !status.ok())
                     context_->FailJob(std::string(status.message()));
                 },
                 [&](replica::Reply& e) { mode_->OnReply(replica::NameOf(e.request), e); },
                 [&](replica::GradientReady& e) { mode_->OnGradient(e); },
                 [&](const replica::GradientSummed& e) { mode_->OnSummed(e); },
                 [&](const replica::WeightsWanted& e) { mode_->OnWeightsWanted(e); },
                 [&](const replica::WeightsDone& e) { mode_->OnWeightsDone(e); },
                 [&](replica::Computed& e) { OnComputed(e); }, [&](const replica::Evaluated& e) { OnEvaluated(e); },
                 [&](const replica::CheckpointDone& e) {
                   if (!context_->EndCheckpoint(e)) return;
                   mode_->OnCheckpointDone();
                   context_->FinishLater();
                 },
                 [&](const replica::ReportAgain&) { context_->reports.ReportAgain(); },
                 [](const replica::Timer&) {},  // due work is done after every event (Step)
                 [](const replica::Drop&) {},   // Step
             },
             event);
}

void ReplicaCore::OnComputed(replica::Computed& event) {
  mode_->OnWorkEnded(event.work);
  if (event.sums.ok()) {
    mode_->OnComputed(event.work, *std::move(event.sums));
  } else if (mode_->Knows(event.work)) {
    context_->FailJob(std::string(event.sums.status().message()));
  }
}

void ReplicaCore::OnEvaluated(const replica::Evaluated& event) {
  mode_->OnWorkEnded(event.work);
  if (event.sums.ok()) {
    mode_->OnEvaluated(event.work, *event.sums);
  } else if (mode_->Knows(event.work)) {
    context_->FailJob(std::string(event.sums.status().message()));
  }
}

absl::Status ReplicaCore::OnAssign(v1::AssignReplicas message) {
  Context& c = *context_;
  if (c.assigned && (message.assignment() < c.assignment || message.generation() < c.generation.value)) {
    return absl::OkStatus();  // an old one that arrived late
  }
  CAIRN_RETURN_IF_ERROR(CheckAssignment(message));
  CAIRN_ASSIGN_OR_RETURN(std::vector<replica::Part> parts, PartsOf(message));
  const bool raised = c.assigned && message.generation() > c.generation.value;
  std::vector<char> moved(parts.size(), 0);
  if (c.assigned) {
    CAIRN_ASSIGN_OR_RETURN(moved, MovedParts(c.parts, parts));
  } else {
    CAIRN_RETURN_IF_ERROR(BeginJob(message, parts));
  }
  if (!c.checkpoint_rule) {
    c.checkpoint_rule.emplace(c.spec, c.plan.steps_per_epoch, c.plan.total_steps, message.restored_step(), c.now);
  }
  for (const v1::CheckpointInfo& info : message.checkpoints()) {
    // The time is from a former chief's clock, which may be ahead. In that case every_minutes counts from the
    // checkpoints known here.
    const absl::Time written = absl::FromUnixMillis(info.written_unix_ms());
    c.checkpoint_rule->Taken(info.step(), written <= c.now ? written : absl::InfinitePast());
  }
  SetEpochs(message);
  c.chief = message.chief();
  c.assigned = true;
  c.assignment = message.assignment();
  c.generation = Generation(message.generation());
  c.parts = std::move(parts);
  c.replicas.assign(message.replicas().begin(), message.replicas().end());
  std::sort(c.replicas.begin(), c.replicas.end());
  c.replicas.erase(std::unique(c.replicas.begin(), c.replicas.end()), c.replicas.end());
  mode_->OnAssigned(moved, raised);
  c.FinishLater();
  return absl::OkStatus();
}

// The first assignment: sets up the constant parts of the job. Takes the spec.
absl::Status ReplicaCore::BeginJob(v1::AssignReplicas& message, const std::vector<replica::Part>& parts) {
  Context& c = *context_;
  const v1::JobSpec& spec = message.spec();
  c.plan = StepPlan::Of(spec, static_cast<int64_t>(message.data().train_examples()));
  // Callbacks may have ended the job after an earlier epoch.
  const bool ends_early = message.epochs_open() > 0 && message.total_steps() > 0 &&
                          message.total_steps() < c.plan.total_steps &&
                          message.total_steps() % c.plan.steps_per_epoch == 0;
  if ((c.plan.total_steps != message.total_steps() && !ends_early) ||
      c.plan.steps_per_epoch != message.steps_per_epoch()) {
    return absl::InvalidArgumentError(absl::StrCat("assignment: ", message.total_steps(),
                                                   " steps, but the job's plan has ", c.plan.total_steps,
                                                   "; coordinator and worker are of different versions"));
  }
  c.rates = EpochRates(spec, c.plan.steps_per_epoch);
  c.job = JobId(message.job_id());
  c.validation_examples = static_cast<int64_t>(message.data().validation_examples());
  c.wire = spec.wire_dtype() == v1::DATA_TYPE_UNSPECIFIED ? v1::FLOAT32 : spec.wire_dtype();
  c.has_loss_scale = LossScaleRuleOf(spec).has_value();
  c.spec = std::move(*message.mutable_spec());
  c.space_bytes = parts.back().range.end() * sizeof(float);
  for (const replica::Part& part : parts) c.ranges.push_back(part.range);
  c.jitter = message.job_id() << 20;
  if (c.wire == v1::FLOAT16 || c.wire == v1::INT8) {
    CAIRN_ASSIGN_OR_RETURN(const Graph graph, GraphOf(c.spec, c.ranges.back().end()));
    c.layout = GradientLayoutOf(graph, c.spec);
  }
  return MakeMode();
}

absl::Status ReplicaCore::MakeMode() {
  Context& c = *context_;
  if (c.spec.strategy() == v1::CENTRAL_STORAGE) {
    mode_ = std::make_unique<replica::CentralMode>(c);
  } else if (IsSynchronous(c.spec)) {
    mode_ = std::make_unique<replica::MirroredMode>(c);
  } else {
    CAIRN_ASSIGN_OR_RETURN(auto clipping, ClippingOf(c.spec, c.ranges.back().end()));
    mode_ = std::make_unique<replica::IndependentMode>(c, std::move(clipping));
  }
  return absl::OkStatus();
}

// Applies the callbacks' decisions: how far the job may go, whether it ends early, the learning rates.
void ReplicaCore::SetEpochs(const v1::AssignReplicas& message) {
  Context& c = *context_;
  c.gate = message.epochs_open() > 0 ? message.epochs_open() * c.plan.steps_per_epoch : INT64_MAX;
  c.rates.Decide({message.learning_rates().begin(), message.learning_rates().end()});
  if (message.total_steps() <= 0 || message.total_steps() >= c.plan.total_steps) return;
  c.plan.total_steps = message.total_steps();
  c.checkpoint_rule->EndAt(c.plan.total_steps);
}

int64_t ReplicaCore::step() const {
  const int64_t step = mode_ == nullptr ? -1 : mode_->step();
  if (step < context_->plan.total_steps) return step;
  const bool over = std::all_of(context_->replicas.begin(), context_->replicas.end(),
                                [&](int32_t replica) { return context_->reports.Finished(ReplicaId(replica)); });
  return over ? step : context_->plan.total_steps - 1;
}
std::optional<v1::JobProgress> ReplicaCore::progress() const {
  const int64_t reached = step();
  if (reached < 0) return std::nullopt;
  v1::JobProgress progress;
  progress.set_job_id(context_->job.value);
  progress.set_generation(context_->generation.value);
  progress.set_assignment(context_->assignment);
  progress.set_step(reached);
  return progress;
}
Generation ReplicaCore::generation() const { return context_->generation; }
const std::vector<int32_t>& ReplicaCore::replicas() const { return context_->replicas; }
const std::vector<v1::PartitionRange>& ReplicaCore::ranges() const { return context_->ranges; }

}  // namespace cairn
