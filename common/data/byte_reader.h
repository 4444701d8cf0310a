// ByteReader: reads the bytes of a file sequentially and decompresses gzip (detected by the content, not by the name).
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
  // An upper bound of the bytes that can be read: the file's size, or that size times deflate's highest ratio.
  uint64_t bytes_max() const;
  // Fills `out`. DATA_LOSS if the file ends before.
  absl::Status ReadExactly(void* out, size_t bytes);
  // Reads the rest. RESOURCE_EXHAUSTED if it is more than bytes_limit.
  absl::StatusOr<std::string> ReadToEnd(uint64_t bytes_limit);
  // DATA_LOSS unless the whole file has been read.
  absl::Status ExpectEnd();

 private:
  struct File;
  explicit ByteReader(std::unique_ptr<File> file);
  absl::StatusOr<size_t> ReadSome(void* out, size_t bytes);

  std::unique_ptr<File> file_;
};

}  // namespace cairn
