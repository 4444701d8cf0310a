// ByteWindow: random access to the bytes of a file, through a window that moves with the reader, or to bytes in memory.
//
// One thread at a time. Invariants:
//   1. At never returns bytes beyond the end. A file that became shorter after it was opened is DATA_LOSS.
//   2. Bytes that are skipped are not read from the disk if the skip exceeds a window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

// An open file that several threads may read at any position. Errors name the path.
class FileReader {
 public:
  static absl::StatusOr<std::shared_ptr<const FileReader>> Open(const std::string& path);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // at the time of opening
  absl::Status ReadAt(uint64_t at, size_t bytes, void* out) const;

 private:
  FileReader(std::string path, int fd, uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  const std::string path_;
  const int fd_;
  const uint64_t size_;
};

class ByteWindow {
 public:
  static constexpr size_t kBytes = size_t{64} << 10;

  explicit ByteWindow(absl::string_view memory) : view_(memory), size_(memory.size()) {}
  explicit ByteWindow(std::shared_ptr<const FileReader> file) : file_(std::move(file)), size_(file_->size()) {}

  uint64_t size() const { return size_; }
  // n <= kBytes unless the bytes are in memory. The result is valid until the next call. OUT_OF_RANGE: there are fewer
  // bytes.
  absl::StatusOr<absl::string_view> At(uint64_t at, size_t n) {
    if (at >= begin_ && at - begin_ <= view_.size() && n <= view_.size() - (at - begin_)) {
      return view_.substr(at - begin_, n);
    }
    return Move(at, n);
  }

 private:
  absl::StatusOr<absl::string_view> Move(uint64_t at, size_t n);

  std::shared_ptr<const FileReader> file_;  // null: memory
  std::string buffer_;
  absl::string_view view_;  // the bytes from begin_ on
  uint64_t begin_ = 0;
  uint64_t size_ = 0;
};

}  // namespace cairn
