#include "common/rpc/connection_table.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/rpc/limits.h"

namespace cairn {
namespace {

// So many machines are kept without a look at which of them are idle.
constexpr size_t kMachinesKept = 512;

// Which socket a descriptor is; nullopt: it is closed.
std::optional<ino_t> SocketOf(int fd) {
  struct stat found {};
  if (fstat(fd, &found) != 0 || !S_ISSOCK(found.st_mode)) return std::nullopt;
  return found.st_ino;
}

ConnectionTable::Time::duration Steady(absl::Duration duration) {
  return std::chrono::duration_cast<ConnectionTable::Time::duration>(absl::ToChronoNanoseconds(duration));
}

bool RemembersBar(const std::optional<ConnectionTable::Time>& barred_until, ConnectionTable::Time now) {
  return barred_until && now < *barred_until + Steady(kBarsForgottenAfter);
}

bool WasJustSwept(const std::optional<ConnectionTable::Time>& swept, ConnectionTable::Time now) {
  return swept && now - *swept < absl::ToChronoMilliseconds(kConnectionSweepEvery);
}

// The beginning of Linux' tcp_info, of which <netinet/tcp.h> has less.
struct TcpInfo {
  char before[128];
  uint64_t bytes_received;
};
static_assert(sizeof(TcpInfo) == 136);

// "ipv4:10.0.0.7:4711", "ipv6:[::1]:4711"; empty: it is not connected.
std::string PeerOf(int fd) {
  sockaddr_storage from{};
  socklen_t size = sizeof(from);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&from), &size) != 0) return "";
  const auto& four = reinterpret_cast<const sockaddr_in&>(from);
  const auto& six = reinterpret_cast<const sockaddr_in6&>(from);
  const bool is_six = from.ss_family == AF_INET6;
  char text[INET6_ADDRSTRLEN] = "";
  if (is_six && !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
    return absl::StrCat("ipv6:[", inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof(text)), "]:", ntohs(six.sin6_port));
  const void* const address = is_six ? static_cast<const void*>(&six.sin6_addr.s6_addr[12]) : &four.sin_addr;
  return absl::StrCat("ipv4:", inet_ntop(AF_INET, address, text, sizeof(text)), ":",
                      ntohs(is_six ? six.sin6_port : four.sin_port));
}

}  // namespace

ConnectionLimits ConnectionLimitsOf(uint64_t open_files) {
  const auto all = static_cast<size_t>(std::min<uint64_t>(open_files / 2, kConnectionsMax));
  return {.all_max = all, .of_machine_max = std::min(all / 2, kConnectionsOfMachineMax)};
}

bool ConnectionTable::IsOpen(int fd, const Entry& entry) const { return SocketOf(fd) == entry.socket; }

void ConnectionTable::Forget(std::unordered_map<int, Entry>::iterator entry) {
  --machines_.at(entry->second.machine).open;
  entries_.erase(entry);
}

void ConnectionTable::Bar(Machine& machine, Time now) {
  if (machine.barred_until && now < *machine.barred_until) return;  // for another of its connections
  machine.barred_for = RemembersBar(machine.barred_until, now)
                           ? std::min(2 * machine.barred_for, Steady(kBarredAfterCallsMax))
                           : Steady(kBarredAfterCalls);
  machine.barred_until = now + machine.barred_for;
}

bool ConnectionTable::Begin(Machine& machine, Time now) {
  const double passed = std::chrono::duration<double>(now - machine.begun_at).count();
  machine.begun = std::max(0.0, machine.begun - std::max(0.0, passed) * kConnectionsPerSecondMax);
  machine.begun_at = now;
  if (machine.begun + 1 > kConnectionsAtOnceMax) return false;
  machine.begun += 1;
  return true;
}

void ConnectionTable::DropIdle(Time now) {
  for (auto it = machines_.begin(); it != machines_.end();) {
    Machine& machine = it->second;
    const double passed = std::chrono::duration<double>(now - machine.begun_at).count();
    const bool idle = machine.open == 0 && !RemembersBar(machine.barred_until, now) &&
                      machine.begun <= passed * kConnectionsPerSecondMax;
    it = idle ? machines_.erase(it) : std::next(it);
  }
  machines_looked_at_ = machines_.size();
}

void ConnectionTable::SweepMachine(const std::string& machine, Time now) {
  Machine& mine = machines_.at(machine);
  if (WasJustSwept(mine.swept, now)) return;
  mine.swept = now;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if (entry->second.machine == machine && !IsOpen(entry->first, entry->second)) Forget(entry);
  }
}

void ConnectionTable::SweepAll(Time now) {
  if (WasJustSwept(swept_, now)) return;
  swept_ = now;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if (!IsOpen(entry->first, entry->second)) Forget(entry);
  }
}

ConnectionTable::Outcome ConnectionTable::Admit(int fd, const std::string& machine, Time now) {
  const std::optional<ino_t> socket = SocketOf(fd);
  if (!socket) return Outcome::kTooMany;
  // The descriptor is new, so what had it before is closed.
  if (const auto before = entries_.find(fd); before != entries_.end()) Forget(before);
  const auto mine = machines_.find(machine);
  if (mine != machines_.end() && mine->second.barred_until && now < *mine->second.barred_until) return Outcome::kBarred;
  const auto is_full = [&] {
    const auto found = machines_.find(machine);
    return found != machines_.end() && found->second.open >= limits_.of_machine_max;
  };
  if (is_full()) SweepMachine(machine, now);
  if (is_full()) return Outcome::kTooManyOfMachine;
  if (entries_.size() >= limits_.all_max) SweepAll(now);
  if (entries_.size() >= limits_.all_max) return Outcome::kTooMany;
  if (machines_.size() >= 2 * std::max(machines_looked_at_, kMachinesKept)) DropIdle(now);
  Machine& from = machines_[machine];
  if (!Begin(from, now)) return Outcome::kTooFast;
  entries_.emplace(fd, Entry{machine, *socket});
  ++from.open;
  return Outcome::kAdmitted;
}

std::unordered_map<std::string, uint64_t> ConnectionTable::BytesRead() const {
  std::unordered_map<std::string, uint64_t> out;
  for (const auto& [fd, entry] : entries_) {
    TcpInfo info{};
    socklen_t size = sizeof(info);
    if (!IsOpen(fd, entry) || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    int unread = 0;
    if (ioctl(fd, FIONREAD, &unread) != 0) continue;
    const uint64_t read = info.bytes_received - std::min<uint64_t>(info.bytes_received, unread);
    if (std::string peer = PeerOf(fd); !peer.empty()) out.emplace(std::move(peer), read);
  }
  return out;
}

bool ConnectionTable::End(const std::string& peer, Time now) {
  for (const auto& [fd, entry] : entries_) {
    if (!IsOpen(fd, entry) || PeerOf(fd) != peer) continue;
    Bar(machines_.at(entry.machine), now);
    // The system drops the connection and what it holds of it; the owner of the descriptor finds it closed.
    sockaddr nobody{};
    nobody.sa_family = AF_UNSPEC;
    return connect(fd, &nobody, sizeof(nobody)) == 0;
  }
  return false;
}

}  // namespace cairn
