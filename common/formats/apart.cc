#include "common/formats/apart.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/formats/limits.h"
#include "common/formats/plain_file.h"

namespace cairn {
namespace {

constexpr int kClockPerProcessor = 10;

absl::Status NoRoom(const char* what) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot make ", what, ": ", std::strerror(errno)));
}

// The size of this process' address space, in bytes.
size_t AddressSpace() {
  size_t pages = 0;
  FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file != nullptr) {
    if (std::fscanf(file, "%zu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void Limit(int resource, uint64_t value) {
  const rlimit limit{value, value};
  (void)setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

// The child process, which ends in this function. It answers with a code of 4 bytes and a message.
[[noreturn]] void Child(int out, pid_t parent, const ApartLimits& limits, size_t address_space,
                        absl::FunctionRef<absl::Status()> work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  // Close the parent's descriptors: its peers must notice when the parent ends.
  constexpr int kOut = 3;
  if (out != kOut && dup2(out, kOut) < 0) _exit(1);
  close_range(kOut + 1, ~0u, 0);
  // A limit must end this process: an inherited handler that writes memory would be called again for its own fault.
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTERM, SIGINT, SIGXFSZ, SIGXCPU})
    std::signal(signal, SIG_DFL);
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_FSIZE, 0);
  Limit(RLIMIT_CPU, static_cast<uint64_t>(std::max<int64_t>(1, absl::ToInt64Seconds(limits.processor_max))));
  if (address_space > 0) Limit(RLIMIT_AS, address_space + limits.memory_bytes_max);
  const absl::Status status = work();
  const int32_t code = status.raw_code();
  // Allocates nothing, since the memory may be at its limit.
  if (WriteAll(kOut, {reinterpret_cast<const char*>(&code), sizeof(code)}, "the answer").ok())
    WriteAll(kOut, status.message().substr(0, kApartMessageBytesMax), "the answer").IgnoreError();
  _exit(0);
}

// Reads until the other end is closed; false: not before the deadline.
bool ReadUntil(int fd, absl::Time deadline, std::string* out) {
  char chunk[4096];
  for (;;) {
    pollfd poll{fd, POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    const int ready = left_ms <= 0 ? 0 : ::poll(&poll, 1, static_cast<int>(std::min<int64_t>(left_ms, 1 << 30)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t n = ::read(fd, chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    out->append(chunk, static_cast<size_t>(n));
  }
}

absl::Status Ended(int how, const ApartLimits& limits) {
  if (WIFSIGNALED(how) && (WTERMSIG(how) == SIGXCPU || WTERMSIG(how) == SIGKILL)) {
    return absl::DataLossError(absl::StrCat("reading it took more than ", absl::FormatDuration(limits.processor_max),
                                            " or was killed; the file is damaged"));
  }
  return absl::DataLossError(absl::StrCat(
      "the library that reads it ended with ",
      WIFSIGNALED(how) ? absl::StrCat("signal ", WTERMSIG(how), " (", strsignal(WTERMSIG(how)), ")") : "an error",
      "; the file is damaged"));
}

}  // namespace

absl::StatusOr<Buffer> AllocateShared(size_t bytes) {
  if (bytes == 0) return Buffer();
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return NoRoom("room for the file's numbers");
  std::shared_ptr<const void> owner(memory, [bytes](const void* p) { munmap(const_cast<void*>(p), bytes); });
  return Buffer::Wrap(std::move(owner), memory, bytes);
}

absl::Status RunApart(const std::string& where, const ApartLimits& limits, absl::FunctionRef<absl::Status()> work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Annotate(NoRoom("a pipe"), where);
  const size_t address_space = AddressSpace();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) Child(ends[1], parent, limits, address_space, work);
  const absl::Status started = child < 0 ? NoRoom("a process") : absl::OkStatus();
  close(ends[1]);
  std::string said;
  if (started.ok() && !ReadUntil(ends[0], absl::Now() + kClockPerProcessor * limits.processor_max, &said)) {
    kill(child, SIGKILL);
  }
  close(ends[0]);
  if (!started.ok()) return Annotate(started, where);
  int how = 0;
  while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
  }
  int32_t code = 0;
  if (!WIFEXITED(how) || WEXITSTATUS(how) != 0 || said.size() < sizeof(code))
    return Annotate(Ended(how, limits), where);
  std::memcpy(&code, said.data(), sizeof(code));
  return absl::Status(static_cast<absl::StatusCode>(code), said.substr(sizeof(code)));
}

}  // namespace cairn
