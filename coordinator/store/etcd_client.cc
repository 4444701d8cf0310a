#include "coordinator/store/etcd_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/rpc/byte_buffer.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/daemon.h"
#include "coordinator/core/limits.h"
#include "etcd/rpc.grpc.pb.h"

namespace cairn {
namespace {

// One page of a scan: see EtcdStore.

ChannelOptions Options() {
  ChannelOptions options;
  // etcd rejects clients that ping more often than every 5 s; the timeouts of calls find dead members sooner.
  options.keepalive_interval = absl::Seconds(10);
  options.keepalive_timeout = absl::Seconds(5);
  options.connect_timeout = absl::Seconds(1);
  options.receive_bytes_max = kEtcdAnswerBytesMax;
  return options;
}

// Whether another member, or the same one later, may answer. Errors with other codes are permanent.
bool IsTransient(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:  // a member that shuts down cancels its calls; this client never does
      return true;
    default: return false;
  }
}

absl::Status Explain(const char* what, const grpc::Status& status) {
  std::string text = absl::StrFormat("etcd refuses %s: %s", what, status.error_message());
  if (absl::StrContains(status.error_message(), "database space exceeded")) {
    absl::StrAppend(&text,
                    "; compact and defragment it (etcdctl compact, defrag, alarm disarm), and run it with "
                    "--auto-compaction-retention");
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), text);
}

}  // namespace

absl::StatusOr<EtcdAddress> EtcdAddress::Parse(const std::string& text) {
  const auto wrong = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\": ", why, "; expected etcd://HOST:PORT,HOST:PORT/PREFIX"));
  };
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "etcd://")) return wrong("it does not begin with etcd://");
  EtcdAddress address;
  const size_t slash = rest.find('/');
  for (absl::string_view endpoint : absl::StrSplit(rest.substr(0, slash), ',')) {
    const absl::StatusOr<Address> parsed = ParseAddress(std::string(endpoint));
    if (!parsed.ok()) return wrong(parsed.status().message());
    address.endpoints.emplace_back(endpoint);
  }
  if (address.endpoints.size() > kEtcdEndpointsMax) {
    return wrong(absl::StrCat("more than ", kEtcdEndpointsMax, " members"));
  }
  if (slash == absl::string_view::npos) return address;
  absl::string_view prefix = rest.substr(slash + 1);
  while (absl::ConsumeSuffix(&prefix, "/")) {
  }
  if (prefix.empty()) return address;
  if (prefix[0] == '/' || prefix.size() > 200) return wrong("the prefix begins with a slash or has over 200 bytes");
  address.prefix = std::string(prefix);
  return address;
}

struct EtcdClient::Member {
  std::string endpoint;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<etcdserverpb::KV::Stub> kv;
  std::unique_ptr<etcdserverpb::Lease::Stub> lease;
};

EtcdClient::EtcdClient(std::vector<std::string> endpoints, absl::Duration attempt_timeout)
    : endpoints_(std::move(endpoints)),
      attempt_timeout_(attempt_timeout),
      // Coordinators that start together begin with different members.
      next_(RandomBits() % endpoints_.size()),
      backoff_({.initial = absl::Milliseconds(20), .max = absl::Milliseconds(500)}, RandomBits()) {}

EtcdClient::~EtcdClient() = default;

std::shared_ptr<EtcdClient::Member> EtcdClient::Current() {
  absl::MutexLock lock(&mutex_);
  if (member_ == nullptr) {
    // Uses a new channel after each failure, since gRPC's own back-off is longer.
    auto member = std::make_shared<Member>();
    member->endpoint = endpoints_[next_];
    member->channel = *CreateChannel(member->endpoint, Options());  // was parsed before
    member->kv = etcdserverpb::KV::NewStub(member->channel);
    member->lease = etcdserverpb::Lease::NewStub(member->channel);
    member_ = std::move(member);
  }
  return member_;
}

void EtcdClient::Failed(const std::shared_ptr<Member>& member) {
  absl::MutexLock lock(&mutex_);
  if (member_ != member) return;  // another thread has already replaced it
  member_ = nullptr;
  next_ = (next_ + 1) % endpoints_.size();
}

absl::Status EtcdClient::Call(const char* what, absl::Duration timeout, const Attempt& attempt) {
  const absl::Time deadline = clock_.Now() + timeout;
  std::string reason = "no time was left";
  while (true) {
    const absl::Duration left = deadline - clock_.Now();
    if (left <= absl::ZeroDuration()) break;
    const std::shared_ptr<Member> member = Current();
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + std::min(left, attempt_timeout_)));
    const grpc::Status status = attempt(*member, &context);
    if (status.ok()) {
      absl::MutexLock lock(&mutex_);
      backoff_.Reset();
      return absl::OkStatus();
    }
    if (!IsTransient(status)) return Explain(what, status);
    reason = absl::StrCat(member->endpoint, ": ", status.error_message(), TlsHint(status.error_message()));
    Failed(member);
    absl::Duration wait;
    {
      absl::MutexLock lock(&mutex_);
      wait = backoff_.Next();
    }
    absl::SleepFor(std::max(absl::ZeroDuration(), std::min(wait, deadline - clock_.Now())));
  }
  return absl::UnavailableError(absl::StrFormat("etcd at %s does not answer %s within %s (%s)",
                                                absl::StrJoin(endpoints_, ","), what, absl::FormatDuration(timeout),
                                                reason));
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(const etcdserverpb::RangeRequest& request,
                                                              absl::Duration timeout) {
  etcdserverpb::RangeResponse response;
  CAIRN_RETURN_IF_ERROR(Call("a read", timeout, [&](Member& member, grpc::ClientContext* context) {
    response.Clear();
    return member.kv->Range(context, request, &response);
  }));
  return response;
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(const etcdserverpb::TxnRequest& request,
                                                          absl::Duration timeout) {
  etcdserverpb::TxnResponse response;
  CAIRN_RETURN_IF_ERROR(Call("a write", timeout, [&](Member& member, grpc::ClientContext* context) {
    response.Clear();
    return member.kv->Txn(context, request, &response);
  }));
  return response;
}

absl::StatusOr<EtcdClient::Grant> EtcdClient::GrantLease(absl::Duration ttl, absl::Duration timeout) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(std::max<int64_t>(1, absl::ToInt64Seconds(ttl)));
  etcdserverpb::LeaseGrantResponse response;
  CAIRN_RETURN_IF_ERROR(Call("a lease", timeout, [&](Member& member, grpc::ClientContext* context) {
    response.Clear();
    return member.lease->LeaseGrant(context, request, &response);
  }));
  if (response.id() == 0 || response.ttl() <= 0 || absl::Seconds(response.ttl()) > kEtcdLeaseTtlMax) {
    return absl::InternalError(absl::StrFormat("etcd granted an invalid lease: id %d for %d s%s%s", response.id(),
                                               response.ttl(), response.error().empty() ? "" : ": ", response.error()));
  }
  return Grant{response.id(), absl::Seconds(response.ttl())};
}

absl::StatusOr<absl::Duration> EtcdClient::KeepAlive(int64_t lease, absl::Duration timeout) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseKeepAliveResponse response;
  // Uses a separate stream for each renewal, so that its deadline applies whatever the member does.
  CAIRN_RETURN_IF_ERROR(Call("the lease's renewal", timeout, [&](Member& member, grpc::ClientContext* context) {
    response.Clear();
    const auto stream = member.lease->LeaseKeepAlive(context);
    if (stream->Write(request) && stream->Read(&response)) {
      context->TryCancel();
      stream->Finish();
      return grpc::Status::OK;
    }
    const grpc::Status status = stream->Finish();
    return status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream ended without an answer") : status;
  }));
  if (response.id() != lease || response.ttl() <= 0) {
    return absl::NotFoundError(absl::StrFormat("etcd's lease %x is gone", lease));
  }
  return std::min(absl::Seconds(response.ttl()), kEtcdLeaseTtlMax);
}

absl::Status EtcdClient::RevokeLease(int64_t lease, absl::Duration timeout) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseRevokeResponse response;
  return Call("the lease's end", timeout, [&](Member& member, grpc::ClientContext* context) {
    return member.lease->LeaseRevoke(context, request, &response);
  });
}

}  // namespace cairn
