#include "coordinator/dashboard/actions.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <variant>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/overloaded.h"
#include "common/formats/job_text.h"
#include "common/report/json.h"
#include "common/rpc/access.h"
#include "coordinator/dashboard/answers.h"
#include "coordinator/dashboard/limits.h"
#include "coordinator/node/awaited_answer.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

constexpr char kService[] = "JobService";
constexpr char kNoAction[] =
    "nothing is changed here; there are POST /api/v1/jobs, /api/v1/jobs/ID/cancel, /api/v1/jobs/ID/delete and "
    "/api/v1/nodes/NAME/drain";

// Of calls that are still made when nobody waits for their answer any longer.
constexpr char kSubmitIsLate[] =
    "there is no answer yet, since workers look at the job's data; the job may still be submitted: send it again with "
    "the same request_key, which makes no second one, or look at the list of jobs";
constexpr char kChangeIsLate[] =
    "the coordinator did not answer in time; the change may still be made: look before you repeat it";

int HttpStatusOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return 200;
    case absl::StatusCode::kInvalidArgument: return 400;
    case absl::StatusCode::kUnauthenticated: return 401;
    case absl::StatusCode::kPermissionDenied: return 403;
    case absl::StatusCode::kNotFound: return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition: return 409;
    case absl::StatusCode::kResourceExhausted: return 429;
    case absl::StatusCode::kUnavailable: return 503;
    case absl::StatusCode::kDeadlineExceeded: return 504;
    default: return 500;
  }
}

HttpAnswer ErrorAnswer(const absl::Status& status, const HttpRequest& request) {
  if (std::optional<HttpAnswer> leader = ToLeader(status, request)) return *std::move(leader);
  const Json error = {{"error", std::string(status.message())}, {"code", absl::StatusCodeToString(status.code())}};
  return JsonAnswer(error.dump(-1, ' ', false, Json::error_handler_t::replace), HttpStatusOf(status));
}

// The reply of a call that went well, as the command line prints it with --json.
std::string ReplyJson(const ReplyBody& body) {
  return std::visit(Overloaded{
                        [](const v1::SubmitResponse& submitted) { return SubmitJson(submitted); },
                        [](const v1::JobStatus& job) { return JobJson(job); },
                        [](const v1::DeleteJobResponse& gone) {
                          return Json{{"job_id", gone.job_id()}}.dump();
                        },
                        [](const v1::NodeStatus& node) { return NodesJson({node}); },
                        [](const auto&) { return std::string("{}"); },
                    },
                    body);
}

// A flat object with no other fields than these. Errors: INVALID_ARGUMENT.
absl::StatusOr<Json> ReadFields(const std::string& body, const std::set<std::string>& known) {
  bool nested = false;
  const auto on_event = [&](int depth, Json::parse_event_t event, Json&) {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    nested |= opens && depth > 0;
    return !nested;
  };
  Json fields = Json::parse(body, on_event, /*allow_exceptions=*/false);
  if (nested || !fields.is_object())
    return absl::InvalidArgumentError("the body is not a JSON object of texts and true or false");
  for (const auto& [name, value] : fields.items()) {
    if (!known.contains(name))
      return absl::InvalidArgumentError(absl::StrCat("there is no field \"", name.substr(0, 100), "\" here"));
  }
  return fields;
}

absl::StatusOr<std::string> TextField(const Json& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end()) return std::string();
  if (found->is_string()) return found->get<std::string>();
  return absl::InvalidArgumentError(absl::StrCat(name, ": a text is expected"));
}

absl::StatusOr<v1::SubmitRequest> ReadSubmission(const std::string& body) {
  CAIRN_ASSIGN_OR_RETURN(const Json fields, ReadFields(body, {"text", "request_key"}));
  v1::SubmitRequest request;
  CAIRN_ASSIGN_OR_RETURN(*request.mutable_request_key(), TextField(fields, "request_key"));
  CAIRN_ASSIGN_OR_RETURN(const std::string text, TextField(fields, "text"));
  if (absl::StripAsciiWhitespace(text).empty())
    return absl::InvalidArgumentError("text: the job is missing; give it as a job file has it");
  CAIRN_ASSIGN_OR_RETURN(*request.mutable_spec(), ParseJobText(text, "job"));
  if (request.ByteSizeLong() <= static_cast<size_t>(kControlMessageBytesMax)) return request;
  return absl::InvalidArgumentError(absl::StrCat("text: a job of ", request.ByteSizeLong(), " bytes; at most ",
                                                 kControlMessageBytesMax, " are possible, as with `cairn submit`"));
}

absl::StatusOr<v1::DrainNodeRequest> ReadDrain(const std::string& node, const std::string& body) {
  CAIRN_ASSIGN_OR_RETURN(const Json fields, ReadFields(body, {"undo"}));
  v1::DrainNodeRequest request;
  request.set_name(node);
  const auto undo = fields.find("undo");
  if (undo != fields.end() && !undo->is_boolean()) return absl::InvalidArgumentError("undo: true or false is expected");
  request.set_undo(undo != fields.end() && undo->get<bool>());
  return request;
}

}  // namespace

const char* Actions::MethodOf(Kind kind) {
  switch (kind) {
    case Kind::kSubmit: return "Submit";
    case Kind::kCancel: return "CancelJob";
    case Kind::kDelete: return "DeleteJob";
    case Kind::kDrain: return "DrainNode";
  }
  return "";
}

std::optional<Actions::Action> Actions::Find(const HttpRequest& request) {
  absl::string_view path = request.path;
  if (path == "/api/v1/jobs") return Action{Kind::kSubmit, ""};
  const bool node = absl::ConsumePrefix(&path, "/api/v1/nodes/");
  if (!node && !absl::ConsumePrefix(&path, "/api/v1/jobs/")) return std::nullopt;
  const bool cancels = !node && absl::ConsumeSuffix(&path, "/cancel");
  const bool deletes = !node && !cancels && absl::ConsumeSuffix(&path, "/delete");
  const bool drains = node && absl::ConsumeSuffix(&path, "/drain");
  if (path.empty() || (!cancels && !deletes && !drains)) return std::nullopt;
  return Action{cancels ? Kind::kCancel : deletes ? Kind::kDelete : Kind::kDrain, std::string(path)};
}

std::optional<HttpAnswer> Actions::BeforePost(const HttpRequest& request) const {
  const std::optional<Action> action = Find(request);
  if (!action) {
    HttpAnswer answer = TextAnswer(405, kNoAction);
    answer.headers = {{"Allow", "GET, HEAD"}};
    return answer;
  }
  if (calls_ == nullptr) {
    return TextAnswer(403,
                      "these pages are for reading only (cairn-coordinator --http-read-only); use the command line, "
                      "`cairn`");
  }
  const absl::Status may = calls_->guard().AdmitCaller(request.caller, kService, MethodOf(action->kind));
  if (!may.ok()) return ErrorAnswer(may, request);
  return std::nullopt;
}

absl::Status Actions::Make(const Action& action, const HttpRequest& request, UserCalls::ReplyFn done) const {
  const CallFrom from = {request.caller, request.peer};
  if (action.kind == Kind::kSubmit) {
    CAIRN_ASSIGN_OR_RETURN(const v1::SubmitRequest submission, ReadSubmission(request.body));
    calls_->Submit(from, submission, std::move(done));
    return absl::OkStatus();
  }
  if (action.kind == Kind::kDrain) {
    CAIRN_ASSIGN_OR_RETURN(const v1::DrainNodeRequest drain, ReadDrain(action.which, request.body));
    calls_->DrainNode(from, drain, std::move(done));
    return absl::OkStatus();
  }
  CAIRN_RETURN_IF_ERROR(ReadFields(request.body, {}).status());
  if (action.kind == Kind::kCancel) {
    calls_->CancelJob(from, WhichJob(action.which), std::move(done));
  } else {
    calls_->DeleteJob(from, WhichJob(action.which), std::move(done));
  }
  return absl::OkStatus();
}

HttpAnswer Actions::Answer(const HttpRequest& request) {
  const std::optional<Action> action = Find(request);
  if (calls_ == nullptr || !action) return TextAnswer(405, kNoAction);
  const bool submits = action->kind == Kind::kSubmit;
  std::atomic<int>& waiting = submits ? submitting_ : changing_;
  const absl::Cleanup leave = [&waiting] { --waiting; };
  if (++waiting > (submits ? kPageSubmissionsMax : kPageActionsMax)) {
    return ErrorAnswer(absl::ResourceExhaustedError(absl::StrCat("too many ", submits ? "submissions" : "changes",
                                                                 " by pages wait; try again later")),
                       request);
  }
  const auto reply = std::make_shared<AwaitedAnswer<std::string>>();
  const absl::Status made = Make(*action, request, [reply](const absl::Status& status, const ReplyBody& body) {
    if (status.ok()) {
      reply->Put(ReplyJson(body));
    } else {
      reply->Put(status);
    }
  });
  if (!made.ok()) return ErrorAnswer(made, request);
  const absl::StatusOr<std::string> json = reply->Wait(patience_, submits ? kSubmitIsLate : kChangeIsLate);
  return json.ok() ? JsonAnswer(*json) : ErrorAnswer(json.status(), request);
}

bool Actions::May(const Caller& caller, Kind kind) const {
  return calls_ != nullptr && CheckAccess(absl::StrCat("/cairn.v1.", kService, "/", MethodOf(kind)), caller).ok();
}

std::string Actions::RightsJson(const Caller& caller) const {
  const nlohmann::ordered_json rights = {{"user", caller.user()},
                                         {"read_only", calls_ == nullptr},
                                         {"submit", May(caller, Kind::kSubmit)},
                                         {"cancel", May(caller, Kind::kCancel)},
                                         {"delete", May(caller, Kind::kDelete)},
                                         {"request_bytes_max", kPageBodyBytesMax}};
  return rights.dump();
}

bool Actions::MayDrain(const Caller& caller, const v1::NodeStatus& node) const {
  return calls_ != nullptr && cairn::MayDrain(caller, node);
}

}  // namespace cairn
