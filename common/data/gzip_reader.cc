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

constexpr size_t kBufferBytes = 256 << 10;

const char* TextOf(int error) {
  switch (error) {
    case ISAL_INVALID_WRAPPER: return "its header is wrong";
    case ISAL_UNSUPPORTED_METHOD: return "it is packed by another method than deflate";
    case ISAL_INCORRECT_CHECKSUM: return "its checksum is wrong";
    default: return "it is not deflate's";
  }
}

}  // namespace

GzipReader::GzipReader(FileDescriptor file, std::string path)
    : file_(std::move(file)), path_(std::move(path)), buffer_(kBufferBytes), state_(std::make_unique<inflate_state>()) {
  isal_inflate_init(state_.get());
  state_->next_in = buffer_.data();
  state_->avail_in = 0;
}

absl::StatusOr<GzipReader> GzipReader::Open(FileDescriptor file, const std::string& path) {
  GzipReader reader(std::move(file), path);
  CAIRN_ASSIGN_OR_RETURN(reader.packed_, reader.BeginMember());
  return reader;
}

absl::Status GzipReader::Fill() {
  inflate_state& s = *state_;
  std::memmove(buffer_.data(), s.next_in, s.avail_in);
  s.next_in = buffer_.data();
  while (true) {
    const ssize_t got = read(file_.get(), buffer_.data() + s.avail_in, buffer_.size() - s.avail_in);
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
  while (state_->avail_in < 2 && !file_ended_) CAIRN_RETURN_IF_ERROR(Fill());
  if (!BeginsAsGzip()) return false;
  isal_inflate_reset(state_.get());
  state_->crc_flag = ISAL_GZIP;
  return true;
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
    if (s.avail_out == room && s.avail_in == left && file_ended_ && s.block_state != ISAL_BLOCK_FINISH)
      return absl::DataLossError(path_ + ": the gzip data is cut off; fetch the file again");
  }
  return static_cast<size_t>(s.next_out - static_cast<uint8_t*>(out));
}

absl::StatusOr<size_t> GzipReader::Read(void* out, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    uint8_t* const to = static_cast<uint8_t*>(out) + done;
    size_t got = 0;
    if (packed_) {
      CAIRN_ASSIGN_OR_RETURN(got, Unpack(to, bytes - done));
    } else if (state_->avail_in > 0) {  // the file's beginning
      got = std::min<size_t>(bytes - done, state_->avail_in);
      std::memcpy(to, state_->next_in, got);
      state_->next_in += got;
      state_->avail_in -= static_cast<uint32_t>(got);
    } else {
      const ssize_t n = read(file_.get(), to, std::min(bytes - done, kGzipReadBytesMax));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return absl::DataLossError(FileError(path_, "cannot be read", errno).message());
      got = static_cast<size_t>(n);
    }
    if (got == 0) break;
    done += got;
  }
  return done;
}

}  // namespace cairn
