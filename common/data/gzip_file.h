// GzipFile: a file that is written from its beginning to its end, gzip or plain.
//
// One thread at a time. Errors name the file: UNAVAILABLE, it cannot be written.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <string>

#include "common/base/status.h"

namespace cairn {

class GzipFile {
 public:
  // mode: as zlib's, "wb" and a level from 1 to 9, or "wbT", plain. known_as: what errors call it.
  GzipFile(const std::string& path, const char* mode) : GzipFile(path, mode, path) {}
  GzipFile(const std::string& path, const char* mode, std::string known_as);
  ~GzipFile();
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  absl::Status Write(const void* data, size_t bytes);
  absl::Status Close();

 private:
  absl::Status Error() const;

  const std::string known_as_;
  gzFile file_;
};

}  // namespace cairn
