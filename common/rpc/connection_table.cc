#include "common/rpc/connection_table.h"

#include <sys/stat.h>

#include <algorithm>

#include "common/rpc/limits.h"

namespace cairn {
namespace {

// Which socket a descriptor is; nullopt: it is closed.
std::optional<ino_t> SocketOf(int fd) {
  struct stat found {};
  if (fstat(fd, &found) != 0 || !S_ISSOCK(found.st_mode)) return std::nullopt;
  return found.st_ino;
}

}  // namespace

ConnectionLimits ConnectionLimitsOf(uint64_t open_files) {
  const auto all = static_cast<size_t>(std::min<uint64_t>(open_files / 2, kConnectionsMax));
  return {.all_max = all, .of_machine_max = std::min(all / 2, kConnectionsOfMachineMax)};
}

bool ConnectionTable::IsOpen(int fd, const Entry& entry) const { return SocketOf(fd) == entry.socket; }

void ConnectionTable::Forget(std::unordered_map<int, Entry>::iterator entry) {
  const auto count = counts_.find(entry->second.machine);
  if (--count->second == 0) counts_.erase(count);
  entries_.erase(entry);
}

void ConnectionTable::Sweep(const std::string* machine) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    if ((machine == nullptr || entry->second.machine == *machine) && !IsOpen(entry->first, entry->second)) {
      Forget(entry);
    }
  }
}

ConnectionTable::Outcome ConnectionTable::Admit(int fd, const std::string& machine) {
  const std::optional<ino_t> socket = SocketOf(fd);
  if (!socket) return Outcome::kTooMany;
  // The descriptor is new, so what had it before is closed.
  if (const auto before = entries_.find(fd); before != entries_.end()) Forget(before);
  const auto of_machine = [&] {
    const auto count = counts_.find(machine);
    return count == counts_.end() ? 0 : count->second;
  };
  if (of_machine() >= limits_.of_machine_max) Sweep(&machine);
  if (of_machine() >= limits_.of_machine_max) return Outcome::kTooManyOfMachine;
  if (entries_.size() >= limits_.all_max) Sweep(nullptr);
  if (entries_.size() >= limits_.all_max) return Outcome::kTooMany;
  entries_.emplace(fd, Entry{machine, *socket});
  ++counts_[machine];
  return Outcome::kAdmitted;
}

}  // namespace cairn
