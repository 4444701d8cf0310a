#include "coordinator/core/submissions.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/limits.h"
#include "common/base/text.h"
#include "common/model/callback_check.h"
#include "common/model/data_check.h"
#include "common/model/fault_check.h"
#include "common/model/job_check.h"
#include "common/model/model_inputs.h"
#include "common/model/written_paths.h"
#include "coordinator/core/job_facts.h"
#include "coordinator/core/job_memory.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

constexpr absl::Duration kInspectAgainAfter = absl::Seconds(5);
// Keeps examples x epochs far from the limit of int64.

v1::SubmitResponse SubmitResponseOf(v1::JobStatus status, const CheckedJob* checked) {
  v1::SubmitResponse response;
  *response.mutable_job() = std::move(status);
  if (checked != nullptr) response.mutable_warnings()->Assign(checked->warnings.begin(), checked->warnings.end());
  return response;
}

std::string BlindText(const NodeName& worker, const std::string& why) {
  return absl::StrCat("worker \"", worker, "\", which cannot work for it: ", why);
}

absl::Status CheckParameters(const Graph& graph, int64_t most) {
  if (graph.parameters() <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "model: %d parameters (%d GiB, and as much for each slot of the optimizer); this cluster takes jobs of at most "
      "%d: make the model smaller, or start the coordinator with a larger --max-job-parameters",
      graph.parameters(), graph.parameters() * 4 >> 30, most));
}

// What the worker says of the data of a job with this spec.
absl::Status CheckAnswer(const ClusterNode& node, const v1::DataInfoReply& reply, v1::JobSpec spec) {
  const v1::DataInfo& data = reply.info();
  if (!reply.error().empty())
    return absl::InvalidArgumentError(absl::StrCat(reply.error(), " (as worker \"", node.name, "\" sees it)"));
  if (data.train_examples() == 0)
    return absl::InvalidArgumentError("data: there are no training examples at data.path");
  for (uint64_t n : {data.train_examples(), data.validation_examples(), data.test_examples()}) {
    if (n > kDataExamplesMax)
      return absl::InvalidArgumentError(absl::StrCat("data: ", n, " examples are more than Cairn can count"));
  }
  TakeFacts(reply.checkpoint(), spec);
  CAIRN_ASSIGN_OR_RETURN(const CheckedJob checked, CheckJob(spec));
  return CheckJobAgainstData(checked, data);
}

}  // namespace

void Submissions::OnSubmit(const SubmitJob& event) {
  if (event.request_key.size() > kRequestKeyBytesMax) {
    return step_.ReplyError(event.reply, absl::InvalidArgumentError(absl::StrFormat("request_key: longer than %d bytes",
                                                                                    kRequestKeyBytesMax)));
  }
  if (!event.request_key.empty() && !event.check_only) {
    for (const auto& [id, job] : jobs_.all()) {
      if (job.queueing.request_key != event.request_key || job.status.owner() != event.who.user) continue;
      step_.Emit(Reply{event.reply, absl::OkStatus(), SubmitResponseOf(jobs_.StatusOf(job), event.job.get())});
      return;
    }
    for (auto& [id, submission] : submissions_) {
      if (submission.check_only || submission.request_key != event.request_key || submission.who.user != event.who.user)
        continue;
      if (submission.replies.size() >= kRepliesOfOneKeyMax) {
        return step_.ReplyError(event.reply,
                                absl::ResourceExhaustedError("request_key: too many calls wait for this submission"));
      }
      submission.replies.push_back(event.reply);
      return;
    }
  }
  const auto unfinished =
      std::count_if(jobs_.all().begin(), jobs_.all().end(), [](const auto& j) { return !j.second.finished(); });
  if (unfinished + submissions_.size() >= kJobsQueuedMax) {
    return step_.ReplyError(event.reply,
                            absl::ResourceExhaustedError(absl::StrFormat(
                                "%d jobs are queued, the most there can be; cancel some or wait", kJobsQueuedMax)));
  }
  if (absl::Status status = CheckNameIsFree(event); !status.ok())
    return step_.ReplyError(event.reply, std::move(status));
  if (absl::Status status = CheckQuotas(event); !status.ok()) return step_.ReplyError(event.reply, std::move(status));
  if (absl::Status status = endings_.CheckRoomForEnded(event.who); !status.ok())
    return step_.ReplyError(event.reply, std::move(status));
  if (absl::Status status = CheckParameters(event.job->graph, options_.job_parameters_max); !status.ok())
    return step_.ReplyError(event.reply, std::move(status));
  Submission submission{{event.reply}, event.job, event.request_key, step_.now(), event.who, event.check_only};
  submission.spec_bytes = event.job->spec.SpaceUsedLong();
  submission.memory_bytes = MemoryOfSubmission(*event.job, submission.spec_bytes);
  if (absl::Status status = CheckRoomForJob(MemoryKept(), submission.memory_bytes); !status.ok())
    return step_.ReplyError(event.reply, std::move(status));
  if (nodes_.Connected(v1::WORKER).empty()) return Accept(std::move(submission), nullptr);
  submissions_[++last_submission_] = std::move(submission);
  Inspection inspection;
  inspection.submission = last_submission_;
  StartInspection(std::move(inspection));
}

// Jobs without an owner are everybody's: their names are not looked at.
absl::Status Submissions::CheckNameIsFree(const SubmitJob& event) const {
  const std::string& name = event.job->spec.name();
  if (event.who.user.empty() || name.empty()) return absl::OkStatus();
  for (const auto& [id, job] : jobs_.all()) {
    if (job.finished() || job.status.owner() != event.who.user || job.status.spec().name() != name) continue;
    return absl::AlreadyExistsError(
        absl::StrFormat("name: your job %d, which has not ended, is called \"%s\" too; give this one another name, or "
                        "cancel that one with `cairn cancel %d`",
                        id, name, id));
  }
  for (const auto& [id, one] : submissions_) {
    if (!one.check_only && one.who.user == event.who.user && one.checked->spec.name() == name) {
      return absl::AlreadyExistsError(
          absl::StrFormat("name: another submission of yours is called \"%s\" too; give this one another name", name));
    }
  }
  return absl::OkStatus();
}

// Jobs that have not ended, and submissions that will be jobs.
absl::Status Submissions::CheckQuotas(const SubmitJob& event) const {
  if (event.who.everything || event.who.user.empty()) return absl::OkStatus();
  Holding of_user, more;
  std::map<std::string, Holding> of_group;
  const auto count = [&](const std::string& owner, const auto& groups, int64_t parameters, int32_t replicas) {
    if (owner == event.who.user) of_user.Add(parameters, replicas);
    for (const std::string& group : groups) of_group[group].Add(parameters, replicas);
  };
  for (const auto& [id, job] : jobs_.all()) {
    if (job.finished()) continue;
    count(job.status.owner(), job.status.groups(), job.status.parameters(), job.status.spec().replicas());
  }
  for (const auto& [id, one] : submissions_) {
    if (!one.check_only)
      count(one.who.user, one.who.groups, one.checked->graph.parameters(), one.checked->spec.replicas());
  }
  more.Add(event.job->graph.parameters(), event.job->spec.replicas());
  const Quota* const quota = event.quotas == nullptr ? nullptr : event.quotas->OfUser(event.who.user);
  if (quota == nullptr || !quota->jobs) CAIRN_RETURN_IF_ERROR(CheckDefaultJobs(event.who.user, of_user));
  if (event.quotas == nullptr) return absl::OkStatus();
  if (quota != nullptr)
    CAIRN_RETURN_IF_ERROR(event.quotas->Check(*quota, absl::StrCat("user ", event.who.user), of_user, more));
  for (const std::string& group : event.who.groups) {
    if (const Quota* of = event.quotas->OfGroup(group); of != nullptr)
      CAIRN_RETURN_IF_ERROR(event.quotas->Check(*of, absl::StrCat("group ", group), of_group[group], more));
  }
  return absl::OkStatus();
}

// Every job that is kept counts, also one that has ended: it is read again at the next start.
size_t Submissions::MemoryKept() const {
  size_t bytes = 0;
  for (const auto& [id, job] : jobs_.all()) bytes += job.spec_bytes;
  for (const auto& [id, one] : submissions_) bytes += one.memory_bytes;
  return bytes;
}

void Submissions::StartInspection(Inspection inspection) {
  const ClusterNode* worker = nullptr;
  if (inspection.tried.size() < static_cast<size_t>(options_.attempts_max)) {
    for (const ClusterNode* candidate : candidates_.Askable(v1::WORKER, nullptr)) {
      if (!inspection.tried.contains(candidate->name)) {
        worker = candidate;
        break;
      }
    }
  }
  if (worker == nullptr) return NoWorkerForInspection(inspection);
  std::shared_ptr<const CheckedJob> checked;
  if (inspection.submission != 0) {
    checked = submissions_.at(inspection.submission).checked;
  } else {
    Job& job = jobs_.At(inspection.job);
    absl::StatusOr<CheckedJob> again = CheckJob(job.status.spec());
    if (!again.ok()) return endings_.End(job, v1::FAILED, std::string(again.status().message()));
    job.queueing.inspecting = true;
    checked = std::make_shared<const CheckedJob>(*std::move(again));
  }
  inspection.worker = worker->name;
  inspection.tried.insert(worker->name);
  inspection.deadline = step_.now() + options_.inspect_timeout;
  const uint64_t request_id = step_.NextRequestId();
  v1::CoordinatorMessage message;
  v1::InspectData& inspect = *message.mutable_inspect_data();
  inspect.set_request_id(request_id);
  *inspect.mutable_data() = checked->spec.data();
  for (int64_t d : ExampleShape(checked->spec.data(), ModelInputShape(checked->graph))) {
    inspect.add_input_shape(static_cast<int32_t>(d));
  }
  if (StartsFromFile(checked->spec) || !WrittenPaths(checked->spec).empty()) *inspect.mutable_spec() = checked->spec;
  if (inspection.submission != 0 && submissions_.at(inspection.submission).check_only)
    AskForProbe(submissions_.at(inspection.submission), &inspect);
  step_.Send(*worker, std::move(message));
  inspections_[request_id] = std::move(inspection);
}

void Submissions::AskForProbe(const Submission& submission, v1::InspectData* inspect) {
  Job job;
  *job.status.mutable_spec() = submission.checked->spec;
  job.queueing.space_size = submission.checked->graph.space_size();
  schedule_.ResolveDefaults(job);
  *inspect->mutable_spec() = job.status.spec();
  inspect->set_probe(true);
}

void Submissions::TakeProbe(const v1::StepProbe& probe, const NodeName& worker, v1::JobStatus* job) {
  *job->mutable_probe() = probe;
  job->mutable_probe()->set_worker(worker);
  job->mutable_probe()->set_not_measured(std::string(CutUtf8(probe.not_measured(), kErrorTextMax)));
  int32_t slots = 0;
  for (const ClusterNode* node : nodes_.Connected(v1::WORKER)) slots += node->slots;
  job->mutable_probe()->set_slots(slots);
}

void Submissions::NoWorkerForInspection(const Inspection& inspection) {
  if (!inspection.failed.empty()) {
    const absl::Status status = absl::InvalidArgumentError(
        absl::StrCat(inspection.failed.at(inspection.first_failed), " (as ",
                     inspection.failed.size() == 1 ? "worker" : "workers", " \"",
                     absl::StrJoin(inspection.failed, "\", \"",
                                   [](std::string* out, const auto& f) { absl::StrAppend(out, f.first); }),
                     inspection.failed.size() == 1 ? "\" sees it)" : "\" see it)"));
    if (inspection.submission == 0)
      return endings_.End(jobs_.At(inspection.job), v1::FAILED, std::string(status.message()));
    Submission submission = std::move(submissions_.extract(inspection.submission).mapped());
    for (ReplyToken token : submission.replies) step_.ReplyError(token, status);
    return;
  }
  if (inspection.submission == 0) {
    Job& job = jobs_.At(inspection.job);
    job.queueing.inspecting = false;
    job.queueing.inspect_after = step_.now() + kInspectAgainAfter;
    return;
  }
  Submission submission = std::move(submissions_.extract(inspection.submission).mapped());
  if (nodes_.Connected(v1::WORKER).empty()) return Accept(std::move(submission), nullptr);
  std::string tried;
  for (const NodeName& name : inspection.tried) absl::StrAppend(&tried, tried.empty() ? "" : ", ", name);
  for (ReplyToken reply : submission.replies) {
    step_.ReplyError(reply, absl::UnavailableError(absl::StrCat(
                                "data: no worker could say what is at \"", submission.checked->spec.data().path(),
                                "\" (asked: ", tried, "); see their logs, then submit again")));
  }
}

void Submissions::OnDataInfo(const ClusterNode& node, const v1::DataInfoReply& reply) {
  auto it = inspections_.find(reply.request_id());
  if (it == inspections_.end() || it->second.worker != node.name) return;
  Inspection inspection = std::move(inspections_.extract(it).mapped());
  if (inspection.submission == 0 && (jobs_.Find(inspection.job) == nullptr || !jobs_.Find(inspection.job)->queued()))
    return;
  if (reply.worker_only() && !reply.error().empty()) {
    // Another worker may see what this one does not. If none does, the first one's error is reported.
    inspection.failed[node.name] = std::string(CutUtf8(reply.error(), kErrorTextMax));
    if (inspection.first_failed.empty()) inspection.first_failed = node.name;
    return StartInspection(std::move(inspection));
  }
  Job* job = nullptr;
  Submission submission;
  if (inspection.submission != 0) {
    submission = std::move(submissions_.extract(inspection.submission).mapped());
  } else {
    job = jobs_.Find(inspection.job);
    job->queueing.inspecting = false;
  }
  const absl::Status status = CheckAnswer(node, reply, job != nullptr ? job->status.spec() : submission.checked->spec);
  if (job == nullptr && status.ok()) return Accept(std::move(submission), &reply, &inspection);
  if (job == nullptr) {
    for (ReplyToken token : submission.replies) step_.ReplyError(token, status);
    return;
  }
  if (!status.ok()) return endings_.End(*job, v1::FAILED, std::string(status.message()));
  LeaveOutBlind(*job, inspection);
  *job->status.mutable_data() = reply.info();
  TakeFacts(reply.checkpoint(), *job->status.mutable_spec());
  schedule_.ResolveDefaults(*job);
  jobs_.Save(*job);
  step_.Raise(QueueChanged{});
}

// Workers that do not see the data do not work for the job until they are restarted.
void Submissions::LeaveOutBlind(Job& job, const Inspection& inspection) {
  for (const auto& [name, why] : inspection.failed) {
    const ClusterNode* node = nodes_.Find(name);
    if (node == nullptr) continue;
    job.workers.left_out.Add(name, node->incarnation, BlindText(name, why));
    jobs_.TellWarning(job, "continues without %s", BlindText(name, why));
  }
}

void Submissions::Accept(Submission submission, const v1::DataInfoReply* reply, const Inspection* inspection) {
  if (submission.check_only) return AnswerCheck(std::move(submission), reply, inspection);
  Job& job = jobs_.Add();
  Fill(job, submission, reply, inspection);
  if (inspection != nullptr) LeaveOutBlind(job, *inspection);
  schedule_.ResolveDefaults(job);
  job.status.set_reason(reasons_.Reason(job));
  nodes_.Save();
  jobs_.Save(job);
  step_.Log(OfJob(job.id()), "\"%s\" queued (%d parameters, priority %d)", job.status.spec().name(),
            job.status.parameters(), job.status.spec().priority());
  for (ReplyToken token : submission.replies) {
    step_.Emit(Reply{token, absl::OkStatus(), SubmitResponseOf(jobs_.StatusOf(job), submission.checked.get())});
  }
  step_.Raise(QueueChanged{});
}

// The job of the answer is not in the table, and nothing is stored.
void Submissions::AnswerCheck(Submission submission, const v1::DataInfoReply* reply, const Inspection* inspection) {
  Job job;
  Fill(job, submission, reply, inspection);
  schedule_.ResolveDefaults(job);
  if (reply != nullptr && reply->has_probe()) TakeProbe(reply->probe(), inspection->worker, &job.status);
  job.status.set_reason(reasons_.Obstacle(job));
  const bool ready = job.has_data() && job.status.spec().partition_bytes() > 0;
  const absl::Status laid_out = ready ? schedule_.LayOut(job) : absl::OkStatus();
  for (ReplyToken token : submission.replies) {
    if (!laid_out.ok()) {
      step_.ReplyError(token, laid_out);
    } else {
      step_.Emit(Reply{token, absl::OkStatus(), SubmitResponseOf(job.status, submission.checked.get())});
    }
  }
}

// A new job, as it was submitted and inspected.
void Submissions::Fill(Job& job, Submission& submission, const v1::DataInfoReply* reply, const Inspection* inspection) {
  const Graph& graph = submission.checked->graph;
  *job.status.mutable_spec() = submission.checked->spec;
  submission.who.Own(&job.status);
  jobs_.Transition(job, v1::QUEUED);
  job.status.set_submitted_unix_ms(absl::ToUnixMillis(step_.now()));
  job.status.set_parameters(graph.parameters());
  job.status.set_trainable_parameters(graph.trainable_parameters());
  if (reply != nullptr) {
    *job.status.mutable_data() = reply->info();
    TakeFacts(reply->checkpoint(), *job.status.mutable_spec());
  }
  job.queueing.request_key = std::move(submission.request_key);
  job.spec_bytes = submission.spec_bytes;
  job.queueing.space_size = graph.space_size();
  if (inspection == nullptr || inspection->failed.empty()) return;
  auto checked = std::make_shared<CheckedJob>(*submission.checked);
  for (const auto& [name, why] : inspection->failed) {
    checked->warnings.push_back(absl::StrCat("continues without ", BlindText(name, why)));
  }
  submission.checked = std::move(checked);
}

template <typename Predicate>
void Submissions::StartAnew(Predicate due) {
  std::vector<Inspection> inspections;
  for (auto it = inspections_.begin(); it != inspections_.end();) {
    if (due(it->second)) {
      inspections.push_back(std::move(it->second));
      it = inspections_.erase(it);
    } else {
      ++it;
    }
  }
  for (Inspection& inspection : inspections) {
    if (inspection.submission == 0 && (jobs_.Find(inspection.job) == nullptr || !jobs_.Find(inspection.job)->queued()))
      continue;
    StartInspection(std::move(inspection));
  }
}

void Submissions::ReleaseWorker(const NodeName& worker) {
  StartAnew([&](const Inspection& inspection) { return inspection.worker == worker; });
}

void Submissions::Tick() {
  StartAnew([&](const Inspection& inspection) { return step_.now() >= inspection.deadline; });
  if (nodes_.Connected(v1::WORKER).empty()) return;
  int started = 0;
  for (auto& [id, job] : jobs_.all()) {
    if (!job.queued() || job.has_data() || job.queueing.inspecting || step_.now() < job.queueing.inspect_after)
      continue;
    if (++started > kInspectionsOfTickMax) break;
    Inspection inspection;
    inspection.job = id;
    StartInspection(std::move(inspection));
  }
}

}  // namespace cairn
