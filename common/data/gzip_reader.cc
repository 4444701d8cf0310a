#include "common/data/gzip_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

const char* TextOf(int error) {
  switch (error) {
    case ISAL_INVALID_WRAPPER: return "a header in it is wrong; fetch the file again";
    case ISAL_UNSUPPORTED_METHOD: return "it is compressed by another method than deflate; pack it again with gzip";
    case ISAL_INCORRECT_CHECKSUM: return "its checksum does not fit; fetch the file again";
    default: return "the compressed bytes are damaged; fetch the file again";
  }
}

}  // namespace

GzipReader::GzipReader(FileDescriptor file, std::string path)
    : file_(std::move(file)),
      path_(std::move(path)),
      buffer_(std::make_unique_for_overwrite<uint8_t[]>(kBufferBytes)),
      state_(std::make_unique_for_overwrite<inflate_state>()) {
  isal_inflate_init(state_.get());
  state_->next_in = buffer_.get();
  state_->avail_in = 0;
}

absl::StatusOr<GzipReader> GzipReader::Open(FileDescriptor file, const std::string& path) {
  GzipReader reader(std::move(file), path);
  CAIRN_ASSIGN_OR_RETURN(reader.packed_, reader.BeginMember());
  return reader;
}

absl::Status GzipReader::Fill() {
  inflate_state& s = *state_;
  std::memmove(buffer_.get(), s.next_in, s.avail_in);
  s.next_in = buffer_.get();
  while (true) {
    const ssize_t got = read(file_.get(), buffer_.get() + s.avail_in, kBufferBytes - s.avail_in);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::DataLossError(FileError(path_, "cannot be read", errno).message());
    file_ended_ = got == 0;
    s.avail_in += static_cast<uint32_t>(got);
    return absl::OkStatus();
  }
}

bool GzipReader::BeginsAsGzip() const {
  return state_->avail_in >= 2 && state_->next_in[0] == 0x1f && state_->next_in[1] == 0x8b;
}

absl::StatusOr<bool> GzipReader::BeginMember() {
  inflate_state& s = *state_;
  while (s.avail_in < kGzipHeaderBytesMax && !file_ended_) CAIRN_RETURN_IF_ERROR(Fill());
  if (!BeginsAsGzip()) return false;
  isal_inflate_reset(&s);
  isal_gzip_header header;
  isal_gzip_header_init(&header);
  const int read = isal_read_gzip_header(&s, &header);
  if (read == ISAL_END_INPUT && file_ended_) return CutOff();
  if (read != ISAL_DECOMP_OK) {
    return absl::DataLossError(
        absl::StrFormat("%s: broken gzip data: %s", path_,
                        read == ISAL_END_INPUT ? "a header in it is longer than 128 KiB" : TextOf(read)));
  }
  s.crc_flag = ISAL_GZIP_NO_HDR_VER;
  return true;
}

absl::Status GzipReader::CutOff() const {
  return absl::DataLossError(path_ + ": the gzip data is cut off; fetch the file again");
}

absl::StatusOr<size_t> GzipReader::Unpack(void* out, size_t bytes) {
  inflate_state& s = *state_;
  s.next_out = static_cast<uint8_t*>(out);
  s.avail_out = static_cast<uint32_t>(std::min(bytes, kGzipReadBytesMax));
  while (s.avail_out > 0 && !ended_) {
    if (s.block_state == ISAL_BLOCK_FINISH) {
      CAIRN_ASSIGN_OR_RETURN(const bool more, BeginMember());
      ended_ = !more;
      continue;
    }
    if (s.avail_in == 0 && !file_ended_) CAIRN_RETURN_IF_ERROR(Fill());
    const uint32_t room = s.avail_out, left = s.avail_in;
    if (const int error = isal_inflate(&s); error < 0)
      return absl::DataLossError(absl::StrFormat("%s: broken gzip data: %s", path_, TextOf(error)));
    if (s.avail_out != room || s.avail_in != left || s.block_state == ISAL_BLOCK_FINISH) continue;
    if (file_ended_ || IsFull()) return CutOff();
    CAIRN_RETURN_IF_ERROR(Fill());
  }
  return static_cast<size_t>(s.next_out - static_cast<uint8_t*>(out));
}

// What is small goes through the buffer.
absl::StatusOr<size_t> GzipReader::ReadPlain(void* out, size_t bytes) {
  inflate_state& s = *state_;
  if (s.avail_in == 0 && bytes < kBufferBytes && !file_ended_) CAIRN_RETURN_IF_ERROR(Fill());
  if (s.avail_in > 0 || file_ended_) {
    const size_t got = std::min<size_t>(bytes, s.avail_in);
    std::memcpy(out, s.next_in, got);
    s.next_in += got;
    s.avail_in -= static_cast<uint32_t>(got);
    return got;
  }
  while (true) {
    const ssize_t got = read(file_.get(), out, std::min(bytes, kGzipReadBytesMax));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::DataLossError(FileError(path_, "cannot be read", errno).message());
    file_ended_ = got == 0;
    return static_cast<size_t>(got);
  }
}

absl::StatusOr<size_t> GzipReader::Read(void* out, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    uint8_t* const to = static_cast<uint8_t*>(out) + done;
    CAIRN_ASSIGN_OR_RETURN(const size_t got, packed_ ? Unpack(to, bytes - done) : ReadPlain(to, bytes - done));
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace cairn
