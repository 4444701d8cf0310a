// ByteReader: the bytes of a file from its beginning, gzip unpacked on the way (told from the content, not from the
// name).
//
// One thread at a time. Errors name the file: NOT_FOUND (no such file), DATA_LOSS (cannot be read, broken gzip).
// Invariant: ReadExactly and ReadToEnd never allocate more than the file can hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/status.h"

namespace cairn {

class ByteReader {
 public:
  static absl::StatusOr<ByteReader> Open(const std::string& path);
  ByteReader(ByteReader&&) noexcept;
  ByteReader& operator=(ByteReader&&) noexcept;
  ~ByteReader();

  const std::string& path() const;
  // No more bytes than this can come out: the file's size, or what deflate's highest ratio makes of it.
  uint64_t bytes_max() const;
  // Fills `out`. DATA_LOSS where the file ends before.
  absl::Status ReadExactly(void* out, size_t bytes);
  // All that is left. RESOURCE_EXHAUSTED above bytes_limit.
  absl::StatusOr<std::string> ReadToEnd(uint64_t bytes_limit);
  // DATA_LOSS unless everything was read.
  absl::Status ExpectEnd();

 private:
  struct File;
  explicit ByteReader(std::unique_ptr<File> file);
  absl::StatusOr<size_t> ReadSome(void* out, size_t bytes);

  std::unique_ptr<File> file_;
};

}  // namespace cairn
