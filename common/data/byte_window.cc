#include "common/data/byte_window.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/roots.h"

namespace cairn {
namespace {

constexpr size_t kJumpBytes = size_t{4} << 10;

}  // namespace

absl::StatusOr<std::shared_ptr<const FileReader>> FileReader::Open(const std::string& path) {
  FileDescriptor opened = OpenPath(path, O_RDONLY | O_NONBLOCK);  // rejects a pipe instead of waiting for it
  if (opened.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return absl::NotFoundError(path + ": no such file");
    return absl::DataLossError(FileError(path, "cannot be read").message());
  }
  struct stat st;
  if (::fstat(opened.get(), &st) != 0 || !S_ISREG(st.st_mode))
    return absl::DataLossError(path + ": not a regular file");
  return std::shared_ptr<const FileReader>(new FileReader(path, opened.Release(), static_cast<uint64_t>(st.st_size)));
}

FileReader::~FileReader() { ::close(fd_); }

absl::Status FileReader::ReadAt(uint64_t at, size_t bytes, void* out) const {
  uint8_t* to = static_cast<uint8_t*>(out);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_, to, bytes, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::DataLossError(absl::StrFormat("%s: cannot be read: %s", path_, std::strerror(errno)));
    if (n == 0) return absl::DataLossError(path_ + ": became shorter while it was in use");
    to += n;
    at += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::string_view> ByteWindow::Move(uint64_t at, size_t n) {
  if (at > size_ || n > size_ - at) return absl::OutOfRangeError("it ends too early");
  CAIRN_CHECK(file_ != nullptr && n <= kBytes, "a window's part");
  buffer_.resize(kBytes);
  // A reader that jumps needs only a few fields of a record; a sequential reader will read on.
  const bool goes_on = at >= begin_ && at - begin_ <= view_.size();
  const size_t want = goes_on ? kBytes : std::max(n, kJumpBytes);
  const size_t bytes = static_cast<size_t>(std::min<uint64_t>(want, size_ - at));
  view_ = {};
  CAIRN_RETURN_IF_ERROR(file_->ReadAt(at, bytes, buffer_.data()));
  view_ = absl::string_view(buffer_.data(), bytes);
  begin_ = at;
  return view_.substr(0, n);
}

}  // namespace cairn
