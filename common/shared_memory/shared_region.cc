#include "common/shared_memory/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_format.h"

namespace cairn {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

absl::StatusOr<SharedRegion> SharedRegion::Create(size_t bytes) {
  FileDescriptor fd(memfd_create("cairn-link", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) return absl::ErrnoToStatus(errno, "memfd_create");
  // fallocate, not ftruncate alone: where the memory is not there, it says so now and not by a signal later.
  if (fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0) return absl::ErrnoToStatus(errno, "fallocate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return absl::ErrnoToStatus(errno, "sealing shared memory");
  return Map(std::move(fd), bytes);
}

absl::StatusOr<SharedRegion> SharedRegion::Open(FileDescriptor fd, size_t bytes) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return absl::InvalidArgumentError("shared memory that is not sealed");
  struct stat found {};
  if (fstat(fd.get(), &found) != 0 || static_cast<uint64_t>(found.st_size) != bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shared memory of %d bytes, %d are expected", found.st_size, bytes));
  }
  CAIRN_ASSIGN_OR_RETURN(SharedRegion region, Map(std::move(fd), bytes));
  region.TakeDescriptor();  // a child of fork would have it
  return region;
}

absl::StatusOr<SharedRegion> SharedRegion::Map(FileDescriptor fd, size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (at == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping shared memory");
  madvise(at, bytes, MADV_DONTFORK);
  madvise(at, bytes, MADV_DONTDUMP);
  return SharedRegion(std::move(fd), static_cast<uint8_t*>(at), bytes);
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace cairn
