// GzipReader: reads the bytes of a file sequentially. What begins as gzip does is decompressed (by ISA-L, two to three
// times as fast as zlib): its members one after the other; what follows the last and is no member is ignored, as
// gzip(1) does.
//
// One thread at a time. Errors name the file: DATA_LOSS (cannot be read, broken or cut off).
#pragma once

#include <isa-l/igzip_lib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/data/limits.h"

namespace cairn {

class GzipReader {
 public:
  // file: open for reading, at its beginning. path: for errors.
  static absl::StatusOr<GzipReader> Open(FileDescriptor file, const std::string& path);

  const std::string& path() const { return path_; }
  bool packed() const { return packed_; }
  // Returns how many bytes were read: fewer than wanted only at the end.
  absl::StatusOr<size_t> Read(void* out, size_t bytes);

 private:
  static constexpr size_t kBufferBytes = 2 * kGzipHeaderBytesMax;

  GzipReader(FileDescriptor file, std::string path);

  bool IsFull() const { return state_->avail_in == kBufferBytes; }
  absl::Status Fill();  // reads more of the file, behind what is not decompressed yet; not if it is full
  // Whether another member begins where one ended.
  absl::StatusOr<bool> BeginMember();
  bool BeginsAsGzip() const;
  absl::Status CutOff() const;
  absl::StatusOr<size_t> Unpack(void* out, size_t bytes);
  absl::StatusOr<size_t> ReadPlain(void* out, size_t bytes);

  FileDescriptor file_;
  std::string path_;
  std::unique_ptr<uint8_t[]> buffer_;  // state_->next_in and avail_in are its part that is left, also of a plain file
  bool file_ended_ = false;
  bool packed_ = false;
  bool ended_ = false;  // of what is packed
  std::unique_ptr<inflate_state> state_;
};

}  // namespace cairn
