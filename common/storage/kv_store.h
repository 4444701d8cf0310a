// KvStore: an ordered key-value store with atomic batches. RocksDB in daemons, memory in tests and the simulator.
//
// Thread-safe. Invariants: 1. A batch is applied whole or not at all, also across a crash. 2. A batch confirmed by
// Write(sync = true) survives power loss; with sync = false it survives a kill of the process. 3. After a Write that
// failed every Write fails, with the same error: nothing is confirmed that may have been lost with it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

class KvBatch {
 public:
  // The value is `head` followed by `body`; buffers are kept alive, not copied.
  struct PutOp {
    std::string key;
    std::string head;
    Buffer body;
  };
  struct DeleteOp {
    std::string key;
  };
  struct DeleteRangeOp {  // [begin, end)
    std::string begin, end;
  };
  using Op = std::variant<PutOp, DeleteOp, DeleteRangeOp>;

  void Put(std::string key, std::string head, Buffer body = {}) {
    ops_.push_back(PutOp{std::move(key), std::move(head), std::move(body)});
  }
  void Delete(std::string key) { ops_.push_back(DeleteOp{std::move(key)}); }
  void DeleteRange(std::string begin, std::string end) {
    ops_.push_back(DeleteRangeOp{std::move(begin), std::move(end)});
  }
  // Nobody waits for this batch: it may take longer, so that its large values do not delay other batches.
  void set_background() { background_ = true; }
  bool background() const { return background_; }
  // Also, its values live long: they are stored apart from short-lived ones, which would leave holes between
  // them.
  void set_lasting() { background_ = lasting_ = true; }
  bool lasting() const { return lasting_; }
  const std::vector<Op>& ops() const { return ops_; }
  bool empty() const { return ops_.empty(); }

 private:
  std::vector<Op> ops_;
  bool background_ = false, lasting_ = false;
};

class KvStore {
 public:
  virtual ~KvStore() = default;
  virtual absl::StatusOr<std::optional<std::string>> Get(std::string_view key) = 0;
  virtual absl::Status Write(const KvBatch& batch, bool sync) = 0;
  // Calls fn for the keys with the prefix, in order, until it returns false. The views are valid during the call.
  virtual absl::Status Scan(std::string_view prefix,
                            const std::function<bool(std::string_view key, std::string_view value)>& fn) = 0;
  // Reclaims the space of deleted or replaced values under the prefix now; otherwise the store does so some time later.
  // Reads and writes may continue meanwhile.
  virtual absl::Status GiveBackSpace(std::string_view) { return absl::OkStatus(); }
};

std::unique_ptr<KvStore> NewMemoryKvStore();
// Called once, by the thread whose write is the first to fail.
using StoreFailed = std::function<void(const absl::Status&)>;
// Creates the directory if it is missing. Errors name it: FAILED_PRECONDITION (another process has it open),
// PERMISSION_DENIED, DATA_LOSS (corrupt).
absl::StatusOr<std::unique_ptr<KvStore>> OpenRocksDbKvStore(const std::string& directory, StoreFailed on_failed = {});

}  // namespace cairn
