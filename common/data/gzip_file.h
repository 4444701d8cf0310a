// GzipFile: writes a file sequentially, as gzip or plain.
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
  // mode: zlib's, "wb" and a level from 1 to 9, or "wbT" for plain. known_as: the name used in errors.
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
