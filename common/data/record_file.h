// RecordFile: a file of TFRecords (common/base/crc32c.h has the frame) with random access to its records.
//
// Immutable and thread-safe after Open. Records are counted from 0. Invariants:
//   1. Open checks the length in every record's header; a file that ends within a record is rejected. The records'
//      contents are read only where `visit` does so.
//   2. Read verifies the record's checksum.
//   3. Memory: eight bytes per record, plus the decompressed contents of a gzip file, at most `unpacked_bytes_max`.
// Errors name the file and the record: DATA_LOSS (truncated or altered), RESOURCE_EXHAUSTED (too large), NOT_FOUND.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/data/byte_window.h"

namespace cairn {

class RecordFile {
 public:
  // A record's bytes are [begin, end) of the window. An error ends Open, which adds the file and the record to it.
  using Visitor = absl::FunctionRef<absl::Status(ByteWindow& window, uint64_t begin, uint64_t end)>;

  static absl::StatusOr<std::unique_ptr<const RecordFile>> Open(const std::string& path, int64_t unpacked_bytes_max,
                                                                Visitor visit);

  const std::string& path() const { return path_; }
  int64_t size() const { return static_cast<int64_t>(places_.size()) - 1; }
  // Returns the checked record: a view of *scratch, or of memory that lives as long as this object. record: in [0,
  // size()).
  absl::StatusOr<absl::string_view> Read(int64_t record, std::string* scratch) const;
  // Prefixes the status with "FILE: record 7: ".
  absl::Status Annotated(int64_t record, const absl::Status& status) const;
  int64_t memory_bytes() const { return static_cast<int64_t>(unpacked_.size()); }

 private:
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  absl::Status Scan(Visitor visit);

  const std::string path_;
  std::shared_ptr<const FileReader> file_;  // null: gzip, or there are too many open files
  std::string unpacked_;
  bool packed_ = false;
  std::vector<uint64_t> places_;  // offsets of the headers; the last is the end of the file
};

}  // namespace cairn
