#include "common/storage/value_log.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

// Bodies fill whole pages, so that overwriting a reused file never has to read a page first.
constexpr uint64_t kPageBytes = 4096;
constexpr char kSuffix[] = ".values";

absl::Status StoreFileError(const std::string& path, const char* what, int error) {
  const std::string message = absl::StrCat("file ", path, ": ", what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) return absl::ResourceExhaustedError(message);
  if (error == EACCES || error == EPERM || error == EROFS) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

}  // namespace

class ValueLog::File {
 public:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  static absl::StatusOr<std::shared_ptr<File>> Open(const std::string& path, int flags) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC, 0644);
    if (fd < 0) {
      if (errno == ENOENT) return absl::DataLossError(absl::StrCat("file ", path, ": it is missing"));
      return StoreFileError(path, "cannot be opened", errno);
    }
    return std::make_shared<File>(path, fd);
  }

  // Writes data, then zeros up to the end of the page.
  absl::Status WritePages(const char* data, size_t size, uint64_t offset) {
    static constexpr char kZeros[kPageBytes] = {};
    size_t padding = (kPageBytes - size % kPageBytes) % kPageBytes;
    while (size + padding > 0) {
      const iovec parts[2] = {{const_cast<char*>(data), size}, {const_cast<char*>(kZeros), padding}};
      const ssize_t n = size > 0 ? pwritev(fd_, parts, 2, static_cast<off_t>(offset))
                                 : pwrite(fd_, kZeros, padding, static_cast<off_t>(offset));
      if (n < 0) {
        if (errno == EINTR) continue;
        return StoreFileError(path_, "cannot be written", errno);
      }
      const size_t of_data = std::min(static_cast<size_t>(n), size);
      data += of_data;
      size -= of_data;
      padding -= static_cast<size_t>(n) - of_data;
      offset += static_cast<uint64_t>(n);
    }
    return absl::OkStatus();
  }

  absl::Status Read(char* out, size_t size, uint64_t offset) const {
    while (size > 0) {
      const ssize_t n = pread(fd_, out, size, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return StoreFileError(path_, "cannot be read", errno);
      if (n == 0) return absl::DataLossError(absl::StrCat("file ", path_, ": it ends before byte ", offset + size));
      out += n;
      size -= static_cast<size_t>(n);
      offset += static_cast<uint64_t>(n);
    }
    return absl::OkStatus();
  }

  // One thread at a time; those that wait meanwhile share the next one, which covers what each of them has written.
  absl::Status Sync() {
    absl::MutexLock lock(&mutex_);
    const uint64_t needed = begun_ + 1;
    while (failed_.ok() && ended_ < needed) {
      if (begun_ > ended_) {
        mutex_.Await(absl::Condition(this, &File::Idle));
        continue;
      }
      ++begun_;
      mutex_.Unlock();
      const int error = fdatasync(fd_) == 0 ? 0 : errno;
      mutex_.Lock();
      ended_ = begun_;
      if (error != 0) failed_ = StoreFileError(path_, "cannot be synced", error);
    }
    return failed_;
  }

 private:
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return begun_ == ended_; }

  const std::string path_;
  const int fd_;
  absl::Mutex mutex_;
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0, ended_ ABSL_GUARDED_BY(mutex_) = 0;  // syncs
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<ValueLog>> ValueLog::Open(const std::string& directory) {
  CAIRN_RETURN_IF_ERROR(MakeFolders(directory));
  std::error_code error;
  std::unique_ptr<ValueLog> log(new ValueLog(directory));
  absl::MutexLock lock(&log->mutex_);
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    uint64_t number = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size() - std::strlen(kSuffix) ||
        !name.ends_with(kSuffix) || number == 0 || number >= kValueLogSegmentsMax) {
      continue;
    }
    log->segments_[number];
    log->last_segment_ = std::max(log->last_segment_, number);
  }
  if (error) return StoreFileError(directory, "cannot be listed", error.value());
  return log;
}

std::string ValueLog::PathOf(uint64_t segment) const { return absl::StrCat(directory_, "/", segment, kSuffix); }

absl::Status ValueLog::Retain(const Place& place) {
  if (place.segment == 0 || place.segment >= kValueLogSegmentsMax || place.size == 0 ||
      place.offset > std::numeric_limits<uint64_t>::max() - place.size) {
    return absl::DataLossError(absl::StrCat("value log ", directory_, ": a place at byte ", place.offset, " of file ",
                                            place.segment, " was never written"));
  }
  absl::MutexLock lock(&mutex_);
  ++segments_[place.segment].bodies;
  last_segment_ = std::max(last_segment_, place.segment);
  return absl::OkStatus();
}

void ValueLog::Sweep() {
  absl::MutexLock lock(&mutex_);
  std::vector<uint64_t> dead;
  for (const auto& [number, segment] : segments_) {
    if (segment.bodies == 0 && !IsActive(number)) dead.push_back(number);
  }
  for (uint64_t number : dead) Retire(number);
}

void ValueLog::Retire(uint64_t segment) {
  segments_.erase(segment);
  if (spares_.size() < kValueLogSparesMax) {
    spares_.push_back(segment);
  } else {
    unlink(PathOf(segment).c_str());
  }
}

bool ValueLog::IsActive(uint64_t segment) const {
  return std::any_of(active_.begin(), active_.end(), [segment](const Active& a) { return a.segment == segment; });
}

absl::Status ValueLog::StartSegment(Active& active) {
  const uint64_t number = last_segment_ + 1;
  const std::string path = PathOf(number);
  if (!spares_.empty()) {
    const std::string spare = PathOf(spares_.back());
    spares_.pop_back();
    if (rename(spare.c_str(), path.c_str()) != 0 && errno != ENOENT)
      return StoreFileError(spare, "cannot be renamed", errno);
  }
  CAIRN_ASSIGN_OR_RETURN(active.file, File::Open(path, O_WRONLY | O_CREAT));
  last_segment_ = number;
  const uint64_t before = std::exchange(active.segment, number);
  active.end = 0;
  segments_[number];
  if (const auto it = segments_.find(before); it != segments_.end() && it->second.bodies == 0) Retire(before);
  return absl::OkStatus();
}

absl::StatusOr<ValueLog::Place> ValueLog::Append(const void* data, size_t size, Urgency urgency, Unsynced* unsynced) {
  CAIRN_CHECK(size > 0, "an empty body");
  std::shared_ptr<File> file;
  Place place;
  {
    absl::MutexLock lock(&mutex_);
    CAIRN_RETURN_IF_ERROR(failed_);
    Active& active = active_[static_cast<size_t>(urgency)];
    if (active.file == nullptr || active.end >= kSegmentBytes) CAIRN_RETURN_IF_ERROR(StartSegment(active));
    file = active.file;
    place = {active.segment, active.end, size};
    active.end += (size + kPageBytes - 1) / kPageBytes * kPageBytes;
    ++segments_[active.segment].bodies;
  }
  // Outside of the lock: other threads write at the same time.
  if (absl::Status status = file->WritePages(static_cast<const char*>(data), size, place.offset); !status.ok()) {
    Release(place);
    return status;
  }
  if (unsynced != nullptr) unsynced->files_.emplace(place.segment, std::move(file));
  return place;
}

absl::Status ValueLog::Sync(const Unsynced& unsynced) {
  if (unsynced.files_.empty()) return absl::OkStatus();
  const absl::Status status = SyncFiles(unsynced);
  absl::MutexLock lock(&mutex_);
  if (failed_.ok()) failed_ = status;
  if (status.ok()) named_on_disk_ = std::max(named_on_disk_, unsynced.files_.rbegin()->first);
  return failed_;
}

absl::Status ValueLog::SyncFiles(const Unsynced& unsynced) {
  for (const auto& [segment, file] : unsynced.files_) CAIRN_RETURN_IF_ERROR(file->Sync());
  {
    absl::MutexLock lock(&mutex_);
    if (unsynced.files_.rbegin()->first <= named_on_disk_) return absl::OkStatus();
  }
  // The directory too: it holds the files' names.
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<File> directory, File::Open(directory_, O_RDONLY | O_DIRECTORY));
  return directory->Sync();
}

absl::Status ValueLog::Read(const Place& place, std::string* out) const {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<File> file, File::Open(PathOf(place.segment), O_RDONLY));
  std::error_code error;
  const uintmax_t file_bytes = std::filesystem::file_size(PathOf(place.segment), error);
  if (error || place.offset > file_bytes || place.size > file_bytes - place.offset) {
    return absl::DataLossError(
        absl::StrCat("file ", PathOf(place.segment), ": it ends before byte ", place.offset + place.size));
  }
  const size_t before = out->size();
  out->resize(before + place.size);
  return file->Read(out->data() + before, place.size, place.offset);
}

void ValueLog::DropSpares() {
  absl::MutexLock lock(&mutex_);
  for (const uint64_t segment : std::exchange(spares_, {})) unlink(PathOf(segment).c_str());
}

void ValueLog::Release(const Place& place) {
  absl::MutexLock lock(&mutex_);
  const auto it = segments_.find(place.segment);
  CAIRN_CHECK(it != segments_.end() && it->second.bodies > 0, "released twice");
  if (--it->second.bodies == 0 && !IsActive(place.segment)) Retire(place.segment);
}

}  // namespace cairn
