// Submission: a job is queued once a worker has looked at its data, or at once where there is no worker.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "common/model/data_check.h"
#include "common/model/fault_check.h"
#include "common/model/written_paths.h"
#include "coordinator/cluster_core.h"

namespace cairn {
namespace {

constexpr size_t kRequestKeyMax = 128;
constexpr size_t kRepliesOfOneKeyMax = 16;
constexpr absl::Duration kInspectAgainAfter = absl::Seconds(5);
// Examples x epochs stays far from the end of int64.
constexpr uint64_t kExamplesMax = uint64_t{1} << 40;

v1::SubmitResponse SubmitResponseOf(v1::JobStatus status, const CheckedJob* checked) {
  v1::SubmitResponse response;
  *response.mutable_job() = std::move(status);
  if (checked != nullptr) response.mutable_warnings()->Assign(checked->warnings.begin(), checked->warnings.end());
  return response;
}

std::string BlindText(const NodeName& worker, const std::string& why) {
  return absl::StrCat("worker \"", worker, "\", which cannot work for it: ", why);
}

absl::Status CheckDataInfo(const CheckedJob& checked, const v1::DataInfo& data) {
  if (data.train_examples() == 0)
    return absl::InvalidArgumentError("data: there are no training examples at data.path");
  for (uint64_t n : {data.train_examples(), data.validation_examples(), data.test_examples()}) {
    if (n > kExamplesMax)
      return absl::InvalidArgumentError(absl::StrCat("data: ", n, " examples are more than Cairn can count"));
  }
  return CheckJobAgainstData(checked, data);
}

}  // namespace

void ClusterCore::OnSubmit(const SubmitJob& event) {
  if (event.request_key.size() > kRequestKeyMax) {
    return ReplyError(event.reply,
                      absl::InvalidArgumentError(absl::StrFormat("request_key: longer than %d bytes", kRequestKeyMax)));
  }
  if (!event.request_key.empty()) {
    for (const auto& [id, job] : jobs_) {
      if (job.request_key != event.request_key) continue;
      Emit(Reply{event.reply, absl::OkStatus(), SubmitResponseOf(StatusOf(job), event.job.get())});
      return;
    }
    for (auto& [id, submission] : submissions_) {
      if (submission.request_key != event.request_key) continue;
      if (submission.replies.size() >= kRepliesOfOneKeyMax) {
        return ReplyError(event.reply,
                          absl::ResourceExhaustedError("request_key: too many calls wait for this submission"));
      }
      submission.replies.push_back(event.reply);
      return;
    }
  }
  const auto unfinished = std::count_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return !j.second.finished(); });
  if (unfinished + submissions_.size() >= kJobsQueuedMax) {
    return ReplyError(event.reply,
                      absl::ResourceExhaustedError(absl::StrFormat(
                          "%d jobs are queued, the most there can be; cancel some or wait", kJobsQueuedMax)));
  }
  if (absl::Status status = CheckRoomForEnded(); !status.ok()) return ReplyError(event.reply, std::move(status));
  Submission submission{{event.reply}, event.job, event.request_key, now_};
  if (members_.Connected(v1::WORKER).empty()) return Accept(std::move(submission), nullptr);
  submissions_[++last_submission_] = std::move(submission);
  Inspection inspection;
  inspection.submission = last_submission_;
  StartInspection(std::move(inspection));
}

void ClusterCore::StartInspection(Inspection inspection) {
  const ClusterNode* worker = nullptr;
  if (inspection.tried.size() < static_cast<size_t>(options_.attempts_max)) {
    for (const ClusterNode* candidate : Askable(v1::WORKER, nullptr)) {
      if (!inspection.tried.contains(candidate->name)) {
        worker = candidate;
        break;
      }
    }
  }
  if (worker == nullptr) return NoWorkerForInspection(inspection);
  const CheckedJob* checked = nullptr;
  if (inspection.submission != 0) {
    checked = submissions_.at(inspection.submission).checked.get();
  } else {
    Job& job = jobs_.at(inspection.job);
    job.inspecting = true;
    checked = job.checked.get();
  }
  inspection.worker = worker->name;
  inspection.tried.insert(worker->name);
  inspection.deadline = now_ + options_.inspect_timeout;
  const uint64_t request_id = NextRequestId();
  v1::CoordinatorMessage message;
  v1::InspectData& inspect = *message.mutable_inspect_data();
  inspect.set_request_id(request_id);
  *inspect.mutable_data() = checked->spec.data();
  for (int64_t d : ExampleShape(checked->spec.data(), checked->graph.input_shape())) {
    inspect.add_input_shape(static_cast<int32_t>(d));
  }
  if (StartsFromFile(checked->spec) || !WrittenPaths(checked->spec).empty()) *inspect.mutable_spec() = checked->spec;
  Send(*worker, std::move(message));
  inspections_[request_id] = std::move(inspection);
}

void ClusterCore::NoWorkerForInspection(const Inspection& inspection) {
  if (!inspection.failed.empty()) {
    const absl::Status status = absl::InvalidArgumentError(
        absl::StrCat(inspection.failed.at(inspection.first_failed), " (as ",
                     inspection.failed.size() == 1 ? "worker" : "workers", " \"",
                     absl::StrJoin(inspection.failed, "\", \"",
                                   [](std::string* out, const auto& f) { absl::StrAppend(out, f.first); }),
                     inspection.failed.size() == 1 ? "\" sees it)" : "\" see it)"));
    if (inspection.submission == 0) return EndJob(jobs_.at(inspection.job), v1::FAILED, std::string(status.message()));
    Submission submission = std::move(submissions_.extract(inspection.submission).mapped());
    for (ReplyToken token : submission.replies) ReplyError(token, status);
    return;
  }
  if (inspection.submission == 0) {
    Job& job = jobs_.at(inspection.job);
    job.inspecting = false;
    job.inspect_after = now_ + kInspectAgainAfter;
    return;
  }
  Submission submission = std::move(submissions_.extract(inspection.submission).mapped());
  if (members_.Connected(v1::WORKER).empty()) return Accept(std::move(submission), nullptr);
  std::string tried;
  for (const NodeName& name : inspection.tried) absl::StrAppend(&tried, tried.empty() ? "" : ", ", name);
  for (ReplyToken reply : submission.replies) {
    ReplyError(reply, absl::UnavailableError(absl::StrCat("data: no worker could say what lies at \"",
                                                          submission.checked->spec.data().path(), "\" (asked: ", tried,
                                                          "); see their logs, then submit again")));
  }
}

void ClusterCore::OnDataInfo(const ClusterNode& node, const v1::DataInfoReply& reply) {
  if (OnEvaluationData(node, reply)) return;
  auto it = inspections_.find(reply.request_id());
  if (it == inspections_.end() || it->second.worker != node.name) return;
  Inspection inspection = std::move(inspections_.extract(it).mapped());
  if (inspection.submission == 0 && (Find(inspection.job) == nullptr || !Find(inspection.job)->queued())) return;
  if (reply.worker_only() && !reply.error().empty()) {
    // Others may see what this one does not. Where nobody does, the first one's word stands.
    inspection.failed[node.name] = std::string(CutUtf8(reply.error(), kErrorTextMax));
    if (inspection.first_failed.empty()) inspection.first_failed = node.name;
    return StartInspection(std::move(inspection));
  }
  Job* job = nullptr;
  Submission submission;
  if (inspection.submission != 0) {
    submission = std::move(submissions_.extract(inspection.submission).mapped());
  } else {
    job = Find(inspection.job);
    job->inspecting = false;
  }
  const CheckedJob& checked = job != nullptr ? *job->checked : *submission.checked;
  absl::Status status =
      reply.error().empty()
          ? CheckDataInfo(checked, reply.info())
          : absl::InvalidArgumentError(absl::StrCat(reply.error(), " (as worker \"", node.name, "\" sees it)"));
  if (job == nullptr && status.ok()) return Accept(std::move(submission), &reply, &inspection);
  if (job == nullptr) {
    for (ReplyToken token : submission.replies) ReplyError(token, status);
    return;
  }
  if (!status.ok()) return EndJob(*job, v1::FAILED, std::string(status.message()));
  LeaveOutBlind(*job, inspection);
  *job->status.mutable_data() = reply.info();
  TakeFacts(reply.checkpoint(), *job->status.mutable_spec());
  ResolveDefaults(*job);
  StoreJob(*job);
  queue_due_ = true;
}

// Workers that do not see the data compute nothing of the job, until they are started again.
void ClusterCore::LeaveOutBlind(Job& job, const Inspection& inspection) {
  for (const auto& [name, why] : inspection.failed) {
    const ClusterNode* node = members_.Find(name);
    if (node == nullptr) continue;
    job.left_out[name] = {node->incarnation, BlindText(name, why)};
    TellWarning(job, "goes on without %s", BlindText(name, why));
  }
}

void ClusterCore::Accept(Submission submission, const v1::DataInfoReply* reply, const Inspection* inspection) {
  const uint64_t id = next_job_id_++;
  Job& job = jobs_[id];
  const Graph& graph = submission.checked->graph;
  job.status.set_job_id(id);
  *job.status.mutable_spec() = submission.checked->spec;
  Transition(job, v1::QUEUED);
  job.status.set_submitted_unix_ms(absl::ToUnixMillis(now_));
  job.status.set_parameters(graph.parameters());
  job.status.set_trainable_parameters(graph.trainable_parameters());
  if (reply != nullptr) {
    *job.status.mutable_data() = reply->info();
    TakeFacts(reply->checkpoint(), *job.status.mutable_spec());
  }
  job.request_key = std::move(submission.request_key);
  job.checked = std::move(submission.checked);
  if (inspection != nullptr && !inspection->failed.empty()) {
    auto checked = std::make_shared<CheckedJob>(*job.checked);
    for (const auto& [name, why] : inspection->failed) {
      checked->warnings.push_back(absl::StrCat("goes on without ", BlindText(name, why)));
    }
    job.checked = std::move(checked);
    LeaveOutBlind(job, *inspection);
  }
  ResolveDefaults(job);
  job.status.set_reason(Reason(job));
  StoreCluster();
  StoreJob(job);
  Log("job %d: \"%s\" queued (%d parameters, priority %d)", id, job.status.spec().name(), job.status.parameters(),
      job.status.spec().priority());
  for (ReplyToken token : submission.replies) {
    Emit(Reply{token, absl::OkStatus(), SubmitResponseOf(StatusOf(job), job.checked.get())});
  }
  queue_due_ = true;
}

// Fields whose default is what the cluster has, or a checkpoint; they stay 0 while it has nothing.
void ClusterCore::ResolveDefaults(Job& job) {
  v1::JobSpec& spec = *job.status.mutable_spec();
  // A worker has to look at the checkpoint first.
  if ((!spec.resume_from().empty() || BackupOf(spec) != nullptr) && !job.has_data()) return;
  if (spec.replicas() == 0) {
    std::vector<int32_t> slots;
    std::vector<WorkerCapacity> fit;
    for (const ClusterNode* worker : members_.Connected(v1::WORKER)) {
      if (Fits(spec, *worker)) fit.push_back({worker->name, worker->slots, worker->device_kind});
    }
    std::vector<WorkerCapacity> one_kind = OfOneDevice(fit, PreferredDevices(job), WorkersNeeded(job));
    if (one_kind.empty()) one_kind = OfOneDevice(std::move(fit), PreferredDevices(job));  // more are to come
    for (const WorkerCapacity& worker : one_kind) slots.push_back(worker.slots);
    std::sort(slots.rbegin(), slots.rend());
    size_t workers = slots.size();
    if (spec.max_workers() > 0) workers = std::min<size_t>(workers, spec.max_workers());
    if (job.mirrored()) workers = std::min<size_t>(workers, 1);
    int64_t total = 0;
    for (size_t i = 0; i < workers; ++i) total += slots[i];
    const int64_t most = std::clamp<int64_t>(spec.batch_size(), 1, kReplicasMax);
    if (total > 0) spec.set_replicas(static_cast<int32_t>(std::min(total, most)));
  }
  if (const size_t ps = members_.Connected(v1::PS).size(); spec.partition_bytes() == 0 && ps > 0) {
    spec.set_partition_bytes(DefaultPartitionBytes(job.checked->graph.space_size(), static_cast<int>(ps)));
  }
  if (const size_t ps = members_.Connected(v1::PS).size(); ps > 0) ResolveBackups(static_cast<int>(ps), &spec);
}

void ClusterCore::TickInspections() {
  std::vector<Inspection> late;
  for (auto it = inspections_.begin(); it != inspections_.end();) {
    if (now_ >= it->second.deadline) {
      late.push_back(std::move(it->second));
      it = inspections_.erase(it);
    } else {
      ++it;
    }
  }
  for (Inspection& inspection : late) {
    if (inspection.submission == 0 && (Find(inspection.job) == nullptr || !Find(inspection.job)->queued())) continue;
    StartInspection(std::move(inspection));
  }
  if (members_.Connected(v1::WORKER).empty()) return;
  for (auto& [id, job] : jobs_) {
    if (!job.queued() || job.has_data() || job.inspecting || now_ < job.inspect_after) continue;
    Inspection inspection;
    inspection.job = id;
    StartInspection(std::move(inspection));
  }
}

}  // namespace cairn
