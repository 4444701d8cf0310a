#include "coordinator/core/traces.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/base/version.h"
#include "common/model/role_text.h"
#include "common/model/state_text.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

constexpr int32_t kSecondsDefault = 60;

std::string NodeText(const ClusterNode& node) { return absl::StrFormat("%s \"%s\"", RoleText(node.role), node.name); }

absl::Status NotAnswered(const NodeName& node, std::string_view why) {
  return absl::UnavailableError(absl::StrFormat("\"%s\" %s", node, why));
}

// What it says that a job is traced already: by whom, and for how long that may go on.
std::string TracedText(uint64_t job, const std::string& user, absl::Duration since, int32_t seconds) {
  return absl::StrFormat(
      "job %d is being traced%s since %s; a job has one trace at a time: try again when it has ended, at "
      "most %d s after its beginning",
      job, user.empty() ? "" : absl::StrCat(" by ", user), absl::FormatDuration(absl::Trunc(since, absl::Seconds(1))),
      seconds);
}

// In range, so that sums of two times or steps do not overflow either.
constexpr int64_t kMost = int64_t{1} << 61;

bool Within(int64_t value, int64_t most) { return value >= 0 && value < most; }

bool MakesSense(const v1::TraceSpan& span) {
  return Within(span.begin_ns(), kMost) && Within(span.duration_ns(), kMost) && Within(span.step(), kMost) &&
         Within(span.replica(), kReplicasMax) && span.partition() >= 0 && span.text().size() <= kTraceTextBytesMax;
}

bool MakesSense(const v1::ReadTraceResponse& trace) {
  if (!Within(trace.node_ns(), kMost)) return false;
  if (trace.spans().empty()) return true;
  return trace.first() >= 1 && trace.first() < uint64_t{1} << 61 &&
         static_cast<size_t>(trace.spans_size()) <= kTraceAnswerSpansMax &&
         std::all_of(trace.spans().begin(), trace.spans().end(), [](const auto& span) { return MakesSense(span); });
}

}  // namespace

absl::StatusOr<const Job*> Traces::FindJob(const v1::StartTraceRequest& request, const Requester& who) const {
  if (request.steps() < 1 || request.steps() > kTraceStepsMax)
    return absl::InvalidArgumentError(absl::StrFormat("steps: %d; use 1 to %d", request.steps(), kTraceStepsMax));
  if (request.seconds() < 0 || request.seconds() > kTraceSecondsMax)
    return absl::InvalidArgumentError(absl::StrFormat("seconds: %d; use 0 to %d", request.seconds(), kTraceSecondsMax));
  v1::GetJobRequest by_number;
  by_number.set_job_id(request.job_id());
  CAIRN_RETURN_IF_ERROR(jobs_.GetJob(by_number, step_.now(), who).status());
  const Job* job = jobs_.Find(by_number);
  if (job == nullptr || !job->running()) {
    return absl::FailedPreconditionError(absl::StrFormat("job %d is %s: only the steps of a running job can be traced",
                                                         request.job_id(),
                                                         job == nullptr ? "gone" : StateText(job->state())));
  }
  for (const auto& [id, trace] : traces_) {
    if (trace.job != job->id()) continue;
    return absl::AlreadyExistsError(TracedText(trace.job, trace.user, step_.now() - trace.began, trace.seconds));
  }
  if (traces_.size() >= kTracesMax) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d jobs are being traced, at most %d; try again", traces_.size(), kTracesMax));
  }
  return job;
}

v1::TracedNode Traces::AddNode(Trace& trace, const NodeName& name) const {
  v1::TracedNode traced;
  traced.set_name(name);
  const ClusterNode* node = nodes_.Find(name);
  if (node == nullptr) {
    traced.set_lacks("it is not known any more");
    return traced;
  }
  traced.set_role(node->role);
  if (!node->connected()) {
    traced.set_lacks("it is not connected");
  } else if (!node->machine.serves_trace) {
    traced.set_lacks(absl::StrFormat("it runs %s, which records no traces; upgrade it",
                                     ProgramText(node->machine.version, node->machine.interface)));
  } else {
    trace.nodes.push_back(name);
  }
  return traced;
}

void Traces::OnStart(const StartTrace& event) {
  const absl::StatusOr<const Job*> job = FindJob(event.request, event.who);
  if (!job.ok()) return step_.ReplyError(event.reply, job.status());
  Trace trace;
  trace.job = (*job)->id();
  trace.steps = (*job)->synchronous() ? event.request.steps() : 0;
  trace.seconds = event.request.seconds() > 0 ? event.request.seconds() : kSecondsDefault;
  trace.user = event.who.user;
  trace.owned.set_job_id(trace.job);
  trace.owned.set_owner((*job)->status.owner());
  *trace.owned.mutable_groups() = (*job)->status.groups();
  trace.began = trace.read = step_.now();
  v1::StartTraceResponse response;
  response.set_synchronous((*job)->synchronous());
  std::set<NodeName> names;
  for (const NodeName& name : (*job)->owners()) {
    if (!name.empty()) names.insert(name);
  }
  for (const NodeName& name : (*job)->ps()) names.insert(name);
  for (const NodeName& name : names) *response.add_nodes() = AddNode(trace, name);
  const uint64_t id = step_.NextRequestId();
  response.set_trace_id(id);
  traces_[id] = std::move(trace);
  step_.Emit(Reply{event.reply, absl::OkStatus(), std::move(response)});
}

absl::StatusOr<Traces::Trace*> Traces::Find(uint64_t id, const Requester& who) {
  const auto it = traces_.find(id);
  if (it == traces_.end()) {
    return absl::NotFoundError(
        absl::StrFormat("there is no trace %d: it has ended, was not read for %s, or another "
                        "coordinator leads now",
                        id, absl::FormatDuration(kTraceUnreadMax)));
  }
  CAIRN_RETURN_IF_ERROR(who.Check(it->second.owned));
  return &it->second;
}

absl::StatusOr<const ClusterNode*> Traces::NodeToAsk(const Trace& trace, const NodeName& name) const {
  if (std::find(trace.nodes.begin(), trace.nodes.end(), name) == trace.nodes.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("node: \"%s\" is not a part of the trace; StartTraceResponse.nodes says who is",
                        name.substr(0, kNodeNameBytesMax)));
  }
  const ClusterNode* node = nodes_.Find(name);
  if (node == nullptr) return NotAnswered(name, "is not known any more");
  if (!node->connected()) return absl::UnavailableError(absl::StrCat(NodeText(*node), " is not connected"));
  const auto of_node =
      std::count_if(waiting_.begin(), waiting_.end(), [&](const auto& w) { return w.second.node == name; });
  if (waiting_.size() >= kTraceReadsMax || of_node >= kTraceReadsOfNodeMax)
    return absl::ResourceExhaustedError("too many traces are being read; try again");
  return node;
}

void Traces::OnRead(const ReadTrace& event) {
  const absl::StatusOr<Trace*> trace = Find(event.request.trace_id(), event.who);
  if (!trace.ok()) return step_.ReplyError(event.reply, trace.status());
  (*trace)->read = step_.now();
  const absl::StatusOr<const ClusterNode*> node = NodeToAsk(**trace, event.request.node());
  if (!node.ok()) return step_.ReplyError(event.reply, node.status());
  const uint64_t id = step_.NextRequestId();
  waiting_[id] = {event.reply, event.request.trace_id(), event.request.node(), step_.now()};
  v1::CoordinatorMessage message;
  v1::FetchTrace& fetch = *message.mutable_fetch_trace();
  fetch.set_request_id(id);
  *fetch.mutable_request() = event.request;
  fetch.set_job_id((*trace)->job);
  fetch.set_steps((*trace)->steps);
  fetch.set_seconds((*trace)->seconds);
  step_.Send(**node, std::move(message));
}

void Traces::OnTraceRead(const ClusterNode& node, const v1::TraceRead& answer) {
  const auto it = waiting_.find(answer.request_id());
  if (it == waiting_.end() || it->second.node != node.name) return;  // its deadline has passed
  const Waiting waiting = std::move(it->second);
  waiting_.erase(it);
  if (!answer.error().empty()) {
    return step_.ReplyError(
        waiting.reply, absl::ResourceExhaustedError(absl::StrCat(NodeText(node), ": ", answer.error().substr(0, 500))));
  }
  if (!MakesSense(answer.trace())) {
    return step_.ReplyError(waiting.reply, NotAnswered(node.name, "sent spans that make no sense"));
  }
  v1::ReadTraceResponse response = answer.trace();
  response.set_asked_ns(absl::ToUnixNanos(waiting.asked));
  response.set_answered_ns(absl::ToUnixNanos(step_.now()));
  const auto trace = traces_.find(waiting.trace);
  const Job* job = trace == traces_.end() ? nullptr : jobs_.Find(trace->second.job);
  response.set_job_ended(job == nullptr || job->finished() || job->finalizing());
  step_.Emit(Reply{waiting.reply, absl::OkStatus(), std::move(response)});
}

void Traces::OnEnd(const EndTrace& event) {
  const absl::StatusOr<Trace*> trace = Find(event.request.trace_id(), event.who);
  if (!trace.ok() && !absl::IsNotFound(trace.status())) return step_.ReplyError(event.reply, trace.status());
  if (trace.ok()) {
    Forget(event.request.trace_id(), **trace);
    traces_.erase(event.request.trace_id());
  }
  step_.Emit(Reply{event.reply, absl::OkStatus(), v1::EndTraceResponse()});
}

void Traces::Forget(uint64_t id, const Trace& trace) {
  for (const NodeName& name : trace.nodes) {
    const ClusterNode* node = nodes_.Find(name);
    if (node == nullptr || !node->machine.serves_trace) continue;
    v1::CoordinatorMessage message;
    message.mutable_fetch_trace()->mutable_request()->set_trace_id(id);
    message.mutable_fetch_trace()->set_job_id(trace.job);
    message.mutable_fetch_trace()->set_forget(true);
    step_.Send(*node, std::move(message));
  }
}

void Traces::ReleaseNode(const NodeName& node) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->second.node != node) {
      ++it;
      continue;
    }
    step_.ReplyError(it->second.reply, NotAnswered(node, "lost its connection"));
    it = waiting_.erase(it);
  }
}

void Traces::Tick() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (step_.now() < it->second.asked + kTraceReadTimeout) {
      ++it;
      continue;
    }
    step_.ReplyError(
        it->second.reply,
        NotAnswered(it->second.node, absl::StrCat("did not answer within ", absl::FormatDuration(kTraceReadTimeout))));
    it = waiting_.erase(it);
  }
  for (auto it = traces_.begin(); it != traces_.end();) {
    if (step_.now() < it->second.read + kTraceUnreadMax) {
      ++it;
      continue;
    }
    Forget(it->first, it->second);
    it = traces_.erase(it);
  }
}

}  // namespace cairn
