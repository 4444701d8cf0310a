// What happens to ClusterCore (events) and what it asks its node to do (effects). Data only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/storage.pb.h"
#include "cairn/v1/tokens.pb.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/model/job_check.h"
#include "coordinator/core/quotas.h"
#include "coordinator/core/requester.h"

namespace cairn {

// One Session stream; never used again. 0 is none.
using SessionToken = Id<struct SessionTokenTag, uint64_t>;
// One user call that waits for its reply.
using ReplyToken = Id<struct ReplyTokenTag, uint64_t>;

// ---- events ----

struct NodeUp {  // a stream's first message
  SessionToken session;
  v1::Hello hello;
};
struct NodeSays {  // any later one
  SessionToken session;
  v1::NodeMessage message;
};
struct SessionClosed {  // the stream ended, for any reason
  SessionToken session;
};
struct NodeRefused {  // before it was a member: its certificate does not allow what it wants
  std::string name;   // that it gives itself; empty: it had not come so far
  std::string from;   // its machine, as gRPC names it
  std::string why;
};
struct Tick {};  // time has passed; at least one every heartbeat interval / 2
struct SubmitJob {
  ReplyToken reply;
  std::shared_ptr<const CheckedJob> job;
  std::string request_key;
  Requester who = {};
  bool check_only = false;                         // nothing is queued: the answer says what would be
  std::shared_ptr<const Quotas> quotas = nullptr;  // null: there is no file of them
};
struct CancelJob {
  ReplyToken reply;
  v1::GetJobRequest job;
  Requester who = {};
};
struct DeleteJob {
  ReplyToken reply;
  v1::GetJobRequest job;
  Requester who = {};
};
struct EvaluateJob {
  ReplyToken reply;
  v1::EvaluateRequest request;
  absl::Time deadline;
  Requester who = {};
};
struct PredictJob {  // answered by SendPrediction, ..., Reply
  ReplyToken reply;
  v1::EvaluateRequest request;  // PredictRequest has the same fields
  absl::Time deadline;
  Requester who = {};
};
struct PredictionTaken {  // the caller has taken the last SendPrediction: the next one may be sent
  ReplyToken reply;
};
struct PredictionGone {  // the caller has hung up
  ReplyToken reply;
};

struct ReadLog {  // of a node
  ReplyToken reply;
  v1::ReadLogRequest request;
  Requester who = {};
};

struct StartTrace {
  ReplyToken reply;
  v1::StartTraceRequest request;
  Requester who = {};
};
struct ReadTrace {  // of a node
  ReplyToken reply;
  v1::ReadTraceRequest request;
  Requester who = {};
};
struct EndTrace {
  ReplyToken reply;
  v1::EndTraceRequest request;
  Requester who = {};
};

// Which kinds of nodes of the name the caller may drain.
struct DrainRights {
  bool ps = true, workers = true;
};
struct DrainNode {
  ReplyToken reply;
  v1::DrainNodeRequest request;
  DrainRights rights = {};
};

struct CreateToken {
  ReplyToken reply;
  v1::StoredToken token;  // checked; without its times
  absl::Duration lifetime;
};
struct RevokeToken {
  ReplyToken reply;
  std::string id;
  Requester who = {};
};

using Event = std::variant<NodeUp, NodeSays, SessionClosed, Tick, SubmitJob, CancelJob, DeleteJob, EvaluateJob,
                           DrainNode, ReadLog, StartTrace, ReadTrace, EndTrace, PredictJob, PredictionTaken,
                           PredictionGone, CreateToken, RevokeToken, NodeRefused>;

// ---- effects, carried out in order ----

// Durable before any later effect of the list is carried out.
struct Store {
  std::string key;
  std::optional<std::string> value;  // none: delete the key
};
struct SendCommand {
  SessionToken session;
  v1::CoordinatorMessage message;
};
using ReplyBody = std::variant<std::monostate, v1::SubmitResponse, v1::JobStatus, v1::DeleteJobResponse,
                               v1::EvaluateResponse, v1::NodeStatus, v1::ReadLogResponse, v1::StartTraceResponse,
                               v1::ReadTraceResponse, v1::EndTraceResponse, v1::Token>;
struct Reply {
  ReplyToken token;
  absl::Status status;
  ReplyBody body;  // with an OK status
};
// A part of the answer to PredictJob; the next part is sent after PredictionTaken.
struct SendPrediction {
  ReplyToken token;
  v1::PredictResponse part;
};
struct JobChanged {  // someone may be watching
  JobId job;
};
struct CloseSession {
  SessionToken session;
  absl::Status reason;
};
// What an event is about: a job, a node, or (empty) neither.
struct EventSubject {
  uint64_t job = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  NodeName node = {};
};
struct LogLine {
  bool warning = false;
  EventSubject about;
  std::string text;  // goes on after the job or node: LogText (event_log.h)
};

using Effect = std::variant<Store, SendCommand, Reply, SendPrediction, JobChanged, CloseSession, LogLine>;
using Effects = std::vector<Effect>;

// ---- what is stored ----

struct StoredState {
  v1::StoredCluster cluster;
  std::vector<v1::StoredJob> jobs;
  std::vector<v1::StoredToken> tokens;
  std::vector<std::string> orphans;  // keys that nothing refers to: to be deleted
};

inline constexpr char kClusterKey[] = "cluster";
inline constexpr char kJobKeyPrefix[] = "job/";
inline constexpr char kTokenKeyPrefix[] = "token/";

}  // namespace cairn
