#include "replay/replay_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/roots.h"
#include "common/model/callback_check.h"
#include "common/model/checkpoint_name.h"
#include "common/model/fault_check.h"
#include "common/model/gradient_layout.h"
#include "common/model/initializer.h"
#include "common/model/step_plan.h"
#include "common/model/weights_digest.h"
#include "common/tensor/finite.h"
#include "worker/checkpoint/checkpoint_manifest.h"

namespace cairn {
namespace {

template <typename... Args>
absl::Status Refuse(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}

absl::Status CheckSpec(const v1::JobStatus& job) {
  const v1::JobSpec& spec = job.spec();
  if (spec.model().has_external()) {
    return Refuse("model.external: a program computes its steps, which only the program can do again");
  }
  if (!IsSynchronous(spec)) {
    return Refuse(
        "strategy: the job is asynchronous: an update depends on which push came first, so no step can be "
        "computed again; use a synchronous strategy, or staleness_bound: 0");
  }
  if (spec.backup_replicas() > 0) {
    return Refuse(
        "backup_replicas: a step has the gradients that came first, so it cannot be computed again; leave it "
        "out of a job that is to be replayed");
  }
  const bool gpu = std::count(job.devices().begin(), job.devices().end(), v1::GPU) > 0;
  if (gpu && spec.has_deterministic() && !spec.deterministic()) {
    return Refuse(
        "deterministic: false on a GPU: no two runs have the same bits; leave it out of a job that is to be "
        "replayed");
  }
  return absl::OkStatus();
}

absl::Status CheckData(const v1::JobSpec& spec, const ReplaySource& source) {
  const std::string& path = source.data.empty() ? spec.data().path() : source.data;
  if (!absl::StartsWith(path, "s3://") && !MayNameRoot(path)) return absl::OkStatus();
  return Refuse("data.path: \"", path,
                "\" is a place that the workers know; copy the data to this machine, and give its path with --data");
}

absl::Status CheckCheckpoint(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  if (absl::StartsWith(path, "s3://")) {
    return absl::InvalidArgumentError(absl::StrCat("--checkpoint: ", path,
                                                   " lies on S3, which a replay does not read; copy the checkpoint to "
                                                   "this machine, and name the copy"));
  }
  if (!IsThere(path)) return absl::InvalidArgumentError(absl::StrCat("--checkpoint: there is no ", path));
  if (IsThere(absl::StrCat(path, "/", kManifestFile))) return absl::OkStatus();
  for (const FolderEntry& entry : EntriesOf(path)) {
    if (absl::StartsWith(entry.name, kStepPrefix)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--checkpoint: ", path, " holds neither ", kManifestFile, " nor ",
                                                 kStepPrefix, "N; name a checkpoint, or a folder of several"));
}

// What a callback decided for each epoch, which is constant within it; 0: not known.
std::vector<float> DecidedRates(const v1::JobStatus& job) {
  std::vector<float> rates;
  if (!HasReduceRate(job.spec())) return rates;
  for (const v1::EpochResult& epoch : job.epochs()) rates.push_back(epoch.learning_rate());
  // Until the epoch before closes, JobStatus.learning_rate is not of this one.
  const bool current = job.steps_per_epoch() > 0 && job.step() / job.steps_per_epoch() == job.epochs_size();
  if (current && job.step() < job.total_steps()) rates.push_back(job.learning_rate());
  return rates;
}

// Checkpoints by their number of updates, as far as the names tell.
std::map<int64_t, std::string> Checkpoints(const v1::JobStatus& job, const ReplaySource& source) {
  std::map<int64_t, std::string> found;
  for (const v1::CheckpointInfo& info : job.checkpoints()) {
    if (source.checkpoint.empty()) found[info.step()] = info.path();
  }
  for (const FolderEntry& entry : EntriesOf(source.checkpoint)) {
    absl::string_view number = entry.name;
    int64_t step = 0;
    if (absl::ConsumePrefix(&number, kStepPrefix) && absl::SimpleAtoi(number, &step))
      found[step] = absl::StrCat(source.checkpoint, "/", entry.name);
  }
  return found;
}

struct Candidate {
  std::string path;
  bool weights_only = false;
};

// The newest first.
std::vector<Candidate> Candidates(const v1::JobStatus& job, const ReplaySource& source, int64_t step) {
  std::vector<Candidate> candidates;
  if (!source.checkpoint.empty() && IsThere(absl::StrCat(source.checkpoint, "/", kManifestFile)))
    candidates.push_back({source.checkpoint});
  const std::map<int64_t, std::string> checkpoints = Checkpoints(job, source);
  for (auto it = checkpoints.rbegin(); it != checkpoints.rend(); ++it) {
    if (it->first <= step) candidates.push_back({it->second});
  }
  const std::string &from = job.restored_from(), &weights = job.spec().initial_weights();
  const bool own = std::any_of(job.checkpoints().begin(), job.checkpoints().end(),
                               [&](const v1::CheckpointInfo& info) { return info.path() == from; });
  if (!from.empty() && !own) candidates.push_back({from, job.restored_step() == 0 && !weights.empty()});
  if (!weights.empty() && weights != from) candidates.push_back({weights, true});
  return candidates;
}

// Whether the job began with the values that follow from its seed.
bool BeganWithSeed(const v1::JobStatus& job) {
  const v1::JobSpec& spec = job.spec();
  const bool from_file = !spec.resume_from().empty() || !spec.initial_weights().empty();
  return !from_file && (BackupOf(spec) == nullptr || job.restored_from().empty());
}

absl::StatusOr<RestoredState> Restore(const v1::JobStatus& job, const v1::AssignReplicas& assignment,
                                      const Candidate& candidate) {
  if (candidate.weights_only) return RestoreWeights(assignment.spec(), candidate.path, {});
  return RestoreCheckpoint(job.spec(), candidate.path, {}, job.steps_per_epoch(), job.job_id());
}

}  // namespace

absl::Status CheckReplayable(const v1::JobStatus& job, const ReplaySource& source, int64_t step) {
  CAIRN_RETURN_IF_ERROR(CheckSpec(job));
  CAIRN_RETURN_IF_ERROR(CheckData(job.spec(), source));
  CAIRN_RETURN_IF_ERROR(CheckCheckpoint(source.checkpoint));
  if (job.partitions_size() == 0 || job.total_steps() == 0)
    return Refuse("job ", job.job_id(), " has not begun: there is no step to replay");
  if (step >= 0 && step < job.step()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "--step: job %d has done %d steps, but not step %d; steps are counted from 0", job.job_id(), job.step(), step));
}

int64_t StepsWithRates(const v1::JobStatus& job) {
  if (!HasReduceRate(job.spec())) return job.step();
  const std::vector<float> rates = DecidedRates(job);
  const auto unknown = std::find_if(rates.begin(), rates.end(), [](float rate) { return !(rate > 0); });
  return std::min(job.step(), (unknown - rates.begin()) * job.steps_per_epoch());
}

absl::Status CheckRates(const v1::JobStatus& job, int64_t first, int64_t last) {
  if (!HasReduceRate(job.spec())) return absl::OkStatus();
  const std::vector<float> rates = DecidedRates(job);
  for (int64_t epoch = first / job.steps_per_epoch(); epoch <= last / job.steps_per_epoch(); ++epoch) {
    if (epoch >= static_cast<int64_t>(rates.size())) {
      return Refuse("epoch ", epoch + 1,
                    " is not decided yet: reduce_lr_on_plateau decides on its learning rate once the epoch before has "
                    "closed; name an earlier --step");
    }
    if (!(rates[static_cast<size_t>(epoch)] > 0)) {
      return Refuse("the learning rate of epoch ", epoch + 1,
                    " is not known, for the job went on from a later checkpoint; name one after it with --checkpoint");
    }
  }
  return absl::OkStatus();
}

v1::AssignReplicas MakeReplayAssignment(const v1::JobStatus& job, const ReplaySource& source) {
  v1::AssignReplicas assignment;
  assignment.set_job_id(job.job_id());
  assignment.set_generation(1);
  assignment.set_assignment(1);
  v1::JobSpec& spec = *assignment.mutable_spec();
  spec = job.spec();
  if (!source.data.empty()) spec.mutable_data()->set_path(source.data);
  if (spec.strategy() != v1::PARAMETER_SERVER) spec.set_strategy(v1::MULTI_WORKER_MIRRORED);  // all have the same bits
  spec.clear_checkpoints();
  spec.set_backups(0);
  spec.set_durability(v1::SNAPSHOT);  // no log is written
  spec.clear_fsync();
  spec.set_digest_every_steps(1);
  spec.clear_deterministic();  // refused where it matters; a job that need not have the same bits takes no digests
  for (int32_t replica = 0; replica < spec.replicas(); ++replica) assignment.add_replicas(replica);
  for (const v1::PartitionPlacement& p : job.partitions()) {
    v1::Route& route = *assignment.add_routes();
    route.mutable_range()->set_partition(p.partition());
    route.mutable_range()->set_begin(p.begin());
    route.mutable_range()->set_end(p.end());
    route.set_ps("replay");
    route.set_address("replay");
  }
  *assignment.mutable_data() = job.data();
  assignment.mutable_data()->clear_validation_examples();
  // As planned: a callback may have ended the job earlier.
  const StepPlan plan = StepPlan::Of(spec, static_cast<int64_t>(job.data().train_examples()));
  assignment.set_steps_per_epoch(plan.steps_per_epoch);
  assignment.set_total_steps(plan.total_steps);
  assignment.set_chief(true);
  assignment.set_takes_digests(true);
  const std::vector<float> rates = DecidedRates(job);
  assignment.mutable_learning_rates()->Assign(rates.begin(), rates.end());
  return assignment;
}

absl::StatusOr<ReplayStart> FindReplayStart(const v1::JobStatus& job, const v1::AssignReplicas& assignment,
                                            const ReplaySource& source, int64_t step, bool finite) {
  ReplayStart start;
  for (const Candidate& candidate : Candidates(job, source, step)) {
    absl::StatusOr<RestoredState> state = Restore(job, assignment, candidate);
    if (!state.ok()) {
      start.skipped.emplace_back(state.status().message());
    } else if (state->step > step) {
      start.skipped.push_back(absl::StrFormat("%s: it is of step %d", state->path, state->step));
    } else if (finite && !AllFinite(state->values.floats())) {
      start.skipped.push_back(absl::StrFormat("%s: its weights are not finite", state->path));
    } else {
      start.step = state->step;
      start.from = state->path;
      start.state = *std::move(state);
      return start;
    }
  }
  if (BeganWithSeed(job)) {
    start.from = absl::StrCat("the initial values of seed ", job.spec().seed());
    return start;
  }
  return Refuse("there is no checkpoint before step ", step, " that can be read here",
                start.skipped.empty() ? "" : absl::StrCat(" (", absl::StrJoin(start.skipped, "; "), ")"),
                "; name one, or a folder of several, with --checkpoint");
}

std::vector<int64_t> RecordedUpdates(const v1::JobStatus& job, const ReplaySource& source) {
  std::vector<int64_t> updates;
  for (const v1::StepDigest& recorded : job.step_digests()) updates.push_back(recorded.step());
  for (const auto& [step, path] : Checkpoints(job, source)) updates.push_back(step);
  std::sort(updates.begin(), updates.end());
  updates.erase(std::unique(updates.begin(), updates.end()), updates.end());
  return updates;
}

std::optional<RecordedDigest> FindRecordedDigest(const v1::JobStatus& job, const v1::AssignReplicas& assignment,
                                                 const Graph& graph, const ReplaySource& source, int64_t updates) {
  for (const v1::StepDigest& recorded : job.step_digests()) {
    if (recorded.step() == updates) return RecordedDigest{recorded.digest(), "recorded by the job"};
  }
  const std::map<int64_t, std::string> checkpoints = Checkpoints(job, source);
  const auto at = checkpoints.find(updates);
  if (at == checkpoints.end()) return std::nullopt;
  absl::StatusOr<RestoredState> state = Restore(job, assignment, {at->second});
  if (!state.ok() || state->step != updates) return std::nullopt;
  // As the workers have them.
  const v1::JobSpec& spec = assignment.spec();
  const GradientLayout layout = GradientLayoutOf(graph, spec);
  RoundNearest(ValuesRounding(ValuesTypeOf(spec), 0, layout), state->values.mutable_floats());
  WeightsDigest digest(graph);
  digest.Add(state->values.floats());
  return RecordedDigest{digest.Hex(), absl::StrCat("of ", state->path)};
}

}  // namespace cairn
