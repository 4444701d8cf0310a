// DecodedTable: decodes examples on demand and caches them: in memory up to data.cache_mib, then in a file in
// data.cache_dir, if set.
//
// Thread-safe. Invariants:
//   1. Read returns the same numbers whether or not they are cached.
//   2. A cached example is not decoded again, unless its bytes in the file were altered (one warning).
//   3. All tables that share a CacheRoom together use at most its memory.
//   4. The file has no name: it disappears with the worker, however the worker ends, and no other process can use it.
//   5. A folder that is not writable, or a full disk, only causes a warning: what is already written stays, the rest is
//      decoded again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/data/table.h"

namespace cairn {

// An unnamed file that only grows. Thread-safe.
class SpillFile {
 public:
  static absl::StatusOr<std::unique_ptr<SpillFile>> Create(const std::string& dir);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Returns the offset of the data. After the first error every call fails.
  absl::StatusOr<uint64_t> Append(const void* data, size_t bytes);
  absl::Status ReadAt(uint64_t at, void* out, size_t bytes) const;
  const std::string& dir() const { return dir_; }

 private:
  SpillFile(std::string dir, int fd) : dir_(std::move(dir)), fd_(fd) {}
  const std::string dir_;
  const int fd_;
  std::atomic<uint64_t> end_{0};
  std::atomic<bool> full_{false};
};

// Cache space for decoded examples, shared by the splits of a data set.
class CacheRoom {
 public:
  // Sized by data.cache_mib and data.cache_dir. INVALID_ARGUMENT: cache_mib.
  static absl::StatusOr<std::shared_ptr<CacheRoom>> Make(const v1::Data& data);
  CacheRoom(int64_t memory_bytes, const std::string& dir);

  // Returns false if less than `bytes` is left.
  bool TakeMemory(int64_t bytes);
  void ReturnMemory(int64_t bytes) { memory_left_.fetch_add(bytes, std::memory_order_relaxed); }
  int64_t memory_left() const { return memory_left_.load(std::memory_order_relaxed); }
  SpillFile* file() { return file_.get(); }  // null: none
  // Logs one warning for all tables together.
  void Warn(const absl::Status& status);

 private:
  std::atomic<int64_t> memory_left_;
  std::unique_ptr<SpillFile> file_;
  std::atomic<bool> warned_{false};
};

class DecodedTable : public ExampleTable {
 public:
  DecodedTable(std::unique_ptr<ExampleSource> source, int64_t example_size, Element element,
               std::shared_ptr<CacheRoom> room);
  ~DecodedTable() override;

  int64_t size() const override { return source_->size(); }
  bool in_memory() const override { return false; }
  Element element() const override { return element_; }
  float Label(int64_t index) const override { return source_->Label(index); }
  std::string NameOf(int64_t index) const override { return source_->NameOf(index); }
  absl::Status Read(int64_t index, float* example, float* label) const override;
  absl::Status ReadBytes(int64_t index, uint8_t* example, float* label) const override;

 private:
  // The place of an example in the file.
  struct Place {
    static constexpr uint64_t kNowhere = 0, kBeingWritten = 1, kFirst = 2;  // then: kFirst + its offset
    std::atomic<uint64_t> at{kNowhere};
    uint64_t checksum = 0;  // written before `at`
  };

  // Passes the example's bytes, as the source decodes them, to `use`, from the cache or decoded.
  template <typename Use>
  absl::Status Visit(int64_t index, Use use) const;
  // Takes ownership of the bytes if there is memory for them.
  bool KeepInMemory(int64_t index, std::unique_ptr<uint8_t[]>& bytes) const;
  void KeepInFile(int64_t index, const uint8_t* bytes) const;
  bool ReadFromFile(int64_t index, uint8_t* bytes) const;

  const std::unique_ptr<ExampleSource> source_;
  const int64_t example_size_;
  const Element element_;
  const int64_t bytes_;  // of an example
  const std::shared_ptr<CacheRoom> room_;
  mutable std::vector<std::atomic<uint8_t*>> slots_;
  mutable std::vector<Place> places_;  // empty: no file
};

}  // namespace cairn
