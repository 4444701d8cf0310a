#include "coordinator/store/election.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/rpc/address.h"

namespace cairn {
namespace {

// Messages may still be in transit to a peer for this long after our clock says that the lease is over.
constexpr absl::Duration kMargin = absl::Milliseconds(200);
constexpr absl::Duration kCallTimeout = absl::Seconds(2);
constexpr absl::Duration kRevokeTimeout = absl::Seconds(1);
constexpr absl::Duration kRetryWait = absl::Milliseconds(100);

etcdserverpb::RangeRequest ReadKey(const std::string& key) {
  etcdserverpb::RangeRequest request;
  request.set_key(key);
  return request;
}

}  // namespace

absl::Status ElectionOptions::Validate() const {
  if (lease < absl::Seconds(2) || lease > absl::Seconds(60) || lease != absl::Trunc(lease, absl::Seconds(1))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("leader lease: %s is not in 2..60 whole seconds", absl::FormatDuration(lease)));
  }
  if (self.name().empty() || self.name().size() > 128 || !IsPlainText(self.name())) {
    return absl::InvalidArgumentError("the coordinator's name: give 1 to 128 characters without blanks");
  }
  return Annotate(ParseAddress(self.address()).status(), "the coordinator's address for others (--advertise)");
}

LeaderElection::LeaderElection(const ElectionOptions& options, EtcdClient* etcd, Clock* clock,
                               ElectionCallbacks callbacks)
    : options_(options),
      leader_key_(absl::StrCat(options.prefix, "/leader")),
      http_key_(absl::StrCat(leader_key_, "-http")),
      etcd_(etcd),
      clock_(clock),
      callbacks_(std::move(callbacks)),
      thread_([this] { Loop(); }) {}

LeaderElection::~LeaderElection() { Stop(); }

void LeaderElection::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LeaderElection::Resign(const LeaderTerm& term, const absl::Status& why, absl::Duration pause) {
  absl::MutexLock lock(&mutex_);
  if (term_ != term.create_revision || resigned_) return;
  resigned_ = why;
  pause_ = pause;
}

bool LeaderElection::Wait(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&stopping_), time);
  return !stopping_;
}

bool LeaderElection::WaitInTerm(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this] {
    mutex_.AssertHeld();
    return stopping_ || resigned_.has_value();
  };
  return !mutex_.AwaitWithTimeout(absl::Condition(&over), time);
}

void LeaderElection::Loop() {
  while (std::shared_ptr<LeaderTerm> term = Campaign()) {
    {
      absl::MutexLock lock(&mutex_);
      term_ = term->create_revision;
      resigned_.reset();
    }
    told_.reset();
    callbacks_.on_elected(term);
    const absl::Status why = Reign(*term);
    term->End();
    callbacks_.on_lost(*term, why);
    // Revoking the lease deletes the key, so that others need not wait for the lease to expire.
    const absl::Status revoked = etcd_->RevokeLease(term->lease, kRevokeTimeout);
    if (!revoked.ok() && !absl::IsNotFound(revoked))
      LogWarning("the leader key was not released, it expires with its lease: %s", revoked.message());
    absl::Duration pause;
    {
      absl::MutexLock lock(&mutex_);
      term_ = 0;
      pause = resigned_ ? pause_ : absl::ZeroDuration();
    }
    if (!Wait(pause)) return;
  }
}

void LeaderElection::Standby(const std::optional<SeenLeader>& leader, const absl::Status& etcd) {
  const std::string now =
      leader ? absl::StrCat(leader->record.SerializeAsString(), leader->http) : absl::StrCat("?", etcd.ok());
  if (std::exchange(told_, now) != now) callbacks_.on_standby(leader, etcd);
}

// Returns the term that was won, or null after Stop.
std::shared_ptr<LeaderTerm> LeaderElection::Campaign() {
  do {
    etcdserverpb::RangeRequest both = ReadKey(leader_key_);
    both.set_range_end(http_key_ + '\0');
    const auto read = etcd_->Range(both, kCallTimeout);
    if (!read.ok()) {
      Standby(std::nullopt, read.status());
    } else if (read->kvs_size() > 0 && read->kvs(0).key() == leader_key_) {
      Standby(LeaderOf(*read, http_key_), absl::OkStatus());
    } else if (std::shared_ptr<LeaderTerm> term = TryToLead()) {
      return term;
    }
  } while (Wait(options_.poll_interval));
  return nullptr;
}

// Null: another coordinator won, or etcd does not answer.
std::shared_ptr<LeaderTerm> LeaderElection::TryToLead() {
  const absl::Time asked = clock_->Now();
  const auto lease = etcd_->GrantLease(options_.lease, kCallTimeout);
  if (!lease.ok()) {
    Standby(std::nullopt, lease.status());
    return nullptr;
  }
  etcdserverpb::TxnRequest request;
  etcdserverpb::Compare& vacant = *request.add_compare();
  vacant.set_target(1);  // CREATE
  vacant.set_key(leader_key_);
  vacant.set_create_revision(0);
  etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(leader_key_);
  put.set_value(options_.self.SerializeAsString());
  put.set_lease(lease->id);
  etcdserverpb::PutRequest& put_http = *request.add_success()->mutable_request_put();
  put_http.set_key(http_key_);
  put_http.set_value(options_.http);
  put_http.set_lease(lease->id);
  *request.add_failure()->mutable_request_range() = ReadKey(leader_key_);
  const auto done = etcd_->Txn(request, kCallTimeout);
  int64_t create_revision = 0;
  if (done.ok() && done->succeeded()) {
    create_revision = done->header().revision();
  } else if (done.ok() && done->responses_size() == 1 && done->responses(0).response_range().kvs_size() == 1) {
    // It is ours if an earlier attempt was carried out and its answer was lost.
    const etcdserverpb::KeyValue& kv = done->responses(0).response_range().kvs(0);
    if (kv.lease() == lease->id) create_revision = kv.create_revision();
  }
  if (create_revision > 0) {
    auto term = std::make_shared<LeaderTerm>(leader_key_, create_revision, lease->id, clock_);
    term->RenewUntil(asked + lease->ttl - kMargin);
    return term;
  }
  if (!done.ok()) Standby(std::nullopt, done.status());
  if (const absl::Status revoked = etcd_->RevokeLease(lease->id, kRevokeTimeout); !revoked.ok()) {
    LogDebug("an unused lease was not revoked, it will expire: %s", revoked.message());
  }
  return nullptr;
}

// Runs until the term is over. Returns the reason.
absl::Status LeaderElection::Reign(LeaderTerm& term) {
  const absl::Duration interval = options_.lease / 3;
  absl::Status last = absl::OkStatus();
  absl::Duration wait = interval;
  while (true) {
    if (!WaitInTerm(std::min(wait, std::max(absl::ZeroDuration(), term.Left())))) {
      absl::MutexLock lock(&mutex_);
      return resigned_ ? *resigned_ : absl::UnavailableError("the coordinator is stopping");
    }
    const absl::Time asked = clock_->Now();
    if (!term.Valid()) {
      return absl::UnavailableError(
          absl::StrCat("its lease was not renewed in time", last.ok() ? "" : ": ", last.message()));
    }
    const absl::StatusOr<absl::Duration> ttl = etcd_->KeepAlive(term.lease, std::min(interval, term.Left()));
    if (absl::IsNotFound(ttl.status())) return ttl.status();
    last = ttl.status();
    if (!ttl.ok()) {
      wait = kRetryWait;
      continue;
    }
    // Not longer than we asked for: etcd may count a longer lease, but others may not know of it.
    if (term.Valid()) term.RenewUntil(asked + std::min(*ttl, options_.lease * 2) - kMargin);
    CAIRN_RETURN_IF_ERROR(CheckKey(term));
    wait = interval;
  }
}

// The lease is alive; but a user may have deleted the key.
absl::Status LeaderElection::CheckKey(const LeaderTerm& term) {
  const auto read =
      etcd_->Range(ReadKey(leader_key_), std::min(options_.lease / 3, std::max(absl::ZeroDuration(), term.Left())));
  if (!read.ok()) return absl::OkStatus();  // the next renewal will tell
  if (read->kvs_size() == 1 && read->kvs(0).create_revision() == term.create_revision) return absl::OkStatus();
  return absl::AbortedError("its leader key in etcd was deleted or replaced");
}

}  // namespace cairn
