#include "common/rpc/listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "common/base/log.h"
#include "common/rpc/address.h"
#include "common/rpc/daemon.h"
#include "common/rpc/limits.h"

namespace cairn {
namespace {

constexpr int kBacklog = 4096;  // the system cuts it to its own limit
constexpr int kWaitMs = 50;     // for descriptors
constexpr absl::Duration kWarnEvery = absl::Seconds(10);

void SetPort(sockaddr* at, int port) {
  // At the same offset for both families.
  reinterpret_cast<sockaddr_in*>(at)->sin_port = htons(static_cast<uint16_t>(port));
}

int PortOf(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof(at);
  getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&at)->sin_port);
}

// Whether this host merely lacks that family of addresses.
bool Lacks(int error) { return error == EAFNOSUPPORT || error == EPROTONOSUPPORT || error == EADDRNOTAVAIL; }

// -1: error, in errno. dual: an IPv6 socket takes IPv4 too.
int ListenAt(const sockaddr* at, socklen_t size, bool dual) {
  const int fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (fd < 0) return -1;
  const int on = 1, v6_only = dual ? 0 : 1;
  const unsigned lost_after_ms = kConnectionLostAfterMs;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (at->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  // Connections inherit these.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost_after_ms, sizeof(lost_after_ms));
  if (bind(fd, at, size) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int why = errno;
  close(fd);
  errno = why;
  return -1;
}

// As in gRPC's name of a peer, without the port, of which machine a connection is (MachineOf).
std::string MachineOfSocket(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
    if (!IN6_IS_ADDR_V4MAPPED(&address)) return inet_ntop(AF_INET6, &address, text, sizeof(text));
    return inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof(text));
  }
  return inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, text, sizeof(text));
}

// All sockets for one port; empty: error, also if another process has the port at one of the addresses.
std::vector<int> ListenAtAll(const addrinfo* found, int port) {
  std::vector<int> out;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    sockaddr_storage at{};
    std::memcpy(&at, one->ai_addr, one->ai_addrlen);
    SetPort(reinterpret_cast<sockaddr*>(&at), port);
    const int fd = ListenAt(reinterpret_cast<const sockaddr*>(&at), one->ai_addrlen, false);
    if (fd < 0 && Lacks(errno)) continue;
    if (fd < 0) {
      for (const int open : out) close(open);
      return {};
    }
    out.push_back(fd);
    port = PortOf(fd);
  }
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const std::string& address, const ConnectionLimits& limits) {
  CAIRN_RETURN_IF_ERROR(ParseAddress(address).status());
  const std::string in_brackets = HostOf(address);
  const std::string host(absl::StripSuffix(absl::StripPrefix(in_brackets, "["), "]"));
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(in_brackets.size() + 1), &port)) {
    return absl::InvalidArgumentError(absl::StrCat("address \"", address, "\": the port is not a number"));
  }
  std::unique_ptr<Listener> out(new Listener(limits));
  if (host == "0.0.0.0" || host == "::") {  // IPv4 and IPv6 alike
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    SetPort(reinterpret_cast<sockaddr*>(&any), port);
    const int fd = ListenAt(reinterpret_cast<const sockaddr*>(&any), sizeof(any), true);
    if (fd >= 0) out->listening_ = {fd};
    if (fd < 0 && !Lacks(errno)) return absl::UnavailableError(absl::StrCat("cannot listen on \"", address, "\""));
  }
  if (out->listening_.empty()) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_flags = AI_PASSIVE;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) == 0) {
      // A port of the system's choice may be free at the first address alone.
      for (int times = port == 0 ? kListenTimesMax : 1; times > 0 && out->listening_.empty(); --times)
        out->listening_ = ListenAtAll(found, port);
      freeaddrinfo(found);
    }
  }
  if (out->listening_.empty()) return absl::UnavailableError(absl::StrCat("cannot listen on \"", address, "\""));
  out->port_ = PortOf(out->listening_.front());
  out->wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (out->wake_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
  return out;
}

void Listener::Run(Take take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { Loop(); });
  watch_ = std::thread([this] { WatchLoop(); });
}

void Listener::Stop() {
  if (wake_ >= 0) eventfd_write(wake_, 1);
  for (std::thread* thread : {&thread_, &watch_}) {
    if (thread->joinable()) thread->join();
  }
  for (const int fd : std::exchange(listening_, {})) close(fd);
  if (wake_ >= 0) close(std::exchange(wake_, -1));
}

void Listener::Loop() {
  std::vector<pollfd> ready = {{wake_, POLLIN, 0}};
  for (const int fd : listening_) ready.push_back({fd, POLLIN, 0});
  while (true) {
    if (poll(ready.data(), ready.size(), -1) < 0) continue;
    if (ready[0].revents != 0) return;
    for (size_t i = 1; i < ready.size(); ++i) {
      if (ready[i].revents != 0) Accept(ready[i].fd);
    }
  }
}

void Listener::WatchLoop() {
  pollfd stop = {wake_, POLLIN, 0};
  absl::Duration wait = kBusyWatchEvery;
  int looks_left = 0;  // soon after another
  while (true) {
    if (poll(&stop, 1, static_cast<int>(absl::ToInt64Milliseconds(wait))) > 0) return;
    looks_left = Watch() ? kGrowthLooks : std::max(0, looks_left - 1);
    wait = looks_left > 0 ? kGrowthWatchEvery : kBusyWatchEvery;
  }
}

bool Listener::Watch() {
  const auto now = std::chrono::steady_clock::now();
  const double cpu_seconds = ProcessCpuSeconds();
  const uint64_t resident = ResidentBytes();
  const bool grows = resident > std::exchange(watched_.seen, resident) + kGrowthBytes;
  const bool is_busy = cpu_seconds - watched_.cpu_seconds > absl::ToDoubleSeconds(kBusyWatchEvery) / 2;
  watched_.resident = watched_.resident == 0 ? resident : std::min(watched_.resident, resident);
  if (limits_.message_bytes_max > 0 && resident - watched_.resident >= kMemoryLookBytes) {
    watched_.resident = resident;
    WatchBytes();
  }
  if (is_busy || now - watched_.at >= absl::ToChronoMilliseconds(kCallWatchEvery)) {
    watched_.cpu_seconds = cpu_seconds;
    watched_.at = now;
    WatchCalls(now);
  }
  return grows;
}

void Listener::WatchCalls(CallWatch::Time now) {
  for (const CallWatch::Connection& one : watched_.calls.Look(now)) {
    absl::MutexLock lock(&mutex_);
    if (!table_.End(one.peer, now)) continue;  // a Unix socket, or of another server of this process
    LogWarning(
        "%s is disconnected: %d of its calls are open, and %d were begun; a connection may have %d open and begin "
        "%d a second, a machine have %d open and begin %d a second",
        one.peer, one.calls.open(), one.calls.begun, kCallsOfConnectionMax, kCallsPerSecondMax, kCallsOfMachineMax,
        kCallsOfMachinePerSecondMax);
  }
}

void Listener::WatchBytes() {
  const std::vector<CallWatch::Connection> all = watched_.counters.Each();
  absl::MutexLock lock(&mutex_);
  for (const CallWatch::Connection& one : watched_.bytes.Look(all, table_.BytesRead())) {
    if (!table_.End(one.peer, std::chrono::steady_clock::now())) continue;
    LogWarning("%s is disconnected: it sends without end, and no message of it is whole; one has %d bytes at most",
               one.peer, limits_.message_bytes_max);
  }
}

void Listener::Accept(int listening) {
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  const int fd = accept4(listening, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      pollfd stop = {wake_, POLLIN, 0};
      poll(&stop, 1, kWaitMs);
    }
    return;
  }
  const std::string machine = MachineOfSocket(from);
  ConnectionTable::Outcome outcome;
  {
    absl::MutexLock lock(&mutex_);
    outcome = table_.Admit(fd, machine, std::chrono::steady_clock::now());
  }
  if (outcome == ConnectionTable::Outcome::kAdmitted) return take_(fd);
  close(fd);
  Refused(outcome, machine);
}

void Listener::Refused(ConnectionTable::Outcome why, const std::string& machine) {
  ++refused_;
  const absl::Time now = absl::Now();
  if (now - warned_ < kWarnEvery) return;
  if (why == ConnectionTable::Outcome::kBarred) {
    LogWarning(
        "%s made too many calls, or sent without end: for %s to %s none of its connections is taken; %d were "
        "closed",
        machine, absl::FormatDuration(kBarredAfterCalls), absl::FormatDuration(kBarredAfterCallsMax), refused_);
  } else if (why == ConnectionTable::Outcome::kTooFast) {
    LogWarning("%s begins more than %d connections a second; %d were closed", machine, kConnectionsPerSecondMax,
               refused_);
  } else if (why == ConnectionTable::Outcome::kTooMany) {
    LogWarning("%d connections are open, as many as there may be (half of ulimit -n); %d more were closed",
               limits_.all_max, refused_);
  } else {
    LogWarning("%s has %d connections open, as many as one machine may have; %d more were closed", machine,
               limits_.of_machine_max, refused_);
  }
  refused_ = 0;
  warned_ = now;
}

}  // namespace cairn
