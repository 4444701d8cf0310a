// The C library's functions that change files, before those of the C library.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <utility>

#include "tests/unit/storage/faulty_disk.h"

namespace cairn::faulty {
namespace {

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define CAIRN_REAL(function)                                                        \
  ([] {                                                                             \
    static auto* const real = ::cairn::faulty::Real<decltype(function)>(#function); \
    return real;                                                                    \
  }())

int Fail(int error) {
  errno = error;
  return -1;
}

// The path of a name in an open folder. The disk's lock is held.
std::string Absolute(int at, const char* path) {
  if (path == nullptr) return "";
  if (path[0] == '/') return path;
  const auto found = TheDisk().open.find(at);
  return found == TheDisk().open.end() ? path : found->second.path + "/" + path;
}

int OpenAt(int at, const char* name, int flags, mode_t mode) {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  const std::string whole = Absolute(at, name);
  const char* const path = whole.c_str();
  if (!disk.Covers(path)) return CAIRN_REAL(openat)(at, name, flags, mode);
  const bool there = CAIRN_REAL(access)(path, F_OK) == 0;
  const bool changes = ((flags & O_CREAT) != 0 && !there) || (flags & O_TRUNC) != 0;
  if (changes) {
    if (const int error = disk.Count(!there)) return Fail(error);
  }
  const int fd = CAIRN_REAL(openat)(at, name, flags, mode);
  if (fd < 0 || (flags & O_TMPFILE) == O_TMPFILE) return fd;
  Disk::Open open{disk.Find(path), path, (flags & O_APPEND) != 0, (flags & O_ACCMODE) == O_RDONLY, 0};
  std::string last;
  if (const NodePtr folder = disk.FolderOf(path, &last); folder != nullptr && open.node == nullptr) {
    open.node = std::make_shared<Node>();
    Disk::Record(folder, {.named = last, .node = open.node});
  }
  if (changes && there && open.node != nullptr) open.node->pending.push_back({.size = 0});
  disk.open[fd] = std::move(open);
  return fd;
}

// real: makes the call with at most this many bytes.
template <typename Call>
ssize_t WriteTo(int fd, const iovec* parts, int count, std::optional<off_t> offset, Call real) {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  const auto found = disk.open.find(fd);
  std::string bytes;
  if (disk.on && found != disk.open.end()) {
    for (int i = 0; i < count; ++i) bytes.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  }
  if (!disk.on || found == disk.open.end()) return real(SIZE_MAX);
  bool shortens = false;
  if (const int error = disk.Count(true, &shortens)) return Fail(error);
  const ssize_t n = real(shortens ? std::max<size_t>(bytes.size() / 2, 1) : SIZE_MAX);
  Disk::Open& open = found->second;
  if (n <= 0 || open.node == nullptr) return n;
  uint64_t at = offset ? static_cast<uint64_t>(*offset) : open.at;
  if (!offset && open.append) {
    struct stat info;
    at = fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size - n) : at;
  }
  if (!offset) open.at = at + static_cast<uint64_t>(n);
  bytes.resize(static_cast<size_t>(n));
  open.node->pending.push_back({.offset = at, .bytes = std::move(bytes)});
  return n;
}

int SyncOf(int fd, int (*real)(int)) {
  Disk& disk = TheDisk();
  std::unique_lock<std::mutex> lock(disk.mutex);
  const auto found = disk.open.find(fd);
  if (!disk.on || found == disk.open.end()) {
    lock.unlock();
    return real(fd);
  }
  const NodePtr node = found->second.node;
  if (disk.on_sync) {
    const auto hook = disk.on_sync;
    const std::string path = found->second.path;
    lock.unlock();
    hook(path);
    lock.lock();
  }
  const int error = disk.Count(true);
  if (node == nullptr || disk.calls > disk.power_off_at) return error == 0 ? 0 : Fail(error);
  for (const Change& change : std::exchange(node->pending, {})) {
    if (error == 0) node->folder ? Apply(change, node->durable) : Apply(change, node->synced);
  }
  // What another library has written, with calls that are not seen here.
  if (error == 0 && !node->folder && found->second.only_read) {
    std::ifstream in("/proc/self/fd/" + std::to_string(fd), std::ios::binary);
    node->synced.assign(std::istreambuf_iterator<char>(in), {});
  }
  return error == 0 ? 0 : Fail(error);
}

// Of a name that goes, comes (`to` is not empty), or both; exchange: each takes the other's place.
template <typename Call>
int Rename(int from_at, const char* from_name, int to_at, const char* to_name, bool exchange, Call real) {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  const std::string from = Absolute(from_at, from_name), to = Absolute(to_at, to_name);
  if (!disk.Covers(from.c_str())) return real();
  if (const int error = disk.Count(!to.empty())) return Fail(error);
  const NodePtr node = disk.Find(from), other = exchange ? disk.Find(to) : nullptr;
  const int result = real();
  if (result != 0 || node == nullptr) return result;
  std::string gone, named;
  const NodePtr out_of = disk.FolderOf(from, &gone), into = to.empty() ? nullptr : disk.FolderOf(to, &named);
  if (exchange) {
    Disk::Record(into, {.named = named, .node = node});
    Disk::Record(out_of, {.named = gone, .node = other});
  } else if (into == out_of || into == nullptr) {
    Disk::Record(out_of, {.gone = gone, .named = named, .node = node});
  } else {
    Disk::Record(into, {.named = named, .node = node});
    Disk::Record(out_of, {.gone = gone});
  }
  return result;
}

template <typename Call>
int Link(int from_at, const char* from, int to_at, const char* to_name, Call real) {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  const std::string to = Absolute(to_at, to_name);
  if (!disk.Covers(to.c_str())) return real();
  if (const int error = disk.Count(true)) return Fail(error);
  const int result = real();
  std::string name;
  const NodePtr node = disk.Find(Absolute(from_at, from)), folder = disk.FolderOf(to, &name);
  if (result == 0 && node != nullptr && folder != nullptr) Disk::Record(folder, {.named = name, .node = node});
  return result;
}

template <typename Call>
int Make(int at, const char* path, Call real) {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  const std::string whole = Absolute(at, path);
  if (!disk.Covers(whole.c_str()) || CAIRN_REAL(access)(whole.c_str(), F_OK) == 0) return real();
  if (const int error = disk.Count(true)) return Fail(error);
  const int result = real();
  std::string name;
  if (const NodePtr folder = disk.FolderOf(whole, &name); result == 0 && folder != nullptr) {
    auto made = std::make_shared<Node>();
    made->folder = true;
    Disk::Record(folder, {.named = name, .node = made});
  }
  return result;
}

int Truncate(int fd, off_t size) {
  Disk& disk = TheDisk();
  const std::unique_lock<std::mutex> lock(disk.mutex);
  const auto found = disk.open.find(fd);
  if (!disk.on || found == disk.open.end()) return CAIRN_REAL(ftruncate)(fd, size);
  if (const int error = disk.Count(false)) return Fail(error);
  const int result = CAIRN_REAL(ftruncate)(fd, size);
  if (result == 0 && found->second.node != nullptr)
    found->second.node->pending.push_back({.size = static_cast<uint64_t>(size)});
  return result;
}

}  // namespace
}  // namespace cairn::faulty

// ---- the C library's functions ----
// NOLINTBEGIN: their names and parameters are the C library's

extern "C" {

int open(const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
  va_end(args);
  return cairn::faulty::OpenAt(AT_FDCWD, path, flags, mode);
}

int close(int fd) {
  {
    cairn::faulty::Disk& disk = cairn::faulty::TheDisk();
    const std::unique_lock<std::mutex> lock(disk.mutex);
    disk.open.erase(fd);
  }
  return CAIRN_REAL(close)(fd);
}

ssize_t write(int fd, const void* data, size_t size) {
  const iovec part{const_cast<void*>(data), size};
  return cairn::faulty::WriteTo(fd, &part, 1, std::nullopt,
                                [&](size_t most) { return CAIRN_REAL(write)(fd, data, std::min(size, most)); });
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  const iovec part{const_cast<void*>(data), size};
  return cairn::faulty::WriteTo(
      fd, &part, 1, offset, [&](size_t most) { return CAIRN_REAL(pwrite)(fd, data, std::min(size, most), offset); });
}

ssize_t pwritev(int fd, const iovec* parts, int count, off_t offset) {
  return cairn::faulty::WriteTo(fd, parts, count, offset, [&](size_t most) {
    if (most == SIZE_MAX) return CAIRN_REAL(pwritev)(fd, parts, count, offset);
    return CAIRN_REAL(pwrite)(fd, parts[0].iov_base, std::min(most, parts[0].iov_len), offset);
  });
}

int fsync(int fd) { return cairn::faulty::SyncOf(fd, CAIRN_REAL(fsync)); }
int fdatasync(int fd) { return cairn::faulty::SyncOf(fd, CAIRN_REAL(fdatasync)); }
int ftruncate(int fd, off_t size) noexcept { return cairn::faulty::Truncate(fd, size); }

int openat(int at, const char* path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
  va_end(args);
  return cairn::faulty::OpenAt(at, path, flags, mode);
}

int rename(const char* from, const char* to) noexcept {
  return cairn::faulty::Rename(AT_FDCWD, from, AT_FDCWD, to, false, [&] { return CAIRN_REAL(rename)(from, to); });
}
int renameat(int from_at, const char* from, int to_at, const char* to) noexcept {
  return cairn::faulty::Rename(from_at, from, to_at, to, false,
                               [&] { return CAIRN_REAL(renameat)(from_at, from, to_at, to); });
}
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  return cairn::faulty::Rename(from_at, from, to_at, to, (flags & RENAME_EXCHANGE) != 0,
                               [&] { return CAIRN_REAL(renameat2)(from_at, from, to_at, to, flags); });
}
int unlink(const char* path) noexcept {
  return cairn::faulty::Rename(AT_FDCWD, path, AT_FDCWD, nullptr, false, [&] { return CAIRN_REAL(unlink)(path); });
}
int unlinkat(int at, const char* path, int flags) noexcept {
  return cairn::faulty::Rename(at, path, AT_FDCWD, nullptr, false,
                               [&] { return CAIRN_REAL(unlinkat)(at, path, flags); });
}
int rmdir(const char* path) noexcept {
  return cairn::faulty::Rename(AT_FDCWD, path, AT_FDCWD, nullptr, false, [&] { return CAIRN_REAL(rmdir)(path); });
}

int link(const char* from, const char* to) noexcept {
  return cairn::faulty::Link(AT_FDCWD, from, AT_FDCWD, to, [&] { return CAIRN_REAL(link)(from, to); });
}
int linkat(int from_at, const char* from, int to_at, const char* to, int flags) noexcept {
  return cairn::faulty::Link(from_at, from, to_at, to,
                             [&] { return CAIRN_REAL(linkat)(from_at, from, to_at, to, flags); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return cairn::faulty::Make(AT_FDCWD, path, [&] { return CAIRN_REAL(mkdir)(path, mode); });
}
int mkdirat(int at, const char* path, mode_t mode) noexcept {
  return cairn::faulty::Make(at, path, [&] { return CAIRN_REAL(mkdirat)(at, path, mode); });
}

}  // extern "C"
// NOLINTEND
