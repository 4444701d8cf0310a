// KvStore: ordered keys to bytes, atomic batches. RocksDB in daemons, memory in tests and the simulator.
//
// Thread-safe. Invariants: 1. A batch is applied whole or not at all, also across a crash. 2. What Write(sync = true)
// confirmed survives power loss; sync = false survives the process being killed.
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
  // The value is the parts one after another; buffers are kept alive, not copied.
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
  // Nobody waits for this batch: its large values delay no other batch, and it may take longer.
  void set_background() { background_ = true; }
  bool background() const { return background_; }
  // The same, and its values stay: they are kept apart from those that are soon replaced, which would leave room
  // between them.
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
  // Keys with the prefix in order, until fn returns false. The views live as long as the call of fn.
  virtual absl::Status Scan(std::string_view prefix,
                            const std::function<bool(std::string_view key, std::string_view value)>& fn) = 0;
  // Keys with the prefix that were deleted or replaced may take up room until the store gets to them: it does so now.
  // Others may read and write meanwhile.
  virtual absl::Status GiveBackSpace(std::string_view) { return absl::OkStatus(); }
};

std::unique_ptr<KvStore> NewMemoryKvStore();
// Creates the directory where it is missing. Errors name it: FAILED_PRECONDITION (another process has it open),
// PERMISSION_DENIED, DATA_LOSS (corrupt).
absl::StatusOr<std::unique_ptr<KvStore>> OpenRocksDbKvStore(const std::string& directory);

}  // namespace cairn
