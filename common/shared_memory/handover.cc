#include "common/shared_memory/handover.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/base/unix_socket.h"
#include "common/shared_memory/limits.h"

namespace cairn {
namespace {

std::string NewTicket() {
  std::random_device random;
  return absl::StrFormat("%08x%08x%08x%08x", random(), random(), random(), random());
}

// Monotonic.
absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

// Bytes that may carry one descriptor.
struct DescriptorMessage {
  iovec part{};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};

  DescriptorMessage(void* bytes, size_t size) : part{bytes, size} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
};

// fd: -1: the bytes alone.
absl::Status SendWith(int socket, std::string bytes, int fd) {
  DescriptorMessage message(bytes.data(), bytes.size());
  if (fd < 0) {
    message.header.msg_control = nullptr;
    message.header.msg_controllen = 0;
  } else {
    cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(control), &fd, sizeof(int));
  }
  const ssize_t sent = sendmsg(socket, &message.header, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return absl::ErrnoToStatus(sent < 0 ? errno : EAGAIN, "sendmsg");
}

// All that came, so that those too many are closed.
std::vector<FileDescriptor> DescriptorsOf(DescriptorMessage& message) {
  std::vector<FileDescriptor> received;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message.header); part != nullptr; part = CMSG_NXTHDR(&message.header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= part->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(part) + at, sizeof(int));
      received.emplace_back(fd);
    }
  }
  return received;
}

absl::Status WaitFor(int fd, int16_t events, absl::Time until) {
  while (true) {
    pollfd polled{fd, events, 0};
    const absl::Duration left = until - SteadyNow();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("the memory did not come in time");
    const int ready = poll(&polled, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HandoverSocket>> HandoverSocket::Listen(const std::string& path, bool own_only) {
  CAIRN_ASSIGN_OR_RETURN(FileDescriptor listening, ListenOnUnixSocket(path, own_only));
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake.get() < 0) return absl::ErrnoToStatus(errno, "eventfd");
  return std::unique_ptr<HandoverSocket>(new HandoverSocket(path, std::move(listening), std::move(wake)));
}

HandoverSocket::HandoverSocket(std::string path, FileDescriptor listening, FileDescriptor wake)
    : path_(std::move(path)), listening_(std::move(listening)), wake_(std::move(wake)), thread_([this] { Loop(); }) {}

HandoverSocket::~HandoverSocket() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
  thread_.join();
  unlink(path_.c_str());
}

std::string HandoverSocket::Offer(Give give) {
  std::string ticket = NewTicket();
  absl::MutexLock lock(&mutex_);
  offers_.emplace(ticket, std::move(give));
  return ticket;
}

void HandoverSocket::Withdraw(const std::string& ticket) {
  Give dropped;  // what it holds is released without the lock
  absl::MutexLock lock(&mutex_);
  const auto found = offers_.find(ticket);
  if (found == offers_.end()) return;
  dropped = std::move(found->second);
  offers_.erase(found);
}

void HandoverSocket::Loop() {
  pthread_setname_np(pthread_self(), "handover");
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
    }
    std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
    for (const Waiting& connection : waiting_) polled.push_back({connection.fd.get(), POLLIN, 0});
    // With connections, often enough to end those that say nothing.
    if (poll(polled.data(), polled.size(), waiting_.empty() ? -1 : 100) < 0) {
      absl::SleepFor(kHandoverRetryAfter);
      continue;
    }
    const absl::Time now = SteadyNow();
    size_t i = 2;
    for (auto it = waiting_.begin(); it != waiting_.end(); ++i) {
      const bool done = (polled[i].revents != 0 && Read(it->fd)) || now > it->until;
      it = done ? waiting_.erase(it) : std::next(it);
    }
    if (polled[1].revents != 0) Accept();
  }
}

void HandoverSocket::Accept() {
  FileDescriptor fd(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.get() < 0) {
    // Out of descriptors or memory: the connection stays in the kernel's queue, and poll would return at once.
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) absl::SleepFor(kHandoverRetryAfter);
    return;
  }
  if (waiting_.size() >= kHandoverConnectionsMax) waiting_.pop_front();  // the one that has said nothing for longest
  waiting_.push_back({std::move(fd), SteadyNow() + kHandoverPatience});
}

// What a stranger sends is not received: to close some kinds of files takes long.
bool HandoverSocket::Read(const FileDescriptor& connection) {
  char bytes[kTicketBytes];
  const ssize_t seen = recv(connection.get(), bytes, kTicketBytes, MSG_DONTWAIT | MSG_PEEK);
  if (seen < 0) return errno != EAGAIN && errno != EINTR;
  if (static_cast<size_t>(seen) < kTicketBytes) return true;  // a taker writes it at once
  Give give;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = offers_.find(std::string(bytes, kTicketBytes));
    if (found == offers_.end()) return true;
    give = std::move(found->second);
    offers_.erase(found);
  }
  DescriptorMessage message(bytes, kTicketBytes);
  if (recvmsg(connection.get(), &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0) return true;
  std::vector<FileDescriptor> received = DescriptorsOf(message);
  const absl::StatusOr<Given> given = give(received.empty() ? FileDescriptor() : std::move(received[0]));
  absl::Status status = given.status();
  if (given.ok()) {
    status = SendWith(connection.get(), std::string(1, given->reads_arena ? 1 : 0), given->region.get());
  }
  if (!status.ok()) LogWarning("shared memory: not given: %s", status.message());
  return true;
}

absl::StatusOr<TakenRegion> TakeRegion(FileDescriptor connection, const std::string& ticket, size_t bytes,
                                       const SharedArena* own, absl::Duration timeout) {
  const absl::Time until = SteadyNow() + timeout;
  FileDescriptor arena;
  if (own != nullptr) {
    absl::StatusOr<FileDescriptor> opened = own->OpenReadOnly();
    if (opened.ok()) arena = *std::move(opened);  // else it goes without
  }
  if (absl::Status sent = SendWith(connection.get(), ticket, arena.get()); !sent.ok()) {
    return absl::UnavailableError(absl::StrCat("the ticket could not be sent: ", sent.message()));
  }
  CAIRN_RETURN_IF_ERROR(WaitFor(connection.get(), POLLIN, until));
  char reads_arena = 0;
  DescriptorMessage message(&reads_arena, 1);
  const ssize_t n = recvmsg(connection.get(), &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  std::vector<FileDescriptor> received = n < 0 ? std::vector<FileDescriptor>() : DescriptorsOf(message);
  if (n != 1 || received.size() != 1) {
    return absl::UnavailableError("the other process gave no memory; its log says why");
  }
  CAIRN_ASSIGN_OR_RETURN(SharedRegion region, SharedRegion::Open(std::move(received[0]), bytes));
  return TakenRegion{std::move(region), arena.get() >= 0 && reads_arena == 1};
}

}  // namespace cairn
