#include "server/node/backup_connections.h"

#include <utility>

#include "common/base/limits.h"

namespace cairn {

void BackupConnections::Keep(const std::set<std::string>& addresses) {
  std::vector<std::shared_ptr<PsConnection>> gone;  // destroyed after the lock is released
  absl::MutexLock lock(&mutex_);
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (addresses.contains(it->first)) {
      ++it;
    } else {
      gone.push_back(std::move(it->second));
      heard_.erase(it->first);
      it = connections_.erase(it);
    }
  }
  for (const std::string& address : addresses) {
    std::shared_ptr<PsConnection>& connection = connections_[address];
    if (connection != nullptr) continue;
    PsConnectionOptions options;
    options.outstanding_bytes_max = kBackupQueueBytesMax;
    options.error_frames = true;
    options.trace = trace_;
    options.shared_memory = shared_memory_;
    connection = std::make_shared<PsConnection>(address, options);
  }
}

void BackupConnections::Send(const std::string& address, std::vector<Frame> request, Done done) {
  std::shared_ptr<PsConnection> connection;
  {
    absl::MutexLock lock(&mutex_);
    auto it = connections_.find(address);
    if (it != connections_.end()) connection = it->second;
  }
  if (connection == nullptr) return done(absl::CancelledError("no backup at " + address));
  connection->Send(std::move(request), [this, address, done = std::move(done)](absl::StatusOr<Frame> answer) {
    if (answer.ok()) {
      absl::MutexLock lock(&mutex_);
      if (connections_.contains(address)) heard_[address] = clock_.Now();
    }
    done(std::move(answer));
  });
}

std::map<std::string, PeerState> BackupConnections::Peers() const {
  std::map<std::string, PeerState> peers;
  absl::MutexLock lock(&mutex_);
  for (const auto& [address, connection] : connections_) {
    const auto heard = heard_.find(address);
    peers[address] = {heard == heard_.end() ? absl::InfinitePast() : heard->second, connection->connected()};
  }
  return peers;
}

}  // namespace cairn
