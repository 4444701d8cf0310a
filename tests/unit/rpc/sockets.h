// What the tests of connections share: clients' sockets, and those that a listener hands on.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace cairn {

inline int NewSocket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

inline bool HasIpv6() {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_addr = in6addr_loopback;
  const bool has = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
  if (fd >= 0) close(fd);
  return has;
}

// Over IPv6; -1: error.
inline int ConnectOver6(int port) {
  const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  to.sin6_port = htons(static_cast<uint16_t>(port));
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) return fd;
  close(fd);
  return -1;
}

// "ipv6:[::1]:4711" of the socket's own side.
inline std::string NameOf6(int fd) {
  sockaddr_in6 own{};
  socklen_t size = sizeof(own);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size), 0);
  return absl::StrCat("ipv6:[::1]:", ntohs(own.sin6_port));
}

// From `source`; -1: error.
inline int Connect(int port, const char* source = "127.0.0.1") {
  const int fd = NewSocket();
  if (fd < 0) return -1;
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  inet_pton(AF_INET, source, &from.sin_addr);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  to.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd, reinterpret_cast<sockaddr*>(&from), sizeof(from)) == 0 &&
      connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    return fd;
  }
  close(fd);
  return -1;
}

// Whether the other side closes it within 10 s.
inline bool Closed(int fd) {
  pollfd ready = {fd, POLLIN, 0};
  char byte = 0;
  return poll(&ready, 1, 10'000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

class Taken {
 public:
  ~Taken() { CloseAll(); }
  void Take(int fd) {
    absl::MutexLock lock(&mutex_);
    fds_.push_back(fd);
  }
  bool Wait(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&] {
      mutex_.AssertHeld();
      return fds_.size() >= count;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(20));
  }
  std::vector<int> fds() {
    absl::MutexLock lock(&mutex_);
    return fds_;
  }
  size_t CloseAll() {
    absl::MutexLock lock(&mutex_);
    for (const int fd : fds_) close(fd);
    const size_t count = fds_.size();
    fds_.clear();
    return count;
  }

 private:
  absl::Mutex mutex_;
  std::vector<int> fds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
