#include "common/shared_memory/shared_arena.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace cairn {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr size_t kPageBytes = 4096;
constexpr size_t kLookPages = 256;  // pages that one question asks for

size_t InPages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

// ---- the owner ----

absl::StatusOr<std::unique_ptr<SharedArena>> SharedArena::Create(size_t bytes) {
  rlimit files{};  // ftruncate beyond it would be a signal
  if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat("files of %d bytes at most (ulimit -f)", files.rlim_cur));
  }
  FileDescriptor fd(memfd_create("cairn-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  if (fchmod(fd.get(), S_IRUSR) != 0) return absl::ErrnoToStatus(errno, "fchmod");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return absl::ErrnoToStatus(errno, "ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return absl::ErrnoToStatus(errno, "sealing an arena");
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (at == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping an arena");
  std::unique_ptr<SharedArena> arena(new SharedArena(std::move(fd), static_cast<uint8_t*>(at), bytes));
  madvise(at, bytes, MADV_DONTFORK);
  madvise(at, bytes, MADV_DONTDUMP);
  // What the other process needs later is missed now, while there is another way.
  CAIRN_RETURN_IF_ERROR(arena->OpenReadOnly().status());
  return arena;
}

SharedArena::~SharedArena() { munmap(data_, size_); }

void* SharedArena::Take(size_t bytes) {
  const size_t size = InPages(bytes);
  std::optional<size_t> place;
  {
    absl::MutexLock lock(&mutex_);
    // The first gap that is large enough, so that the arena stays dense.
    const auto gap = std::find_if(free_.begin(), free_.end(), [&](const auto& g) { return g.second >= size; });
    if (gap == free_.end() || size == 0) return nullptr;
    const size_t length = gap->second;
    place = gap->first;
    free_.erase(gap);
    if (length > size) free_[*place + size] = length - size;
  }
  // Where the memory is not there, it says so now and not by a signal when it is written to.
  if (fallocate(fd_.get(), 0, static_cast<off_t>(*place), static_cast<off_t>(size)) != 0) {
    Give(data_ + *place, bytes);
    return nullptr;
  }
  return data_ + *place;
}

void SharedArena::Give(void* p, size_t bytes) {
  Discard(p, bytes);
  size_t begin = static_cast<size_t>(static_cast<uint8_t*>(p) - data_), length = InPages(bytes);
  absl::MutexLock lock(&mutex_);
  const auto next = free_.lower_bound(begin);
  CAIRN_CHECK(next == free_.end() || begin + length <= next->first, "pages that were not taken");
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    CAIRN_CHECK(before->first + before->second <= begin, "pages that were not taken");
    if (before->first + before->second == begin) {
      begin = before->first;
      length += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && next->first == begin + length) {
    length += next->second;
    free_.erase(next);
  }
  free_[begin] = length;
}

void SharedArena::Discard(void* p, size_t bytes) {
  const auto offset = static_cast<off_t>(static_cast<uint8_t*>(p) - data_);
  // It cannot fail but for want of memory in the kernel: the pages then stay in use.
  if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, static_cast<off_t>(InPages(bytes)))) {
    std::fill_n(static_cast<uint8_t*>(p), InPages(bytes), uint8_t{0});
  }
}

std::optional<uint64_t> SharedArena::OffsetOf(const void* p, size_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(p), begin = reinterpret_cast<uintptr_t>(data_);
  if (at < begin || at - begin > size_ || bytes > size_ - (at - begin)) return std::nullopt;
  return at - begin;
}

// Another open file of the same memory: what may be done with it does not follow the owner's.
absl::StatusOr<FileDescriptor> SharedArena::OpenReadOnly() const {
  FileDescriptor fd(open(absl::StrCat("/proc/self/fd/", fd_.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return absl::ErrnoToStatus(errno, "opening an arena for readers");
  return fd;
}

size_t SharedArena::bytes_used() const {
  struct stat found {};
  return fstat(fd_.get(), &found) == 0 ? static_cast<size_t>(found.st_blocks) * 512 : 0;
}

// ---- another process ----

// A file that may shrink would fault when it is read, and so would one of huge pages that there are not.
absl::StatusOr<ArenaView> ArenaView::Open(FileDescriptor fd, size_t bytes_max) {
  // First, for no other file has seals, and one of another file system might not answer for a long time.
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError("what was given as an arena is not sealed memory");
  }
  struct stat found {};
  struct statfs system {};
  if (fstat(fd.get(), &found) != 0 || fstatfs(fd.get(), &system) != 0) return absl::ErrnoToStatus(errno, "an arena");
  if (system.f_type != TMPFS_MAGIC) return absl::InvalidArgumentError("an arena of huge pages");
  // Of another user's memory the system does not tell what is there (mincore).
  if (found.st_uid != geteuid()) return absl::PermissionDeniedError("an arena of another user");
  const auto size = static_cast<uint64_t>(found.st_size);
  if (size == 0 || size > bytes_max) {
    return absl::InvalidArgumentError(absl::StrFormat("an arena of %d bytes, at most %d", size, bytes_max));
  }
  void* const at = mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
  if (at == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping an arena");
  madvise(at, size, MADV_DONTFORK);
  madvise(at, size, MADV_DONTDUMP);
  return ArenaView(std::move(fd), static_cast<const uint8_t*>(at), size);
}

ArenaView::~ArenaView() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

// To read a page that was never there would make one, which is charged to whoever reads it. One that the system has
// moved to the disk is brought back by pread, which makes none.
std::optional<absl::Span<const uint8_t>> ArenaView::Find(uint64_t offset, size_t bytes) const {
  if (!IsThere(offset, bytes)) {
    std::array<uint8_t, 16 * kPageBytes> unused{};
    for (size_t at = 0; at < bytes; at += unused.size()) {
      const size_t piece = std::min(unused.size(), bytes - at);
      [[maybe_unused]] const ssize_t n = pread(fd_.get(), unused.data(), piece, static_cast<off_t>(offset + at));
    }
    if (!IsThere(offset, bytes)) return std::nullopt;
  }
  return absl::MakeConstSpan(data_ + offset, bytes);
}

bool ArenaView::IsThere(uint64_t offset, size_t bytes) const {
  std::array<unsigned char, kLookPages> there{};
  const uint64_t end = offset + bytes;
  for (uint64_t at = offset / kPageBytes * kPageBytes; at < end;) {
    const size_t pages = std::min<uint64_t>(kLookPages, (end - at + kPageBytes - 1) / kPageBytes);
    if (mincore(const_cast<uint8_t*>(data_ + at), pages * kPageBytes, there.data()) != 0) return false;
    if (!std::all_of(there.begin(), there.begin() + pages, [](unsigned char t) { return (t & 1) != 0; })) return false;
    at += pages * kPageBytes;
  }
  return true;
}

}  // namespace cairn
