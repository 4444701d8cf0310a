// EtcdStore: the coordinator's KvStore in etcd, for one term of leadership. A coordinator that no longer leads cannot
// write.
//
// Not thread-safe: the driver's executor owns it. Keys and values: proto/cairn/v1/etcd.proto. Invariants:
//   1. Every write is a transaction that compares the leader key's create revision with the term's own.
//   2. It also compares the guard key's revision with the one that the previous write left, and puts the guard. So a
//      duplicate that a slow member executes late changes nothing, and a write whose answer was lost can be retried:
//      the guard's value, a number used once, tells whether it was executed.
//   3. A batch is one transaction. Values that do not fit (etcd takes 1.5 MiB a request) are written before it as
//      chunks under an id of their own, to which the transaction then refers; chunks without a reference are deleted
//      when the next term begins.
//   4. After an error it is unknown whether the write happened: the store must be discarded, and a later term reads
//      everything again.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/etcd.pb.h"
#include "common/base/limits.h"
#include "common/storage/kv_store.h"
#include "coordinator/core/limits.h"
#include "coordinator/store/etcd_kv.h"
#include "coordinator/store/leader_term.h"

namespace cairn {

class EtcdStore : public KvStore {
 public:
  // etcd's default limits are 1.5 MiB a request and 128 operations a transaction.
  static constexpr size_t kChunkBytes = size_t{1} << 20;
  static_assert(kEtcdValueBytesMax > kControlMessageBytesMax, "a job, and what is known of it, fits");

  // etcd outlives the store.
  EtcdStore(EtcdKv* etcd, std::string prefix, std::shared_ptr<const LeaderTerm> term);

  // Errors: DATA_LOSS names the key; errors of EtcdKv.
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override;
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view key, std::string_view value)>& fn) override;
  // Errors: ABORTED, another coordinator leads, or the lease expired; INVALID_ARGUMENT, the batch is too large, or
  // deletes a range.
  absl::Status Write(const KvBatch& batch, bool sync) override;

  // Deletes chunks without a reference. Call after a Scan of everything.
  absl::Status DropOrphans();

 private:
  using Ops = std::vector<etcdserverpb::RequestOp>;
  // By key its last value, nullopt: deleted. etcd accepts each key only once in a transaction.
  using Changes = std::map<std::string, std::optional<std::string>>;

  static absl::StatusOr<Changes> ChangesOf(const KvBatch& batch);
  absl::Status Fenced(Ops ops);
  absl::StatusOr<int64_t> GuardRevision();
  absl::StatusOr<std::string> WriteChunks(std::string_view value);
  absl::StatusOr<std::string> Decode(std::string_view key, const std::string& stored);
  absl::StatusOr<etcdserverpb::RangeResponse> Page(const std::string& begin, const std::string& end, int limit,
                                                   bool keys_only);
  std::string StateKey(std::string_view key) const;
  std::string ChunkPrefix(std::string_view id) const;
  absl::Duration Timeout() const;

  EtcdKv* const etcd_;
  const std::string prefix_;
  const std::shared_ptr<const LeaderTerm> term_;
  std::optional<int64_t> guard_;                            // its revision after our last write; none: not read yet
  uint64_t writes_ = 0;                                     // of this term
  uint64_t chunked_values_ = 0;                             // of this term
  std::map<std::string, std::string, std::less<>> chunks_;  // key -> chunk id, of the values in chunks
};

}  // namespace cairn
