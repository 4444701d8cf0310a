// JobClient: what a user may ask of a cluster (JobService), as plain blocking calls with deadlines and errors that say
// what to do.
//
// Thread-safe; every call may run beside the others. Invariants:
//   1. Every call ends: unary calls by their deadline, Watch by the
//      job's end, by its caller or when the coordinator stays away.
//   2. Calls that change something are safe to repeat: Submit carries a request key and retries by itself. Of
//      several coordinators the one that leads is found by every call, and waited for while one is being elected.
//   3. No gRPC type shows: programs that link this need not know it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/cluster.pb.h"
#include "common/base/status.h"
#include "common/model/state_text.h"

namespace cairn {

inline constexpr char kCoordinatorAddressDefault[] = "127.0.0.1:7070";

struct JobClientOptions {
  std::string address = kCoordinatorAddressDefault;  // host:port; several coordinators: with commas between them
  absl::Duration timeout = absl::Seconds(10);        // of a call. Submit: the workers look at the data meanwhile
  absl::Duration submit_timeout = absl::Seconds(60);
  absl::Duration evaluate_timeout = absl::Minutes(30);
  // Watch: how long the coordinator may be away before Watch gives up; the job does not need it to go on.
  absl::Duration reconnect_max = absl::Seconds(60);
};

// A job by number, or by name: the newest one, where a call says nothing else.
struct JobRef {
  uint64_t id = 0;  // 0: by name
  std::string name;

  // Digits are a number, anything else is a name. Errors: INVALID_ARGUMENT.
  static absl::StatusOr<JobRef> Parse(const std::string& text);
};

class JobClient {
 public:
  explicit JobClient(const JobClientOptions& options);
  ~JobClient();

  // Errors of all calls: UNAVAILABLE, the coordinator is not reached (the text names its address and what to do);
  // NOT_FOUND, no such job; what the RPC says (proto/cairn/v1/cluster.proto).
  absl::StatusOr<v1::SubmitResponse> Submit(const v1::JobSpec& spec);
  absl::StatusOr<v1::ListJobsResponse> List();  // newest first
  absl::StatusOr<v1::JobStatus> Get(const JobRef& job);
  // By name: the newest one that has weights.
  absl::StatusOr<v1::JobStatus> GetWithWeights(const JobRef& job);
  // By name: the only one that the action fits. Errors: FAILED_PRECONDITION, there are several.
  absl::StatusOr<v1::JobStatus> Cancel(const JobRef& job);
  absl::StatusOr<uint64_t> Delete(const JobRef& job);  // the job's number; 0: there is none of that number (any more)
  absl::StatusOr<v1::EvaluateResponse> Evaluate(const JobRef& job, v1::Split split);
  absl::StatusOr<v1::EvaluateResponse> Evaluate(const v1::EvaluateRequest& request);
  // Blocks until all outputs were handed to on_part, in order; it may take its time, nothing piles up meanwhile. An
  // error of on_part ends the call and is its result.
  absl::Status Predict(const v1::PredictRequest& request,
                       const std::function<absl::Status(const v1::PredictResponse&)>& on_part);
  absl::StatusOr<std::vector<v1::NodeStatus>> ListNodes();
  // Takes all work from the node; undo: lets it have work again.
  absl::StatusOr<v1::NodeStatus> DrainNode(const std::string& name, bool undo);

  struct WatchCallbacks {
    // The present status, then every change. false ends the watch.
    std::function<bool(const v1::JobStatus&)> on_status;
    // The stream broke and is being opened again. Optional.
    std::function<void(const absl::Status&)> on_interrupted;
  };
  // Blocks until the job is final (OK), a callback says stop (OK), or an error that a new stream does not mend.
  absl::Status Watch(const JobRef& job, const WatchCallbacks& callbacks);

 private:
  struct Connection;
  const JobClientOptions options_;
  const std::unique_ptr<Connection> connection_;
};

// Asks any daemon's grpc.health.v1 service for the server as a whole, or for a `service`: kReadyService of a ps. OK:
// serving. Of several addresses ("a:1,b:1") one that serves is enough. `timeout` is for each.
// Errors: UNAVAILABLE names the address and says whether it is not reached or not serving.
absl::Status CheckHealth(const std::string& addresses, absl::Duration timeout, const std::string& service = "");

}  // namespace cairn
