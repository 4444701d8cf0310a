// ClusterScript: events, effects and jobs as lines.
#include "absl/strings/str_join.h"
#include "common/base/overloaded.h"
#include "coordinator/store/state_store.h"
#include "tests/transcripts/cluster_script.h"
#include "tests/transcripts/message_text.h"

namespace cairn {
namespace {

std::string JobText(const v1::GetJobRequest& job) {
  return job.name().empty() ? absl::StrCat("job ", job.job_id()) : absl::StrCat("job \"", job.name(), "\"");
}

std::string StoreText(const Store& store) {
  if (!store.value) return absl::StrCat("delete ", store.key);
  v1::StoredJob job;
  if (!store.key.starts_with(kJobKeyPrefix) || !job.ParseFromString(*store.value))
    return absl::StrCat("store ", store.key);
  return absl::StrFormat("store %s: %s, generation %d, assignment %d, step %d", store.key,
                         v1::JobState_Name(job.status().state()), job.status().generation(), job.assignment(),
                         job.status().step());
}

}  // namespace

std::string ClusterScript::NameOf(SessionToken session) const {
  const auto it = names_.find(session);
  return it == names_.end() ? "a session that is gone" : it->second;
}

std::string ClusterScript::EventText(const Event& event) {
  return std::visit(
      Overloaded{
          [&](const NodeUp& e) {
            names_[e.session] = e.hello.name();
            return absl::StrCat(e.hello.name(), " connects: ", FieldsText(e.hello));
          },
          [&](const NodeSays& e) { return absl::StrCat(NameOf(e.session), " says ", KindText(e.message)); },
          [&](const SessionClosed& e) { return absl::StrCat("the session of ", NameOf(e.session), " breaks"); },
          [&](const NodeRefused& e) { return absl::StrCat(e.name, " is refused: ", e.why); },
          [&](const Tick&) { return absl::StrCat("at ", absl::FormatDuration(cluster_.clock().Now() - start_)); },
          [&](const SubmitJob& e) { return absl::StrCat("a user submits \"", e.job->spec.name(), "\""); },
          [&](const CancelJob& e) { return absl::StrCat("a user cancels ", JobText(e.job)); },
          [&](const DeleteJob& e) { return absl::StrCat("a user deletes ", JobText(e.job)); },
          [&](const EvaluateJob& e) { return absl::StrCat("a user evaluates ", JobText(e.request.job())); },
          [&](const PredictJob& e) { return absl::StrCat("a user predicts with ", JobText(e.request.job())); },
          [&](const PredictionTaken&) { return std::string("the user takes the next part"); },
          [&](const PredictionGone&) { return std::string("the user goes away"); },
          [&](const ReadLog& e) { return absl::StrCat("a user reads the log of ", e.request.node()); },
          [&](const StartTrace& e) { return absl::StrCat("a user traces job ", e.request.job_id()); },
          [&](const ReadTrace& e) { return absl::StrCat("a user reads the trace of ", e.request.node()); },
          [&](const EndTrace&) { return std::string("a user ends the trace"); },
          [&](const CreateToken& e) { return absl::StrCat("an admin makes a token for ", e.token.token().user()); },
          [&](const RevokeToken& e) { return absl::StrCat("a user revokes token ", e.id); },
          [&](const DrainNode& e) {
            return absl::StrCat("a user ", e.request.undo() ? "ends the drain of " : "drains ", e.request.name());
          }},
      event);
}

std::string ClusterScript::EffectText(const Effect& effect) {
  return std::visit(
      Overloaded{
          [&](const Store& e) { return StoreText(e); },
          [&](const SendCommand& e) { return absl::StrCat("tell ", NameOf(e.session), " ", KindText(e.message)); },
          [&](const Reply& e) {
            if (!e.status.ok()) return absl::StrCat("answer the user: ", e.status.ToString());
            const auto* submitted = std::get_if<v1::SubmitResponse>(&e.body);
            if (submitted != nullptr) return absl::StrCat("answer the user: job ", submitted->job().job_id());
            const auto* evaluated = std::get_if<v1::EvaluateResponse>(&e.body);
            if (evaluated != nullptr) return absl::StrCat("answer the user: ", FieldsText(*evaluated));
            return std::string("answer the user: OK");
          },
          [&](const SendPrediction& e) { return absl::StrCat("a part for the user: ", FieldsText(e.part)); },
          [&](const JobChanged&) { return std::string(); },
          [&](const CloseSession& e) {
            return absl::StrCat("close the session of ", NameOf(e.session), ": ", e.reason.message());
          },
          [&](const LogLine& e) { return absl::StrCat(e.warning ? "warn: " : "log: ", LogText(e)); }},
      effect);
}

// An event that changes nothing is not written down.
void ClusterScript::Observe(const Event& event, const Effects& effects) {
  const std::string what = EventText(event);
  std::vector<std::string> lines;
  for (const Effect& effect : effects) {
    std::string line = EffectText(effect);
    if (!line.empty()) lines.push_back("  " + std::move(line));
  }
  if (!lines.empty()) absl::StrAppend(&out_, what, "\n", absl::StrJoin(lines, "\n"), "\n");
}

void ClusterScript::Show(uint64_t job_id) {
  const v1::JobStatus job = cluster_.Job(job_id);
  absl::StrAppend(&out_, v1::JobState_Name(job.state()), ", step ", job.step(), ", generation ", job.generation(),
                  "\n");
  if (!job.reason().empty()) absl::StrAppend(&out_, "reason: ", job.reason(), "\n");
  if (!job.degraded().text().empty()) absl::StrAppend(&out_, "degraded: ", job.degraded().text(), "\n");
  for (const v1::PartitionPlacement& p : job.partitions()) {
    absl::StrAppend(&out_, "partition ", p.partition(), ": ", p.primary());
    for (const v1::BackupPlacement& b : p.backups())
      absl::StrAppend(&out_, ", backup ", b.node(), b.in_sync() ? " in sync" : " not in sync");
    absl::StrAppend(&out_, "\n");
  }
  for (const v1::JobEvent& event : job.events())
    absl::StrAppend(&out_, event.warning() ? "warning: " : "event: ", event.text(), "\n");
}

}  // namespace cairn
