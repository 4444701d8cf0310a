// RecordFile: a file of TFRecords (common/base/crc32c.h has the frame) with random access to its records.
//
// Immutable and thread-safe after Open. Records are counted from 0. Invariants:
//   1. Open looks at every record's header and checks its length; a file that ends within a record is refused. What
//      stands in the records is read where `visit` asks for it.
//   2. Read checks the record's own checksum.
//   3. Memory: eight bytes a record, and all that comes out of a gzip file, at most `unpacked_bytes_max`.
// Errors name the file and the record: DATA_LOSS (torn, altered), RESOURCE_EXHAUSTED (more than fits), NOT_FOUND.
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
  // A record's bytes are [begin, end) of the window. An error is annotated with the file and the record, and ends Open.
  using Visitor = absl::FunctionRef<absl::Status(ByteWindow& window, uint64_t begin, uint64_t end)>;

  static absl::StatusOr<std::unique_ptr<const RecordFile>> Open(const std::string& path, int64_t unpacked_bytes_max,
                                                                Visitor visit);

  const std::string& path() const { return path_; }
  int64_t size() const { return static_cast<int64_t>(places_.size()) - 1; }
  // The checked record; a view of *scratch or of memory that lives as long as this. record is in [0, size()).
  absl::StatusOr<absl::string_view> Read(int64_t record, std::string* scratch) const;
  // Before `message`: "FILE: record 7: ".
  absl::Status Annotated(int64_t record, const absl::Status& status) const;
  int64_t memory_bytes() const { return static_cast<int64_t>(unpacked_.size()); }

 private:
  explicit RecordFile(std::string path) : path_(std::move(path)) {}
  absl::Status Scan(Visitor visit);

  const std::string path_;
  std::shared_ptr<const FileReader> file_;  // null: gzip, or one of too many files to hold open
  std::string unpacked_;
  bool packed_ = false;
  std::vector<uint64_t> places_;  // of the headers; the last is the end of the file
};

}  // namespace cairn
