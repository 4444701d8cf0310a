#include "common/s3/object_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/digest.h"
#include "common/base/log.h"
#include "common/s3/bytes_text.h"
#include "common/s3/limits.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

enum class Locked { kYes, kBusy, kFailed };

Locked TryLock(const FileDescriptor& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return Locked::kYes;
  return errno == EWOULDBLOCK || errno == EINTR ? Locked::kBusy : Locked::kFailed;
}

FileDescriptor OpenLock(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
}

absl::Status MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return FileError(path, "cannot create the folder");
}

void RemoveTree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) LogWarning("%s: cannot be removed from the cache: %s", path, error.message());
}

// The entries of a folder of the cache; nothing where it cannot be read.
std::vector<std::string> PathsIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    paths.push_back(at->path().string());
  return paths;
}

std::string RandomName() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x", random(), random(), random());
}

absl::StatusOr<uint64_t> RoomOnDisk(const std::string& folder) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return FileError(folder, "cannot look at the disk");
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

// Two of them that cannot be beside each other.
absl::Status CheckPaths(const std::vector<CacheFile>& files) {
  std::set<std::string> folders, names;
  for (const CacheFile& file : files) {
    if (!names.insert(file.path).second)
      return absl::InvalidArgumentError(absl::StrCat("\"", file.path, "\" was listed twice"));
    for (size_t slash = file.path.rfind('/'); slash != std::string::npos && slash > 0;
         slash = file.path.rfind('/', slash - 1)) {
      if (!folders.insert(file.path.substr(0, slash)).second) break;  // and so are those above it
    }
  }
  for (const CacheFile& file : files) {
    if (folders.contains(file.path)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", file.path,
                                                     "\" is an object, and the folder of others, which ",
                                                     "cannot both be files; rename or remove it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

ObjectCache::ObjectCache(const std::string& folder, uint64_t bytes_max)
    : folder_(folder),
      objects_(folder + "/objects"),
      sets_(folder + "/sets"),
      own_sets_(absl::StrCat(sets_, "/", RandomName())),
      bytes_max_(bytes_max) {}

ObjectCache::~ObjectCache() {
  cleaner_.Stop();
  RemoveTree(own_sets_);
}

absl::StatusOr<std::shared_ptr<ObjectCache>> ObjectCache::Open(const std::string& folder, uint64_t bytes_max) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    const fs::path above = fs::path(folder).parent_path();
    if (!above.empty()) fs::create_directories(above, error);
    CAIRN_RETURN_IF_ERROR(MakeFolder(folder));
  }
  const std::string real = fs::canonical(folder, error).string();
  struct stat st {};
  if (error || ::stat(real.c_str(), &st) != 0 || !S_ISDIR(st.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(folder, ": is no folder that can be opened; name another one"));
  if (st.st_uid != ::geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        folder, ": others may write to this folder, and so change data sets; give one that is this user's alone"));
  }
  std::shared_ptr<ObjectCache> cache(new ObjectCache(real, bytes_max));
  for (const char* below : {"/objects", "/sets", "/fetch"}) CAIRN_RETURN_IF_ERROR(MakeFolder(real + below));
  CAIRN_RETURN_IF_ERROR(cache->MakeOwnFolder());
  return cache;
}

absl::StatusOr<FileDescriptor> ObjectCache::Lock() const {
  FileDescriptor lock = OpenLock(folder_ + "/lock");
  if (lock.get() < 0) return FileError(folder_ + "/lock", "cannot open");
  for (const absl::Time until = absl::Now() + kS3CacheLockMax;;) {
    const Locked locked = TryLock(lock);
    if (locked == Locked::kYes) return lock;
    if (locked == Locked::kFailed) return FileError(folder_ + "/lock", "cannot be locked");
    if (absl::Now() > until) {
      return absl::UnavailableError(absl::StrCat(folder_, "/lock: another process has held it for ",
                                                 absl::FormatDuration(kS3CacheLockMax), "; does its disk hang?"));
    }
    absl::SleepFor(kS3LockPause);
  }
}

absl::StatusOr<FileDescriptor> ObjectCache::LockFetch(const std::string& name,
                                                      const std::function<bool()>& stopping) const {
  const std::string path =
      absl::StrFormat("%s/fetch/%02d", folder_, Checksum(name.data(), name.size()) % kS3FetchLocks);
  FileDescriptor lock = OpenLock(path);
  if (lock.get() < 0) return FileError(path, "cannot open");
  const absl::Time begin = absl::Now();
  while (true) {
    const Locked locked = TryLock(lock);
    if (locked == Locked::kYes) break;
    if (locked == Locked::kFailed) return FileError(path, "cannot be locked");
    if (stopping()) return absl::CancelledError("the worker is stopping");
    struct stat st {};
    if (::fstat(lock.get(), &st) != 0) return FileError(path, "cannot be looked at");
    if (absl::Now() > std::max(begin, absl::TimeFromTimespec(st.st_mtim)) + kS3OtherSilentMax) {
      return absl::UnavailableError(absl::StrCat(path, ": another process, which fetches this data set, has made no ",
                                                 "progress for ", absl::FormatDuration(kS3OtherSilentMax)));
    }
    absl::SleepFor(kS3LockPause);
  }
  TellProgress(lock);
  return lock;
}

void ObjectCache::TellProgress(const FileDescriptor& lock) { ::futimens(lock.get(), nullptr); }

std::string ObjectCache::PathOf(const std::string& id) const {
  return absl::StrCat(objects_, "/", id.substr(0, 2), "/", id);
}

// Under the lock: whose folder is there has it locked, unless its process is gone.
absl::Status ObjectCache::MakeOwnFolder() {
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor lock, Lock());
  CAIRN_RETURN_IF_ERROR(MakeFolder(own_sets_));
  alive_ = OpenLock(own_sets_ + "/alive");
  if (alive_.get() < 0 || TryLock(alive_) != Locked::kYes) return FileError(own_sets_, "cannot be locked");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ObjectCache::MakeStagingFolder() const {
  const std::string folder = own_sets_ + "/staged";
  CAIRN_RETURN_IF_ERROR(MakeFolder(folder));
  return folder;
}

void ObjectCache::RemoveDeadSets() const {
  for (const std::string& process : PathsIn(sets_)) {
    const FileDescriptor alive(::open((process + "/alive").c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (alive.get() < 0 ? errno == ENOENT : TryLock(alive) == Locked::kYes) RemoveTree(process);
  }
}

void ObjectCache::Discard(std::unique_ptr<Set> set) {
  cleaner_.Post([held = std::shared_ptr<Set>(std::move(set))]() mutable { held.reset(); });
}

absl::Status ObjectCache::MakeRoom(uint64_t bytes) const {
  struct Idle {
    absl::Time used;
    std::string path;
    uint64_t bytes;
  };
  std::vector<Idle> idle;
  uint64_t held = 0;
  struct stat st {};
  for (const std::string& folder : PathsIn(objects_)) {
    for (std::string& path : PathsIn(folder)) {
      if (::lstat(path.c_str(), &st) != 0) continue;
      held += static_cast<uint64_t>(st.st_size);
      if (st.st_nlink == 1)
        idle.push_back({absl::TimeFromTimespec(st.st_mtim), std::move(path), static_cast<uint64_t>(st.st_size)});
    }
  }
  for (const std::string& process : PathsIn(sets_)) {
    for (const std::string& set : PathsIn(process)) {
      if (::lstat((set + "/coming").c_str(), &st) == 0) held += static_cast<uint64_t>(st.st_size);
    }
  }
  std::sort(idle.begin(), idle.end(), [](const Idle& a, const Idle& b) { return a.used < b.used; });
  CAIRN_ASSIGN_OR_RETURN(uint64_t room, RoomOnDisk(folder_));
  for (const Idle& object : idle) {
    if (held + bytes <= bytes_max_ && bytes <= room) break;
    if (::unlink(object.path.c_str()) != 0) continue;
    held -= object.bytes;
    room += object.bytes;  // about: the file system may keep some of it for a while
  }
  if (bytes == 0) return absl::OkStatus();
  if (held + bytes > bytes_max_) {
    return absl::ResourceExhaustedError(absl::StrCat("needs ", BytesText(bytes), " more, and of the ",
                                                     BytesText(bytes_max_), " of the cache ", BytesText(held),
                                                     " are in use by data sets that are open or being fetched; raise ",
                                                     "--s3-cache-bytes, or wait until they are closed"));
  }
  if (room < bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("needs ", BytesText(bytes), " more, and the disk of ", folder_,
                                                     " has ", BytesText(room), " free; make room, or give --s3-cache ",
                                                     "a folder on another one"));
  }
  return absl::OkStatus();
}

absl::Status ObjectCache::LinkPresent(Set& set) const {
  for (size_t i = 0; i < set.files_.size(); ++i) {
    const CacheFile& file = set.files_[i];
    const std::string object = PathOf(file.id), name = set.FileOf(i);
    CAIRN_RETURN_IF_ERROR(set.MakeFolderOf(name));
    struct stat st {};
    bool here = ::link(object.c_str(), name.c_str()) == 0;
    if (!here && errno != ENOENT) return FileError(name, "cannot link an object to it");
    if (here && (::lstat(name.c_str(), &st) != 0 || static_cast<uint64_t>(st.st_size) != file.bytes)) {
      LogWarning("%s: has not the %d bytes that it should have, and is fetched again", object, file.bytes);
      ::unlink(name.c_str());
      ::unlink(object.c_str());
      here = false;
    }
    if (here) ::utimensat(AT_FDCWD, object.c_str(), nullptr, 0);
    if (here) continue;
    set.missing_.push_back(i);
    set.missing_bytes_ += file.bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ObjectCache::Set>> ObjectCache::Reserve(std::vector<CacheFile> files) {
  uint64_t total = 0;
  for (const CacheFile& file : files) {
    if (__builtin_add_overflow(total, file.bytes, &total)) total = UINT64_MAX;
  }
  if (total > bytes_max_) {
    return absl::ResourceExhaustedError(absl::StrCat(files.size(), " objects of ", BytesText(total),
                                                     " together do not fit into this worker's cache of ",
                                                     BytesText(bytes_max_), "; raise its --s3-cache-bytes"));
  }
  CAIRN_RETURN_IF_ERROR(CheckPaths(files));
  cleaner_.RunAndWait([] {});  // what is no longer open is in nobody's way
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor lock, Lock());
  RemoveDeadSets();
  const std::string folder = absl::StrCat(own_sets_, "/", RandomName());
  std::unique_ptr<Set> set(new Set(*this, folder, std::move(files)));
  CAIRN_RETURN_IF_ERROR(set->Make());
  CAIRN_RETURN_IF_ERROR(LinkPresent(*set));
  CAIRN_RETURN_IF_ERROR(MakeRoom(set->missing_bytes_));
  if (::ftruncate(set->coming_.get(), static_cast<off_t>(set->missing_bytes_)) != 0)
    return FileError(folder + "/coming", "cannot be written");
  return set;
}

// ---- a set ----

ObjectCache::Set::Set(const ObjectCache& cache, std::string folder, std::vector<CacheFile> files)
    : cache_(cache), folder_(std::move(folder)), files_folder_(folder_ + "/files"), files_(std::move(files)) {}

absl::Status ObjectCache::Set::Make() {
  CAIRN_RETURN_IF_ERROR(MakeFolder(folder_));
  coming_ = OpenLock(folder_ + "/coming");
  if (coming_.get() < 0) return FileError(folder_ + "/coming", "cannot create");
  CAIRN_RETURN_IF_ERROR(MakeFolder(folder_ + "/partial"));
  return MakeFolder(files_folder_);
}

ObjectCache::Set::~Set() {
  std::error_code error;
  for (fs::recursive_directory_iterator at(files_folder_, error), end; !error && at != end; at.increment(error)) {
    if (at->is_regular_file(error)) ::utimensat(AT_FDCWD, at->path().c_str(), nullptr, 0);  // it was in use until now
  }
  RemoveTree(folder_);
}

absl::Status ObjectCache::Set::MakeFolderOf(const std::string& path) {
  const std::string folder = path.substr(0, path.rfind('/'));
  if (folder == last_folder_) return absl::OkStatus();
  for (size_t slash = files_folder_.size(); slash != std::string::npos; slash = folder.find('/', slash + 1)) {
    if (slash > files_folder_.size()) CAIRN_RETURN_IF_ERROR(MakeFolder(folder.substr(0, slash)));
  }
  CAIRN_RETURN_IF_ERROR(MakeFolder(folder));
  last_folder_ = folder;
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> ObjectCache::Set::Create(size_t index) const {
  const std::string path = Partial(index);
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400));
  if (file.get() < 0) return FileError(path, "cannot create");
  return file;
}

absl::Status ObjectCache::Set::Keep(absl::Span<const size_t> indexes) {
  if (indexes.empty()) return absl::OkStatus();
  if (::syncfs(coming_.get()) != 0) return FileError(folder_, "cannot sync");
  CAIRN_ASSIGN_OR_RETURN(const FileDescriptor lock, cache_.Lock());
  for (const size_t index : indexes) {
    const std::string partial = Partial(index), object = cache_.PathOf(files_[index].id), name = FileOf(index);
    CAIRN_RETURN_IF_ERROR(MakeFolder(object.substr(0, object.rfind('/'))));
    // Another process may have fetched the same one.
    if (::link(partial.c_str(), object.c_str()) != 0 && errno != EEXIST)
      return FileError(object, "cannot link an object to it");
    if (::link(object.c_str(), name.c_str()) != 0) return FileError(name, "cannot link an object to it");
    ::unlink(partial.c_str());
    kept_bytes_ += files_[index].bytes;
  }
  if (::ftruncate(coming_.get(), static_cast<off_t>(missing_bytes_ - kept_bytes_)) != 0)
    return FileError(folder_ + "/coming", "cannot be written");
  return absl::OkStatus();
}

}  // namespace cairn
