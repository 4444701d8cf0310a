// KvStore on RocksDB, with the bodies of large values in a ValueLog next to it.
//
//   DIRECTORY/db/        RocksDB. A value in it is either
//     0 bytes                                         the value itself, or
//     1 segment:u64 offset:u64 size:u64 head-bytes    its head, with the body in the value log (integers little-endian)
//   DIRECTORY/values/    the value log
//
// The store fails stop: after the first write, body or sync that fails, every further Write returns that error until
// the directory is opened again. What the disk holds of a failed sync is not known, and a later one may succeed
// without it (value_log.h).
//
// A batch's bodies are written first, then the batch in one atomic RocksDB write. Writes that touch the same key must
// not run concurrently (each partition has one writer).
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <cstdarg>
#include <cstdio>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/words.h"
#include "common/storage/kv_store.h"
#include "common/storage/value_log.h"

namespace cairn {
namespace {

constexpr size_t kBodyBytesMin = size_t{8}
                                 << 10;  // smaller ones go to RocksDB: two writes would cost more than the copies
constexpr size_t kPlaceBytes = 1 + 3 * 8;

rocksdb::Slice ToSlice(std::string_view v) { return rocksdb::Slice(v.data(), v.size()); }
std::string_view ToView(const rocksdb::Slice& s) { return std::string_view(s.data(), s.size()); }

absl::Status ToStatus(const rocksdb::Status& s, const std::string& directory) {
  if (s.ok()) return absl::OkStatus();
  const std::string text = s.ToString();
  const auto message = [&](const char* what) { return absl::StrCat("store ", directory, ": ", what, " (", text, ")"); };
  if (s.IsCorruption())
    return absl::DataLossError(message("its files are damaged; restore it or start with an empty one"));
  if (s.IsNoSpace() || absl::StrContains(text, "File too large") || absl::StrContains(text, "Disk quota exceeded")) {
    return absl::ResourceExhaustedError(message("no space left on its disk"));
  }
  if (absl::StrContains(text, "Permission denied") || absl::StrContains(text, "Read-only file system")) {
    return absl::PermissionDeniedError(message("not ours to use"));
  }
  if (absl::StrContains(text, "While lock file") || absl::StrContains(text, "lock hold by current process")) {
    return absl::FailedPreconditionError(message("another process has it open"));
  }
  return absl::UnavailableError(message("input or output failed"));
}

// Redirects RocksDB's messages to our log. RocksDB's own log file, the default, would be on the same disk: once that is
// full, an assertion in the logger of RocksDB 7.8 ends the process.
class StoreLogger : public rocksdb::Logger {
 public:
  explicit StoreLogger(std::string directory)
      : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL), directory_(std::move(directory)) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list args) override {
    char text[1024];
    vsnprintf(text, sizeof(text), format, args);
    LogWarning("store %s: %s", directory_, absl::StripTrailingAsciiWhitespace(text));
  }

 private:
  const std::string directory_;
};

class NoRecovery : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status, bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

rocksdb::Options MakeOptions(const std::string& directory) {
  rocksdb::Options o;
  o.info_log = std::make_shared<StoreLogger>(directory);
  o.listeners.push_back(std::make_shared<NoRecovery>());
  o.create_if_missing = true;
  // RocksDB holds only keys and small values, so little memory is enough.
  o.write_buffer_size = size_t{4} << 20;
  o.max_write_buffer_number = 3;
  o.max_background_jobs = 2;
  o.max_total_wal_size = uint64_t{32} << 20;
  o.compression = rocksdb::kNoCompression;
  // A tail that a crash cut off was never confirmed. Damage before it is an error, not an early end of the log.
  o.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(size_t{4} << 20);
  o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return o;
}

struct Stored {
  std::optional<ValueLog::Place> place;
  std::string_view head;
};
std::optional<Stored> ParseStored(std::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  if (bytes[0] == 0) return Stored{std::nullopt, bytes.substr(1)};
  if (bytes[0] != 1 || bytes.size() < kPlaceBytes) return std::nullopt;
  return Stored{ValueLog::Place{WordAt(bytes, 1), WordAt(bytes, 9), WordAt(bytes, 17)}, bytes.substr(kPlaceBytes)};
}

class RocksDbKvStore : public KvStore {
 public:
  RocksDbKvStore(std::string directory, std::unique_ptr<rocksdb::DB> db, std::unique_ptr<ValueLog> values,
                 StoreFailed on_failed)
      : directory_(std::move(directory)),
        db_(std::move(db)),
        values_(std::move(values)),
        on_failed_(std::move(on_failed)) {}

  // Finds the places of all bodies; deletes files that hold none.
  absl::Status Load() {
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
    absl::MutexLock lock(&mutex_);
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      const std::optional<Stored> stored = ParseStored(ToView(it->value()));
      if (!stored) return Malformed();
      if (!stored->place) continue;
      places_.emplace(it->key().ToString(), *stored->place);
      CAIRN_RETURN_IF_ERROR(values_->Retain(*stored->place));
    }
    CAIRN_RETURN_IF_ERROR(ToStatus(it->status(), directory_));
    values_->Sweep();
    return absl::OkStatus();
  }

  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override {
    std::string bytes;
    const rocksdb::Status s = db_->Get(rocksdb::ReadOptions(), ToSlice(key), &bytes);
    if (s.IsNotFound()) return std::optional<std::string>();
    if (!s.ok()) return ToStatus(s, directory_);
    std::string value;
    CAIRN_RETURN_IF_ERROR(Resolve(bytes, &value));
    return std::optional<std::string>(std::move(value));
  }

  absl::Status Write(const KvBatch& batch, bool sync) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!failed_.ok()) return failed_;
    }
    std::vector<std::optional<ValueLog::Place>> written;  // indexed by operation
    absl::Status status = WriteBodies(batch, sync, written);
    if (status.ok()) status = WriteKeys(batch, sync, written);
    if (!status.ok()) {
      for (const auto& place : written) {
        if (place) values_->Release(*place);
      }
      return Fail(status);
    }
    for (const ValueLog::Place& place : Record(batch, written)) values_->Release(place);
    return absl::OkStatus();
  }

  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    rocksdb::ReadOptions options;
    options.fill_cache = false;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options));
    std::string value;
    for (it->Seek(ToSlice(prefix)); it->Valid() && it->key().starts_with(ToSlice(prefix)); it->Next()) {
      value.clear();
      CAIRN_RETURN_IF_ERROR(Resolve(ToView(it->value()), &value));
      if (!fn(ToView(it->key()), value)) break;
    }
    return ToStatus(it->status(), directory_);
  }

  absl::Status GiveBackSpace(std::string_view prefix) override {
    std::string end(prefix);
    while (!end.empty() && static_cast<uint8_t>(end.back()) == 0xff) end.pop_back();
    if (!end.empty()) ++end.back();
    values_->DropSpares();
    const rocksdb::Slice from = ToSlice(prefix), to = ToSlice(end);
    rocksdb::CompactRangeOptions options;
    options.exclusive_manual_compaction = false;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
    return ToStatus(db_->CompactRange(options, &from, end.empty() ? nullptr : &to), directory_);
  }

 private:
  absl::Status Malformed() const {
    return absl::DataLossError(
        absl::StrCat("store ", directory_, ": a value is malformed; restore it or start with an empty one"));
  }

  // Ends the store, if this is its first failure. Returns the first one.
  absl::Status Fail(const absl::Status& status) {
    absl::Status first;
    {
      absl::MutexLock lock(&mutex_);
      first = failed_;
      if (failed_.ok()) failed_ = status;
    }
    if (!first.ok()) return first;
    LogError("store %s: a write failed, so that nothing more is written to it: %s", directory_, status.message());
    if (on_failed_) on_failed_(status);
    return status;
  }

  absl::Status Resolve(std::string_view bytes, std::string* value) const {
    const std::optional<Stored> stored = ParseStored(bytes);
    if (!stored) return Malformed();
    value->append(stored->head);
    return stored->place ? values_->Read(*stored->place, value) : absl::OkStatus();
  }

  absl::Status WriteBodies(const KvBatch& batch, bool sync, std::vector<std::optional<ValueLog::Place>>& written) {
    ValueLog::Unsynced unsynced;
    const auto urgency = batch.lasting()      ? ValueLog::Urgency::kLasting
                         : batch.background() ? ValueLog::Urgency::kLater
                                              : ValueLog::Urgency::kNow;
    for (const KvBatch::Op& op : batch.ops()) {
      written.emplace_back();
      const auto* put = std::get_if<KvBatch::PutOp>(&op);
      if (put == nullptr || put->body.size() < kBodyBytesMin) continue;
      CAIRN_ASSIGN_OR_RETURN(written.back(), values_->Append(put->body.data(), put->body.size(), urgency, &unsynced));
    }
    return sync ? values_->Sync(unsynced) : absl::OkStatus();
  }

  absl::Status WriteKeys(const KvBatch& batch, bool sync, const std::vector<std::optional<ValueLog::Place>>& written) {
    rocksdb::WriteBatch out;
    for (size_t i = 0; i < batch.ops().size(); ++i) {
      rocksdb::Status s;
      if (const auto* put = std::get_if<KvBatch::PutOp>(&batch.ops()[i])) {
        s = out.Put(ToSlice(put->key), ToSlice(Encode(*put, written[i])));
      } else if (const auto* del = std::get_if<KvBatch::DeleteOp>(&batch.ops()[i])) {
        s = out.Delete(ToSlice(del->key));
      } else if (const auto* range = std::get_if<KvBatch::DeleteRangeOp>(&batch.ops()[i])) {
        if (range->begin < range->end) s = out.DeleteRange(ToSlice(range->begin), ToSlice(range->end));
      }
      if (!s.ok()) return ToStatus(s, directory_);
    }
    rocksdb::WriteOptions options;
    options.sync = sync;
    return ToStatus(db_->Write(options, &out), directory_);
  }

  static std::string Encode(const KvBatch::PutOp& put, const std::optional<ValueLog::Place>& place) {
    std::string out;
    if (place) {
      out.push_back(1);
      AppendWord(place->segment, &out);
      AppendWord(place->offset, &out);
      AppendWord(place->size, &out);
      out += put.head;
    } else {
      out.push_back(0);
      out += put.head;
      out.append(reinterpret_cast<const char*>(put.body.data()), put.body.size());
    }
    return out;
  }

  // Updates places_ after a confirmed batch; returns the bodies that are no longer referenced.
  std::vector<ValueLog::Place> Record(const KvBatch& batch,
                                      const std::vector<std::optional<ValueLog::Place>>& written) {
    std::vector<ValueLog::Place> dead;
    absl::MutexLock lock(&mutex_);
    const auto erase = [&](PlaceMap::iterator from, PlaceMap::iterator to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      for (auto it = from; it != to; ++it) dead.push_back(it->second);
      places_.erase(from, to);
    };
    for (size_t i = 0; i < batch.ops().size(); ++i) {
      if (const auto* put = std::get_if<KvBatch::PutOp>(&batch.ops()[i])) {
        if (auto it = places_.find(put->key); it != places_.end()) erase(it, std::next(it));
        if (written[i]) places_.emplace(put->key, *written[i]);
      } else if (const auto* del = std::get_if<KvBatch::DeleteOp>(&batch.ops()[i])) {
        if (auto it = places_.find(del->key); it != places_.end()) erase(it, std::next(it));
      } else if (const auto* range = std::get_if<KvBatch::DeleteRangeOp>(&batch.ops()[i])) {
        if (range->begin < range->end) erase(places_.lower_bound(range->begin), places_.lower_bound(range->end));
      }
    }
    return dead;
  }

  using PlaceMap = std::map<std::string, ValueLog::Place, std::less<>>;

  const std::string directory_;
  const std::unique_ptr<rocksdb::DB> db_;
  const std::unique_ptr<ValueLog> values_;
  const StoreFailed on_failed_;
  absl::Mutex mutex_;
  PlaceMap places_ ABSL_GUARDED_BY(mutex_);  // the place of each body, by key
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<KvStore>> OpenRocksDbKvStore(const std::string& directory, StoreFailed on_failed) {
  if (const absl::Status made = MakeFolders(directory + "/db"); !made.ok()) {
    const std::string message = absl::StrCat("store ", directory, ": ", made.message());
    if (absl::IsPermissionDenied(made)) return absl::PermissionDeniedError(message);
    return absl::FailedPreconditionError(message);
  }
  rocksdb::DB* opened = nullptr;
  const rocksdb::Status s = rocksdb::DB::Open(MakeOptions(directory), directory + "/db", &opened);
  if (!s.ok()) return ToStatus(s, directory);
  std::unique_ptr<rocksdb::DB> db(opened);  // its lock keeps other processes away from the values too
  CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<ValueLog> values, ValueLog::Open(directory + "/values"));
  auto store = std::make_unique<RocksDbKvStore>(directory, std::move(db), std::move(values), std::move(on_failed));
  CAIRN_RETURN_IF_ERROR(store->Load());
  return store;
}

}  // namespace cairn
