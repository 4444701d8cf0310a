// JobClient: the user's interface to a cluster (JobService), as plain blocking calls with deadlines and errors that say
// what to do.
//
// Thread-safe; calls may run concurrently. Invariants:
//   1. Every call ends: unary calls by their deadline, Watch at the
//      job's end, by its callback, or when the coordinator stays away.
//   2. Calls that change state are idempotent: Submit carries a request key and retries by itself. With
//      several coordinators every call finds the leader, and waits while one is being elected.
//   3. The interface has no gRPC types, so that programs which link it need not include gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "cairn/v1/tokens.pb.h"
#include "common/base/status.h"
#include "common/model/state_text.h"

namespace cairn {

inline constexpr char kCoordinatorAddressDefault[] = "127.0.0.1:7070";

struct JobClientOptions {
  std::string address = kCoordinatorAddressDefault;  // host:port; several coordinators: separated by commas
  absl::Duration timeout = absl::Seconds(10);        // per call; Submit has its own, since workers inspect the data
  absl::Duration submit_timeout = absl::Seconds(60);
  absl::Duration evaluate_timeout = absl::Minutes(30);
  // How long the coordinator may be away before Watch gives up; the job continues without it.
  absl::Duration reconnect_max = absl::Seconds(60);
  // Several coordinators: how long a call is sent again while one is being elected. That is within the lease of the one
  // that died, 3 s by default.
  absl::Duration election_max = absl::Seconds(15);
  // A bearer token, sent with every call: over TLS, or to loopback. Empty: none.
  std::string token;
};

// A job by number, or by name: the newest one, unless a call says otherwise.
struct JobRef {
  uint64_t id = 0;  // 0: by name
  std::string name;

  // Digits are a number, any other text is a name. Errors: INVALID_ARGUMENT.
  static absl::StatusOr<JobRef> Parse(const std::string& text);
};

class JobClient {
 public:
  explicit JobClient(const JobClientOptions& options);
  ~JobClient();

  // Errors of all calls: UNAVAILABLE: the coordinator cannot be reached (the text names its address and what to do);
  // NOT_FOUND: no such job; those of the RPC (proto/cairn/v1/cluster.proto); INVALID_ARGUMENT: the token would travel
  // without TLS.
  // request_key: a second call with the same one, from any process, gives the first one's job; empty: one of its own.
  absl::StatusOr<v1::SubmitResponse> Submit(const v1::JobSpec& spec, const std::string& request_key = "");
  // What Submit would answer, but nothing is queued: the job has no number. Errors: as Submit.
  absl::StatusOr<v1::SubmitResponse> Check(const v1::JobSpec& spec);
  absl::StatusOr<v1::ListJobsResponse> List();  // newest first
  absl::StatusOr<v1::JobStatus> Get(const JobRef& job);
  // By name: the newest one that has weights.
  absl::StatusOr<v1::JobStatus> GetWithWeights(const JobRef& job);
  // By name: the only job that can be cancelled, or deleted. Errors: FAILED_PRECONDITION: there are several.
  absl::StatusOr<v1::JobStatus> Cancel(const JobRef& job);
  absl::StatusOr<uint64_t> Delete(const JobRef& job);  // the job's number; 0: no job has that number (any more)
  absl::StatusOr<v1::EvaluateResponse> Evaluate(const JobRef& job, v1::Split split);
  absl::StatusOr<v1::EvaluateResponse> Evaluate(const v1::EvaluateRequest& request);
  // Blocks until on_part has received all outputs, in order. on_part may be slow: flow control limits what is buffered.
  // An error of on_part ends the call and is its result.
  absl::Status Predict(const v1::PredictRequest& request,
                       const std::function<absl::Status(const v1::PredictResponse&)>& on_part);
  absl::StatusOr<std::vector<v1::NodeStatus>> ListNodes();
  // Moves all work off the node; undo: lets it have work again.
  absl::StatusOr<v1::NodeStatus> DrainNode(const std::string& name, bool undo);
  absl::StatusOr<v1::ListEventsResponse> ListEvents(const v1::ListEventsRequest& request);
  absl::StatusOr<v1::ReadLogResponse> ReadLog(const v1::ReadLogRequest& request);
  absl::StatusOr<v1::StartTraceResponse> StartTrace(const v1::StartTraceRequest& request);
  absl::StatusOr<v1::ReadTraceResponse> ReadTrace(const v1::ReadTraceRequest& request);
  absl::Status EndTrace(uint64_t trace_id);
  // Errors of these: proto/cairn/v1/tokens.proto. CreateToken may be sent twice: give id and secret_sha256.
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::ListTokensResponse> ListTokens();
  absl::StatusOr<v1::Token> RevokeToken(const std::string& id);
  absl::StatusOr<v1::Identity> Identify();

  struct WatchCallbacks {
    // The current status, then every change. Returning false ends the watch.
    std::function<bool(const v1::JobStatus&)> on_status;
    // The stream broke and is being reopened. Optional.
    std::function<void(const absl::Status&)> on_interrupted;
  };
  // Blocks until the job is final (OK), on_status returns false (OK), or an error occurs that no retry would remove.
  absl::Status Watch(const JobRef& job, const WatchCallbacks& callbacks);

 private:
  struct Connection;
  const JobClientOptions options_;
  const std::unique_ptr<Connection> connection_;
};

}  // namespace cairn
