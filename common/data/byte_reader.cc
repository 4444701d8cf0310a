#include "common/data/byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/roots.h"
#include "common/data/gzip_reader.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

// A deflate stream expands to at most 1032 times its own size (zlib's technical notes); the slack is for tiny files.
constexpr uint64_t kDeflateSlack = 1024;

absl::Status OpenError(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(path + ": no such file");
  return absl::DataLossError(FileError(path, "cannot be read", error).message());
}

}  // namespace

struct ByteReader::File {
  GzipReader reader;
  uint64_t bytes_max = 0;
};

ByteReader::ByteReader(std::unique_ptr<File> file) : file_(std::move(file)) {}
ByteReader::ByteReader(ByteReader&&) noexcept = default;
ByteReader& ByteReader::operator=(ByteReader&&) noexcept = default;
ByteReader::~ByteReader() = default;

const std::string& ByteReader::path() const { return file_->reader.path(); }
uint64_t ByteReader::bytes_max() const { return file_->bytes_max; }

absl::StatusOr<ByteReader> ByteReader::Open(const std::string& path) {
  FileDescriptor opened = OpenPath(path, O_RDONLY | O_NONBLOCK);  // rejects a pipe instead of waiting for it
  if (opened.get() < 0) return OpenError(path, errno);
  struct stat st;
  if (::fstat(opened.get(), &st) != 0 || !S_ISREG(st.st_mode))
    return absl::DataLossError(path + ": not a regular file");
  CAIRN_ASSIGN_OR_RETURN(GzipReader reader, GzipReader::Open(std::move(opened), path));
  const uint64_t size = static_cast<uint64_t>(st.st_size);
  const uint64_t bytes_max = reader.packed() ? size * kDeflateRatioMax + kDeflateSlack : size;
  return ByteReader(std::make_unique<File>(File{std::move(reader), bytes_max}));
}

absl::StatusOr<size_t> ByteReader::ReadSome(void* out, size_t bytes) { return file_->reader.Read(out, bytes); }

absl::Status ByteReader::ReadExactly(void* out, size_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(const size_t n, ReadSome(out, bytes));
  if (n == bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: ends %d bytes too early; fetch the file again", path(), bytes - n));
}

absl::StatusOr<std::string> ByteReader::ReadToEnd(uint64_t bytes_limit) {
  std::string all;
  size_t used = 0;
  // Plain files are read in one piece. The decompressed size of a gzip file is not known, so the buffer doubles.
  size_t want =
      file_->reader.packed() ? size_t{1} << 20 : static_cast<size_t>(std::min(file_->bytes_max, bytes_limit)) + 1;
  while (true) {
    all.resize(want);
    CAIRN_ASSIGN_OR_RETURN(const size_t n, ReadSome(all.data() + used, want - used));
    used += n;
    if (used > bytes_limit) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("%s: holds more than %d MiB, the most that is read", path(), bytes_limit >> 20));
    }
    if (used < want) break;
    want = std::min<uint64_t>(uint64_t{want} * 2, bytes_limit + 1);
  }
  all.resize(used);
  return all;
}

absl::Status ByteReader::ExpectEnd() {
  char extra;
  CAIRN_ASSIGN_OR_RETURN(const size_t n, ReadSome(&extra, 1));
  if (n == 0) return absl::OkStatus();
  return absl::DataLossError(path() + ": holds more bytes than its header says");
}

}  // namespace cairn
