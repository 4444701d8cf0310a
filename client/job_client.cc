#include "client/job_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "cairn/v1/cluster.grpc.pb.h"
#include "cairn/v1/tokens.grpc.pb.h"
#include "client/leader_finder.h"
#include "client/limits.h"
#include "client/user_channel.h"
#include "common/base/clock.h"
#include "common/rpc/backoff.h"
#include "common/rpc/byte_buffer.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/daemon.h"
#include "common/rpc/token.h"

namespace cairn {
namespace {

constexpr BackoffOptions kBackoff = {.initial = absl::Milliseconds(100), .max = absl::Seconds(2)};
constexpr int kRedirectsInARow = 2;

v1::GetJobRequest ToRequest(const JobRef& job) {
  v1::GetJobRequest request;
  if (job.id != 0) {
    request.set_job_id(job.id);
  } else {
    request.set_name(job.name);
  }
  return request;
}

bool IsTransient(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status); }

}  // namespace

// The connection to the leading coordinator. Its channel is recreated after a failure, because gRPC's own back-off is
// longer than this client's.
struct JobClient::Connection {
  struct Link {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::JobService::Stub> stub;
    std::unique_ptr<v1::TokenService::Stub> tokens;

    v1::JobService::Stub* StubOf(const v1::JobService::Stub*) const { return stub.get(); }
    v1::TokenService::Stub* StubOf(const v1::TokenService::Stub*) const { return tokens.get(); }
  };
  // Where to retry after a failed call.
  struct Hint {
    bool elsewhere = false;  // the link is broken; another coordinator may lead
    bool at_once = false;    // the answer named the leader
    bool standby = false;    // the coordinator that answered does not lead
  };

  // Whether a call that failed is sent once more. One for each call.
  class Retries {
   public:
    explicit Retries(const Connection& connection) : connection_(connection) {}
    // hint: of the attempt on `used`. Waits before an attempt that is not urgent.
    bool Again(const Hint& hint, const Link& used) {
      if (!connection_.several || !hint.elsewhere) return false;
      if (hint.standby) unreached_.clear();
      if (!hint.standby) unreached_.insert(used.address);
      // While one stands by, a leader is being elected. If none can be reached there is nothing to wait for.
      const auto missed = [this](const std::string& address) { return unreached_.contains(address); };
      const bool none_reached = std::all_of(connection_.parsed->begin(), connection_.parsed->end(), missed);
      if (none_reached || clock_.Now() - begin_ > connection_.election_max) return false;
      if (!hint.at_once && unreached_.empty()) absl::SleepFor(backoff_.Next());
      return true;
    }

   private:
    const Connection& connection_;
    RealClock clock_;
    const absl::Time begin_ = clock_.Now();
    Backoff backoff_{kBackoff, RandomBits()};
    std::set<std::string> unreached_;  // addresses that could not be reached since a standby answered
  };

  explicit Connection(const JobClientOptions& options)
      : addresses(options.address),
        token(options.token),
        election_max(options.election_max),
        parsed(ParseCoordinators(addresses)),
        finder(parsed.value_or(std::vector<std::string>())),
        several(finder.several()) {}

  absl::StatusOr<std::shared_ptr<Link>> Get() {
    if (!parsed.ok()) return Annotate(parsed.status(), "the coordinator's address");
    absl::MutexLock lock(&mutex);
    // Also when another coordinator was named as the leader.
    if (!token.empty() && !UsesTls() && !IsLoopbackAddress(finder.current())) {
      return absl::InvalidArgumentError(
          absl::StrFormat("the token is not sent to %s without TLS, where anyone on the way could read it: give "
                          "--tls-dir, a folder with the cluster's ca.crt",
                          finder.current()));
    }
    if (link == nullptr) {
      absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = CreateChannel(finder.current(), UserChannel());
      if (!channel.ok()) return Annotate(channel.status(), "the coordinator's address");
      link = std::make_shared<Link>(
          Link{finder.current(), *channel, v1::JobService::NewStub(*channel), v1::TokenService::NewStub(*channel)});
    }
    return link;
  }

  // Of a call on a link of Get.
  void Prepare(grpc::ClientContext* context, absl::Duration timeout) const {
    context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    if (!token.empty()) context->AddMetadata(kTokenMetadata, absl::StrCat(kTokenScheme, token));
  }

  // Converts gRPC's status of a call on `used` to one that is readable for users.
  absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context,
                        const std::shared_ptr<Link>& used, absl::Duration timeout, Hint* hint) {
    switch (status.error_code()) {
      case grpc::StatusCode::OK: Served(); return absl::OkStatus();
      case grpc::StatusCode::UNAVAILABLE: {
        const auto& metadata = context.GetServerTrailingMetadata();
        if (const auto leader = metadata.find(kLeaderMetadata); leader != metadata.end()) {
          *hint = MoveOn(used, std::string(leader->second.data(), leader->second.size()));
          hint->standby = true;
          break;
        }
        if (used->channel->GetState(false) == GRPC_CHANNEL_READY) break;  // the coordinator itself returned it
        *hint = MoveOn(used, "");
        const std::string tls = TlsHint(status.error_message());  // of somebody who answered: the likelier cause
        return absl::UnavailableError(absl::StrFormat(
            "cannot reach the coordinator at %s (%s)%s is it running? start one with `cairn up` or give --coordinator",
            addresses, ShortReason(status.error_message()), tls.empty() ? ";" : absl::StrCat(tls, " And")));
      }
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return absl::DeadlineExceededError(absl::StrFormat(
            "the coordinator at %s did not answer within %s; is that its address, and is it overloaded or stopped?",
            addresses, absl::FormatDuration(timeout)));
      case grpc::StatusCode::UNIMPLEMENTED:
        return absl::UnimplementedError(absl::StrFormat(
            "what listens at %s is not a cairn coordinator, or one of another version; give --coordinator "
            "the address on which cairn-coordinator listens",
            addresses));
      default: break;
    }
    return FromGrpcStatus(status);
  }

  // Every call is idempotent (cluster.proto, tokens.proto), so it may be sent to one coordinator after the other; but
  // for StartTrace, whose second is refused.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                const Request& request, absl::Duration timeout) {
    Retries retries(*this);
    while (true) {
      CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<Link> used, Get());
      grpc::ClientContext context;
      Prepare(&context, timeout);
      Response response;
      const grpc::Status answer =
          (used->StubOf(static_cast<const Stub*>(nullptr))->*method)(&context, request, &response);
      Hint hint;
      const absl::Status status = ToStatus(answer, context, used, timeout, &hint);
      if (status.ok()) return response;
      if (!retries.Again(hint, *used)) return status;
    }
  }

  Hint MoveOn(const std::shared_ptr<Link>& used, const std::string& leader) {
    absl::MutexLock lock(&mutex);
    Hint hint;
    hint.elsewhere = true;
    if (link != used) return hint;  // another thread has switched already
    link = nullptr;
    hint.at_once = finder.Failed(leader);
    return hint;
  }

  void Served() {
    absl::MutexLock lock(&mutex);
    finder.Served();
  }

  const std::string addresses, token;
  const absl::Duration election_max;
  const absl::StatusOr<std::vector<std::string>> parsed;
  absl::Mutex mutex;
  LeaderFinder finder ABSL_GUARDED_BY(mutex);
  const bool several;
  std::shared_ptr<Link> link ABSL_GUARDED_BY(mutex);
};

absl::StatusOr<JobRef> JobRef::Parse(const std::string& text) {
  JobRef ref;
  if (text.empty()) return absl::InvalidArgumentError("give the job's number or its name");
  if (text.find_first_not_of("0123456789") != std::string::npos) {
    ref.name = text;
  } else if (!absl::SimpleAtoi(text, &ref.id) || ref.id == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is not a job's number; they count from 1", text));
  }
  return ref;
}

JobClient::JobClient(const JobClientOptions& options)
    : options_(options), connection_(std::make_unique<Connection>(options)) {}

JobClient::~JobClient() = default;

absl::StatusOr<v1::SubmitResponse> JobClient::Submit(const v1::JobSpec& spec, const std::string& key) {
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.set_request_key(key.empty() ? absl::StrFormat("%016x%016x", RandomBits(), RandomBits()) : key);
  Backoff backoff(kBackoff, RandomBits());
  for (int attempt = 1;; ++attempt) {
    auto response = connection_->Call(&v1::JobService::Stub::Submit, request, options_.submit_timeout);
    if (response.ok() || !absl::IsUnavailable(response.status()) || attempt == 3) return response;
    absl::SleepFor(backoff.Next());
  }
}

absl::StatusOr<v1::SubmitResponse> JobClient::Check(const v1::JobSpec& spec) {
  v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  return connection_->Call(&v1::JobService::Stub::CheckJob, request, options_.submit_timeout);
}

absl::StatusOr<v1::ListJobsResponse> JobClient::List() {
  return connection_->Call(&v1::JobService::Stub::ListJobs, v1::ListJobsRequest(), options_.timeout);
}

absl::StatusOr<v1::JobStatus> JobClient::Get(const JobRef& job) {
  return connection_->Call(&v1::JobService::Stub::GetJob, ToRequest(job), options_.timeout);
}

absl::StatusOr<v1::JobStatus> JobClient::GetWithWeights(const JobRef& job) {
  v1::GetJobRequest request = ToRequest(job);
  request.set_with_weights(true);
  return connection_->Call(&v1::JobService::Stub::GetJob, request, options_.timeout);
}

absl::StatusOr<v1::JobStatus> JobClient::Cancel(const JobRef& job) {
  return connection_->Call(&v1::JobService::Stub::CancelJob, ToRequest(job), options_.timeout);
}

absl::StatusOr<uint64_t> JobClient::Delete(const JobRef& job) {
  CAIRN_ASSIGN_OR_RETURN(const auto response,
                         connection_->Call(&v1::JobService::Stub::DeleteJob, ToRequest(job), options_.timeout));
  return response.job_id();
}

absl::StatusOr<v1::EvaluateResponse> JobClient::Evaluate(const JobRef& job, v1::Split split) {
  v1::EvaluateRequest request;
  *request.mutable_job() = ToRequest(job);
  request.set_split(split);
  return Evaluate(request);
}

absl::StatusOr<v1::EvaluateResponse> JobClient::Evaluate(const v1::EvaluateRequest& request) {
  return connection_->Call(&v1::JobService::Stub::Evaluate, request, options_.evaluate_timeout);
}

absl::Status JobClient::Predict(const v1::PredictRequest& request,
                                const std::function<absl::Status(const v1::PredictResponse&)>& on_part) {
  Connection::Retries retries(*connection_);
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const auto link, connection_->Get());
    grpc::ClientContext context;
    connection_->Prepare(&context, options_.evaluate_timeout);
    const auto reader = link->stub->Predict(&context, request);
    v1::PredictResponse part;
    uint64_t next = 0;  // index of the next example
    while (reader->Read(&part)) {
      absl::Status status = part.first_example() == next
                                ? on_part(part)
                                : absl::InternalError(absl::StrFormat("received outputs of example %d, expected %d",
                                                                      part.first_example(), next));
      next += part.examples();
      if (status.ok()) continue;
      context.TryCancel();
      reader->Finish();
      return status;
    }
    Connection::Hint hint;
    const absl::Status status =
        connection_->ToStatus(reader->Finish(), context, link, options_.evaluate_timeout, &hint);
    // Results are delivered only once: the call is restarted only if none has been delivered.
    if (status.ok() || next > 0 || !retries.Again(hint, *link)) return status;
  }
}

absl::StatusOr<std::vector<v1::NodeStatus>> JobClient::ListNodes() {
  CAIRN_ASSIGN_OR_RETURN(auto response,
                         connection_->Call(&v1::JobService::Stub::ListNodes, v1::ListNodesRequest(), options_.timeout));
  return std::vector<v1::NodeStatus>(response.nodes().begin(), response.nodes().end());
}

absl::StatusOr<v1::NodeStatus> JobClient::DrainNode(const std::string& name, bool undo) {
  v1::DrainNodeRequest request;
  request.set_name(name);
  request.set_undo(undo);
  return connection_->Call(&v1::JobService::Stub::DrainNode, request, options_.timeout);
}

absl::StatusOr<v1::ListEventsResponse> JobClient::ListEvents(const v1::ListEventsRequest& request) {
  return connection_->Call(&v1::JobService::Stub::ListEvents, request, options_.timeout);
}

absl::StatusOr<v1::ReadLogResponse> JobClient::ReadLog(const v1::ReadLogRequest& request) {
  return connection_->Call(&v1::JobService::Stub::ReadLog, request, options_.timeout);
}

absl::StatusOr<v1::StartTraceResponse> JobClient::StartTrace(const v1::StartTraceRequest& request) {
  return connection_->Call(&v1::JobService::Stub::StartTrace, request, options_.timeout);
}

absl::StatusOr<v1::ReadTraceResponse> JobClient::ReadTrace(const v1::ReadTraceRequest& request) {
  return connection_->Call(&v1::JobService::Stub::ReadTrace, request, options_.timeout);
}

absl::Status JobClient::EndTrace(uint64_t trace_id) {
  v1::EndTraceRequest request;
  request.set_trace_id(trace_id);
  return connection_->Call(&v1::JobService::Stub::EndTrace, request, options_.timeout).status();
}

absl::StatusOr<v1::CreateTokenResponse> JobClient::CreateToken(const v1::CreateTokenRequest& request) {
  return connection_->Call(&v1::TokenService::Stub::CreateToken, request, options_.timeout);
}

absl::StatusOr<v1::ListTokensResponse> JobClient::ListTokens() {
  return connection_->Call(&v1::TokenService::Stub::ListTokens, v1::ListTokensRequest(), options_.timeout);
}

absl::StatusOr<v1::Token> JobClient::RevokeToken(const std::string& id) {
  v1::RevokeTokenRequest request;
  request.set_id(id);
  return connection_->Call(&v1::TokenService::Stub::RevokeToken, request, options_.timeout);
}

absl::StatusOr<v1::Identity> JobClient::Identify() {
  return connection_->Call(&v1::TokenService::Stub::Identify, v1::IdentifyRequest(), options_.timeout);
}

absl::Status JobClient::Watch(const JobRef& job, const WatchCallbacks& callbacks) {
  v1::GetJobRequest request = ToRequest(job);
  Backoff backoff(kBackoff, RandomBits());
  RealClock clock;  // monotonic: setting the wall clock does not end a watch
  absl::Time last_heard = clock.Now();
  int redirects = 0;  // consecutive ones
  while (true) {
    CAIRN_ASSIGN_OR_RETURN(const auto link, connection_->Get());
    grpc::ClientContext context;
    connection_->Prepare(&context, kWatchStreamMax);
    const auto reader = link->stub->WatchJob(&context, request);
    v1::JobStatus status;
    bool heard = false, final = false;
    while (reader->Read(&status)) {
      heard = true;
      final = IsFinal(status.state());
      // From here on watch this very job, even if a newer one has the same name.
      request.clear_name();
      request.set_job_id(status.job_id());
      if (!callbacks.on_status(status)) {
        context.TryCancel();
        reader->Finish();
        return absl::OkStatus();
      }
    }
    Connection::Hint hint;
    const grpc::Status finish = reader->Finish();
    const absl::Status end = connection_->ToStatus(finish, context, link, kWatchStreamMax, &hint);
    if (final) return absl::OkStatus();
    redirects = hint.at_once ? redirects + 1 : 0;
    if (redirects > 0 && redirects <= kRedirectsInARow) continue;
    const absl::Time now = clock.Now();
    if (heard) {
      last_heard = now;
      backoff.Reset();
      if (absl::IsDeadlineExceeded(end)) continue;  // our own deadline for a stream that is healthy
    }
    const bool no_place = !heard && absl::IsResourceExhausted(end);  // until another watch ends
    if (!end.ok() && !IsTransient(end) && !no_place) return end;
    if (now - last_heard > options_.reconnect_max) {
      return end.ok() ? absl::UnavailableError("the coordinator keeps ending the watch before the job ends") : end;
    }
    if (callbacks.on_interrupted && !end.ok()) callbacks.on_interrupted(end);
    absl::SleepFor(backoff.Next());
  }
}

}  // namespace cairn
