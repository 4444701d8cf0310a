#include "common/data/decoded_table.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/roots.h"

namespace cairn {
namespace {

constexpr int32_t kCacheMibDefault = 1024;

absl::Status DirError(const std::string& dir, const char* what, int error) {
  return absl::UnavailableError(absl::StrFormat("data.cache_dir: %s: %s: %s", dir, what, std::strerror(error)));
}

// For file systems without unnamed files: creates a file and unlinks it immediately.
FileDescriptor OpenUnlinked(const std::string& dir) {
  const std::string name =
      absl::StrFormat("%s/cairn-cache-%08x%08x", dir, std::random_device{}(), std::random_device{}());
  FileDescriptor file = OpenPath(name, O_RDWR | O_CREAT | O_EXCL, Access::kWrite, 0600);
  if (file.get() >= 0) RemoveFile(name);
  return file;
}

}  // namespace

// ---- SpillFile ----

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Create(const std::string& dir) {
  if (const absl::Status made = MakeFolders(dir); !made.ok())
    return absl::UnavailableError(absl::StrFormat("data.cache_dir: %s", made.message()));
  FileDescriptor file = OpenPath(dir, O_TMPFILE | O_RDWR, Access::kWrite, 0600);
  if (file.get() < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) file = OpenUnlinked(dir);
  if (file.get() < 0) return DirError(dir, "no file can be made in it", errno);
  return std::unique_ptr<SpillFile>(new SpillFile(dir, file.Release()));
}

SpillFile::~SpillFile() { ::close(fd_); }

absl::StatusOr<uint64_t> SpillFile::Append(const void* data, size_t bytes) {
  if (full_.load(std::memory_order_relaxed)) return absl::ResourceExhaustedError("full");
  const uint64_t begin = end_.fetch_add(bytes, std::memory_order_relaxed);
  const uint8_t* from = static_cast<const uint8_t*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::pwrite(fd_, from + done, bytes - done, static_cast<off_t>(begin + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : ENOSPC;
      full_.store(true, std::memory_order_relaxed);
      return DirError(dir_, "cannot be written to", error);
    }
    done += static_cast<size_t>(n);
  }
  return begin;
}

absl::Status SpillFile::ReadAt(uint64_t at, void* out, size_t bytes) const {
  uint8_t* to = static_cast<uint8_t*>(out);
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(fd_, to + done, bytes - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return DirError(dir_, "cannot be read back", n < 0 ? errno : EIO);
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

// ---- CacheRoom ----

absl::StatusOr<std::shared_ptr<CacheRoom>> CacheRoom::Make(const v1::Data& data) {
  if (data.cache_mib() < 0) {
    return absl::InvalidArgumentError("data.cache_mib: negative; use 0 for the default, or 1 and more");
  }
  const int64_t mib = data.cache_mib() == 0 ? kCacheMibDefault : data.cache_mib();
  return std::make_shared<CacheRoom>(mib << 20, data.cache_dir());
}

CacheRoom::CacheRoom(int64_t memory_bytes, const std::string& dir) : memory_left_(memory_bytes) {
  if (dir.empty()) return;
  absl::StatusOr<std::unique_ptr<SpillFile>> file = SpillFile::Create(dir);
  if (file.ok()) {
    file_ = *std::move(file);
  } else {
    Warn(file.status());
  }
}

bool CacheRoom::TakeMemory(int64_t bytes) {
  int64_t left = memory_left_.load(std::memory_order_relaxed);
  while (left >= bytes) {
    if (memory_left_.compare_exchange_weak(left, left - bytes, std::memory_order_relaxed)) return true;
  }
  return false;
}

void CacheRoom::Warn(const absl::Status& status) {
  if (warned_.exchange(true)) return;
  LogWarning("%s; examples that do not fit into data.cache_mib are decoded again each epoch", status.message());
}

// ---- DecodedTable ----

DecodedTable::DecodedTable(std::unique_ptr<ExampleSource> source, int64_t example_size, Element element,
                           std::shared_ptr<CacheRoom> room)
    : source_(std::move(source)),
      example_size_(example_size),
      element_(element),
      bytes_(example_size * SizeOf(element)),
      room_(std::move(room)),
      slots_(static_cast<size_t>(source_->size())),
      places_(room_->file() == nullptr ? 0 : static_cast<size_t>(source_->size())) {}

DecodedTable::~DecodedTable() {
  for (auto& slot : slots_) delete[] slot.load(std::memory_order_relaxed);
}

absl::Status DecodedTable::Read(int64_t index, float* example, float* label) const {
  *label = Label(index);
  return Visit(index, [&](const uint8_t* bytes) {
    if (element_ == Element::kByte) {
      BytesToFloats(bytes, example_size_, example);
    } else {
      std::memcpy(example, bytes, static_cast<size_t>(bytes_));
    }
  });
}

absl::Status DecodedTable::ReadBytes(int64_t index, uint8_t* example, float* label) const {
  CAIRN_CHECK(element_ == Element::kByte, "asked of tables of bytes only");
  *label = Label(index);
  return Visit(index, [&](const uint8_t* bytes) { std::memcpy(example, bytes, static_cast<size_t>(bytes_)); });
}

template <typename Use>
absl::Status DecodedTable::Visit(int64_t index, Use use) const {
  if (const uint8_t* kept = slots_[index].load(std::memory_order_acquire)) {
    use(kept);
    return absl::OkStatus();
  }
  std::unique_ptr<uint8_t[]> bytes(new uint8_t[bytes_]);
  const bool in_file = ReadFromFile(index, bytes.get());
  if (!in_file) CAIRN_RETURN_IF_ERROR(source_->Decode(index, bytes.get()));
  use(bytes.get());
  if (!in_file && !KeepInMemory(index, bytes)) KeepInFile(index, bytes.get());
  return absl::OkStatus();
}

bool DecodedTable::KeepInMemory(int64_t index, std::unique_ptr<uint8_t[]>& bytes) const {
  if (!room_->TakeMemory(bytes_)) return false;
  uint8_t* expected = nullptr;
  if (slots_[index].compare_exchange_strong(expected, bytes.get(), std::memory_order_release,
                                            std::memory_order_relaxed)) {
    (void)bytes.release();
  } else {
    room_->ReturnMemory(bytes_);  // another thread was faster
  }
  return true;
}

void DecodedTable::KeepInFile(int64_t index, const uint8_t* bytes) const {
  if (places_.empty()) return;
  Place& place = places_[index];
  uint64_t expected = Place::kNowhere;
  if (!place.at.compare_exchange_strong(expected, Place::kBeingWritten, std::memory_order_acquire)) return;
  const absl::StatusOr<uint64_t> at = room_->file()->Append(bytes, static_cast<size_t>(bytes_));
  if (!at.ok()) {
    place.at.store(Place::kNowhere, std::memory_order_relaxed);
    room_->Warn(at.status());
    return;
  }
  place.checksum = Checksum(bytes, static_cast<size_t>(bytes_));
  place.at.store(*at + Place::kFirst, std::memory_order_release);
}

bool DecodedTable::ReadFromFile(int64_t index, uint8_t* bytes) const {
  if (places_.empty()) return false;
  const Place& place = places_[index];
  const uint64_t at = place.at.load(std::memory_order_acquire);
  if (at < Place::kFirst) return false;
  const size_t size = static_cast<size_t>(bytes_);
  const absl::Status read = room_->file()->ReadAt(at - Place::kFirst, bytes, size);
  if (read.ok() && Checksum(bytes, size) == place.checksum) return true;
  room_->Warn(
      read.ok() ? absl::DataLossError("data.cache_dir: " + room_->file()->dir() + ": its data was altered on the disk")
                : read);
  return false;
}

}  // namespace cairn
