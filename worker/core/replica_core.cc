#include "worker/core/replica_core.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/overloaded.h"
#include "common/model/gradient_layout.h"
#include "common/model/loss_scale.h"
#include "common/model/step_check.h"
#include "common/model/weights_digest.h"
#include "common/tensor/dtype.h"
#include "worker/core/central_mode.h"
#include "worker/core/independent_mode.h"
#include "worker/core/mirrored_mode.h"
#include "worker/core/replica_context.h"

namespace cairn {

using replica::Context;
using replica::Effects;

namespace {

// Checks what the coordinator sent, as for any peer. spec: the message's; later, what the job began with.
absl::Status CheckAssignment(const v1::AssignReplicas& message, const v1::JobSpec& spec) {
  CAIRN_RETURN_IF_ERROR(Annotate(CheckStepCounts(spec, message.data().train_examples()), "assignment"));
  if (message.data().validation_examples() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / 2)
    return absl::InvalidArgumentError("assignment: 2^62 validation examples or more");
  for (int32_t replica : message.replicas()) {
    if (replica < 0 || replica >= spec.replicas()) {
      return absl::InvalidArgumentError(absl::StrCat("assignment: there is no replica ", replica));
    }
  }
  if (message.routes_size() < 1 || message.routes_size() > static_cast<int>(kPartitionsMax)) {
    return absl::InvalidArgumentError(absl::StrCat("assignment: ", message.routes_size(), " routes"));
  }
  if (BytesOf(GradientTypeOf(spec), kSpaceAlignment) == 0) {
    return absl::InvalidArgumentError("assignment: wire_dtype is not known; use a newer worker");
  }
  if (!IsValuesType(ValuesTypeOf(spec))) {
    return absl::InvalidArgumentError("assignment: values_wire_dtype is not known; use a newer worker");
  }
  return absl::OkStatus();
}

// The routes by partition. Errors: INVALID_ARGUMENT if they do not cover the parameter space without gaps.
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

// By partition, whether its address changed.
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
  c.output.Begin(now);
  if (std::holds_alternative<replica::Drop>(event)) {
    mode_.reset();
    context_ = std::make_unique<Context>(c.options, c.numbers);
    return {};
  }
  if (c.output.failed()) return {};
  if (std::holds_alternative<replica::Timer>(event)) c.output.OnTimer();
  Dispatch(event);
  if (mode_ == nullptr || c.output.failed()) return c.output.Take();
  if (c.output.TakeWake()) mode_->ResendDue();
  if (now >= c.reports.deadline() || c.reports.HasReady()) {
    for (v1::ReplicaReport& report : c.reports.Take(now)) {
      report.set_job_id(c.assignment.job.value);
      report.set_generation(c.assignment.generation.value);
      c.output.Emit(replica::Report{std::move(report)});
    }
  }
  c.output.ArmTimer(c.reports.deadline());
  return c.output.Take();
}

void ReplicaCore::Dispatch(replica::Event& event) {
  // Without an assignment every other event is an answer to a former life.
  if (mode_ == nullptr && !std::holds_alternative<replica::Assign>(event)) return;
  std::visit(Overloaded{
                 [&](replica::Assign& e) {
                   if (absl::Status status = OnAssign(std::move(e.message)); !status.ok())
                     context_->output.Fail(std::string(status.message()));
                 },
                 [&](replica::Reply& e) { mode_->OnReply(replica::NameOf(e.request), e); },
                 [&](replica::GradientReady& e) { mode_->OnGradient(e); },
                 [&](const replica::GradientSummed& e) { mode_->OnSummed(e); },
                 [&](const replica::WeightsWanted& e) { mode_->OnWeightsWanted(e); },
                 [&](const replica::WeightsDone& e) { mode_->OnWeightsDone(e); },
                 [&](replica::Computed& e) { OnComputed(e); }, [&](const replica::Evaluated& e) { OnEvaluated(e); },
                 [&](const replica::CheckpointDone& e) {
                   if (!context_->checkpoints.End(e)) return;
                   mode_->OnCheckpointDone();
                   context_->FinishLater();
                 },
                 [&](const replica::ReportAgain&) { context_->reports.ReportAgain(); },
                 [](const replica::Timer&) {},  // Step sees to what is due after every event
                 [](const replica::Drop&) {},   // Step
             },
             event);
}

void ReplicaCore::OnComputed(replica::Computed& event) {
  mode_->OnWorkEnded(event.work);
  if (event.sums.ok()) {
    mode_->OnComputed(event.work, *std::move(event.sums));
  } else if (mode_->Knows(event.work)) {
    context_->output.Fail(std::string(event.sums.status().message()));
  }
}

void ReplicaCore::OnEvaluated(const replica::Evaluated& event) {
  mode_->OnWorkEnded(event.work);
  if (event.sums.ok()) {
    mode_->OnEvaluated(event.work, *event.sums);
  } else if (mode_->Knows(event.work)) {
    context_->output.Fail(std::string(event.sums.status().message()));
  }
}

absl::Status ReplicaCore::OnAssign(v1::AssignReplicas message) {
  Context& c = *context_;
  replica::Assignment& a = c.assignment;
  const bool first = !a.arrived();
  if (!first && (message.assignment() < a.number || message.generation() < a.generation.value)) {
    return absl::OkStatus();  // an old one, overtaken on its way
  }
  CAIRN_RETURN_IF_ERROR(CheckAssignment(message, first ? message.spec() : c.job.spec));
  CAIRN_ASSIGN_OR_RETURN(std::vector<replica::Part> parts, PartsOf(message));
  const bool raised = !first && message.generation() > a.generation.value;
  std::vector<char> moved(parts.size(), 0);
  if (!first) {
    CAIRN_ASSIGN_OR_RETURN(moved, MovedParts(a.parts, parts));
  } else {
    CAIRN_RETURN_IF_ERROR(BeginJob(message, parts));
  }
  for (const v1::CheckpointInfo& info : message.checkpoints()) {
    // By the clock of a former chief, which may be ahead of this one: then the time of the checkpoint is not known.
    const absl::Time written = absl::FromUnixMillis(info.written_unix_ms());
    c.checkpoints.AddTaken(info.step(), written <= c.output.now() ? written : absl::InfinitePast());
  }
  SetEpochs(message);
  a.chief = message.chief();
  a.number = message.assignment();
  a.generation = Generation(message.generation());
  a.parts = std::move(parts);
  a.replicas.assign(message.replicas().begin(), message.replicas().end());
  std::sort(a.replicas.begin(), a.replicas.end());
  a.replicas.erase(std::unique(a.replicas.begin(), a.replicas.end()), a.replicas.end());
  mode_->OnAssigned(moved, raised);
  c.FinishLater();
  return absl::OkStatus();
}

// Takes from the first assignment what does not change later. Moves the spec out of the message.
absl::Status ReplicaCore::BeginJob(v1::AssignReplicas& message, const std::vector<replica::Part>& parts) {
  Context& c = *context_;
  const v1::JobSpec& spec = message.spec();
  StepPlan& plan = c.schedule.plan;
  plan = StepPlan::Of(spec, static_cast<int64_t>(message.data().train_examples()));
  // Callbacks may have ended the job after an earlier epoch.
  const bool ends_early = message.epochs_open() > 0 && message.total_steps() > 0 &&
                          message.total_steps() < plan.total_steps && message.total_steps() % plan.steps_per_epoch == 0;
  if ((plan.total_steps != message.total_steps() && !ends_early) || plan.steps_per_epoch != message.steps_per_epoch()) {
    return absl::InvalidArgumentError(absl::StrCat("assignment: ", message.total_steps(),
                                                   " steps, but the job's plan has ", plan.total_steps,
                                                   "; coordinator and worker are of different versions"));
  }
  c.schedule.rates = EpochRates(spec, plan.steps_per_epoch);
  c.assignment.job = JobId(message.job_id());
  c.job.validation_examples = static_cast<int64_t>(message.data().validation_examples());
  c.job.wire = GradientTypeOf(spec);
  c.job.values = ValuesTypeOf(spec);
  c.job.has_loss_scale = LossScaleRuleOf(spec).has_value();
  c.job.digest_every = message.takes_digests() ? DigestEverySteps(spec) : 0;
  c.job.spec = std::move(*message.mutable_spec());
  c.job.space_bytes = parts.back().range.end() * sizeof(float);
  for (const replica::Part& part : parts) c.job.ranges.push_back(part.range);
  c.backoff.BeginJob(message.job_id());
  c.checkpoints.BeginJob(c.job.spec, message.restored_step());
  if (NeedsLayout(c.job.spec)) {
    CAIRN_ASSIGN_OR_RETURN(const Graph graph, GraphOf(c.job.spec, c.job.ranges.back().end()));
    c.job.layout = GradientLayoutOf(graph, c.job.spec);
  }
  return MakeMode();
}

absl::Status ReplicaCore::MakeMode() {
  Context& c = *context_;
  if (c.job.spec.strategy() == v1::CENTRAL_STORAGE) {
    mode_ = std::make_unique<replica::CentralMode>(c);
  } else if (IsSynchronous(c.job.spec)) {
    mode_ = std::make_unique<replica::MirroredMode>(c);
  } else {
    CAIRN_ASSIGN_OR_RETURN(auto clipping, ClippingOf(c.job.spec, c.job.ranges.back().end()));
    mode_ = std::make_unique<replica::IndependentMode>(c, std::move(clipping));
  }
  return absl::OkStatus();
}

// Takes what callbacks decided: how far the job may go, whether it ends early, the learning rates.
void ReplicaCore::SetEpochs(const v1::AssignReplicas& message) {
  replica::JobSchedule& schedule = context_->schedule;
  const int64_t open = std::min(message.epochs_open(), context_->job.spec.epochs());
  schedule.gate = open > 0 ? open * schedule.plan.steps_per_epoch : INT64_MAX;
  schedule.rates.Decide({message.learning_rates().begin(), message.learning_rates().end()});
  if (message.total_steps() <= 0 || message.total_steps() >= schedule.plan.total_steps) return;
  schedule.plan.total_steps = message.total_steps();
  context_->checkpoints.EndAt(message.total_steps());
}

int64_t ReplicaCore::step() const {
  const int64_t step = mode_ == nullptr ? -1 : mode_->step();
  if (step < context_->schedule.plan.total_steps) return step;
  const bool over = std::all_of(context_->assignment.replicas.begin(), context_->assignment.replicas.end(),
                                [&](int32_t replica) { return context_->reports.Finished(ReplicaId(replica)); });
  return over ? step : context_->schedule.plan.total_steps - 1;
}
std::optional<v1::JobProgress> ReplicaCore::progress() const {
  const int64_t reached = step();
  if (reached < 0) return std::nullopt;
  v1::JobProgress progress;
  progress.set_job_id(context_->assignment.job.value);
  progress.set_generation(context_->assignment.generation.value);
  progress.set_assignment(context_->assignment.number);
  progress.set_step(reached);
  return progress;
}
Generation ReplicaCore::generation() const { return context_->assignment.generation; }
const std::vector<int32_t>& ReplicaCore::replicas() const { return context_->assignment.replicas; }
const std::vector<v1::PartitionRange>& ReplicaCore::ranges() const { return context_->job.ranges; }

}  // namespace cairn
