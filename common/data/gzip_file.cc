#include "common/data/gzip_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"

namespace cairn {

GzipFile::GzipFile(const std::string& path, const char* mode, std::string known_as)
    : known_as_(std::move(known_as)), file_(gzopen(path.c_str(), mode)) {}

GzipFile::~GzipFile() {
  if (file_ != nullptr) gzclose(file_);
}

absl::Status GzipFile::Write(const void* data, size_t bytes) {
  const bool written =
      file_ != nullptr && gzwrite(file_, data, static_cast<unsigned>(bytes)) == static_cast<int>(bytes);
  return written ? absl::OkStatus() : Error();
}

absl::Status GzipFile::Close() {
  const int code = file_ == nullptr ? Z_ERRNO : gzclose(std::exchange(file_, nullptr));
  return code == Z_OK ? absl::OkStatus() : Error();
}

absl::Status GzipFile::Error() const {
  return absl::UnavailableError(absl::StrFormat("%s: cannot be written: %s", known_as_, std::strerror(errno)));
}

}  // namespace cairn
