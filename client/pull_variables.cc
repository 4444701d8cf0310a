#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/limits.h"
#include "client/parameter_client.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/rpc/backoff.h"
#include "common/rpc/daemon.h"

namespace cairn {
namespace {

// One PullVariables call. Replies arrive on gRPC threads; each writes its own range of `values`.
class Puller {
 public:
  Puller(uint64_t job_id, const std::vector<v1::Route>& routes, absl::Duration timeout)
      : job_id_(job_id), deadline_(clock_.Now() + timeout), backoff_({}, RandomBits()) {
    for (const v1::Route& route : routes) parts_.push_back(Part{route});
  }

  absl::StatusOr<PulledVariables> Run(bool consistent, bool moves_on) {
    CAIRN_RETURN_IF_ERROR(Prepare());
    absl::Status status = PullAll(std::nullopt);
    while (consistent && status.ok() && Lowest() != Highest()) {
      // The partitions are one step apart. A job that stopped in the middle of a step (it was cancelled) never reaches
      // the higher version, but its ps keep the previous one. The ps of a running job soon forget the previous version,
      // but reach the higher one.
      status = absl::FailedPreconditionError("further apart");
      if (Lowest() + 1 == Highest()) status = PullAll(Lowest());
      if (!moves_on) {
        if (status.ok()) continue;
        const std::string versions = VersionsText();
        status = absl::IsFailedPrecondition(status)
                     ? absl::FailedPreconditionError(absl::StrCat("the partitions are not at one version: ", versions))
                     : Annotate(status, versions);
        break;
      }
      if (absl::IsFailedPrecondition(status)) status = PullAll(Highest());
      if (absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) status = Annotate(status, VersionsText());
      if (absl::IsFailedPrecondition(status)) status = PullAll(std::nullopt);  // the job has advanced: start over
    }
    connections_.clear();  // waits for the callbacks
    CAIRN_RETURN_IF_ERROR(status);
    std::vector<uint64_t> versions;
    for (const Part& part : parts_) versions.push_back(part.version);
    return PulledVariables{std::move(values_), Lowest(), Highest(), std::move(versions)};
  }

 private:
  struct Part {
    v1::Route route;
    uint64_t version = 0;
    bool pulled = false;
    absl::Status status;
  };

  absl::Status Prepare() {
    if (parts_.empty()) return absl::InvalidArgumentError("no routes: the job has no partitions yet");
    uint64_t size = 0;
    for (const Part& part : parts_) {
      const v1::PartitionRange& range = part.route.range();
      if (range.begin() >= range.end() || range.end() > static_cast<uint64_t>(kParametersMax) ||
          (range.end() - range.begin()) * 4 > static_cast<uint64_t>(kPartitionBytesMax)) {
        return absl::InvalidArgumentError(
            absl::StrFormat("route to partition %d: range [%d, %d)", range.partition(), range.begin(), range.end()));
      }
      size = std::max(size, range.end());
      connections_.try_emplace(part.route.address(), nullptr);
    }
    for (auto& [address, connection] : connections_) {
      connection = std::make_unique<PsConnection>(address, PsConnectionOptions{});
    }
    values_ = Buffer::Zeros(size * 4);
    return absl::OkStatus();
  }

  // Pulls every partition that is not at `version` yet (unset: all, at their present versions).
  absl::Status PullAll(std::optional<uint64_t> version) {
    for (Part& part : parts_) part.pulled = version.has_value() && part.version == *version;
    absl::Time refused_since = absl::InfiniteFuture();
    while (true) {
      const auto missing = std::count_if(parts_.begin(), parts_.end(), NotPulled);
      CAIRN_RETURN_IF_ERROR(PullMissing(version));
      if (std::count_if(parts_.begin(), parts_.end(), NotPulled) < missing) refused_since = absl::InfiniteFuture();
      absl::Status transient;
      for (const Part& part : parts_) {
        if (part.pulled) continue;
        if (!IsRetryable(part.status)) return part.status;
        transient = part.status;
      }
      if (transient.ok()) return transient;
      const absl::Time now = clock_.Now();
      refused_since = std::min(refused_since, now);
      const absl::Duration wait = backoff_.Next();
      if (now + wait >= std::min(deadline_, refused_since + kRefusedMax)) return transient;
      absl::SleepFor(wait);
    }
  }

  absl::Status PullMissing(std::optional<uint64_t> version) {
    int sent = 0;
    {
      absl::MutexLock lock(&mutex_);
      answered_ = 0;
    }
    for (Part& part : parts_) {
      if (part.pulled) continue;
      Frame pull;
      pull.kind = v1::ExchangeFrame::PULL;
      pull.job = JobId(job_id_);
      pull.partition = PartitionId(part.route.range().partition());
      pull.want_version = version;
      pull.reply_dtype = v1::FLOAT32;
      connections_[part.route.address()]->Send(std::move(pull), [this, &part](absl::StatusOr<Frame> reply) {
        absl::Status status = reply.ok() ? Keep(part, *reply) : reply.status();
        absl::MutexLock lock(&mutex_);
        part.status = Annotate(
            status, absl::StrFormat("ps \"%s\", partition %d", part.route.ps(), part.route.range().partition()));
        part.pulled = status.ok();
        ++answered_;
      });
      ++sent;
    }
    absl::MutexLock lock(&mutex_);
    const auto all_answered = [&] { return answered_ == sent; };
    if (mutex_.AwaitWithTimeout(absl::Condition(&all_answered), deadline_ - clock_.Now())) return absl::OkStatus();
    std::string silent;
    for (const Part& part : parts_) {
      if (!part.pulled) silent = part.route.ps();
    }
    return absl::DeadlineExceededError(
        absl::StrFormat("ps \"%s\" (and %d partitions in all) did not answer in time", silent, sent - answered_));
  }

  absl::Status Keep(Part& part, const Frame& reply) {
    const v1::PartitionRange& range = part.route.range();
    const size_t bytes = (range.end() - range.begin()) * 4;
    if (reply.dtype != v1::FLOAT32 || reply.payload.size() != bytes) {
      return absl::InternalError(
          absl::StrFormat("%d bytes of dtype %d, not %d bytes of FLOAT32", reply.payload.size(), reply.dtype, bytes));
    }
    std::memcpy(values_.mutable_data() + range.begin() * 4, reply.payload.data(), bytes);
    part.version = reply.version;
    return absl::OkStatus();
  }

  // The versions in the latest answers.
  std::string VersionsText() const {
    std::map<std::pair<std::string, uint64_t>, std::vector<uint32_t>> partitions;  // by ps and version
    for (const Part& part : parts_)
      partitions[{part.route.ps(), part.version}].push_back(part.route.range().partition());
    std::vector<std::string> texts;
    for (const auto& [key, numbers] : partitions) {
      if (texts.size() == kVersionTextsMax) {
        texts.push_back("...");
        break;
      }
      const std::vector<uint32_t> some(numbers.begin(), numbers.begin() + std::min(numbers.size(), kVersionTextsMax));
      texts.push_back(absl::StrFormat("ps \"%s\" has partition%s %s%s at version %d", key.first,
                                      numbers.size() > 1 ? "s" : "", absl::StrJoin(some, ", "),
                                      numbers.size() > some.size() ? ", ..." : "", key.second));
    }
    return absl::StrJoin(texts, "; ");
  }
  uint64_t Lowest() const { return std::min_element(parts_.begin(), parts_.end(), Less)->version; }
  uint64_t Highest() const { return std::max_element(parts_.begin(), parts_.end(), Less)->version; }
  static bool NotPulled(const Part& part) { return !part.pulled; }
  static bool Less(const Part& a, const Part& b) { return a.version < b.version; }

  RealClock clock_;  // monotonic: setting the wall clock does not affect deadlines
  const uint64_t job_id_;
  const absl::Time deadline_;
  Backoff backoff_;
  Buffer values_;
  absl::Mutex mutex_;
  int answered_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Part> parts_;  // callbacks write its elements until all have answered
  std::map<std::string, std::unique_ptr<PsConnection>> connections_;  // last: its destructor waits for the callbacks
};

}  // namespace

absl::StatusOr<PulledVariables> PullVariables(uint64_t job_id, const std::vector<v1::Route>& routes, bool consistent,
                                              absl::Duration timeout, bool moves_on) {
  return Puller(job_id, routes, timeout).Run(consistent, moves_on);
}

}  // namespace cairn
