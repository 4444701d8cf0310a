#include "worker/train/ps_connections.h"

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

// A replica core has one request for each partition and subtree under way, whose payloads are slices of its gradients:
// that is the bound. A lower one here could stop a large model for ever, with each worker waiting for the partitions
// that another holds back.
PsConnectionOptions WorkerConnectionOptions(TraceRecorder* trace, bool shared_memory, const SharedArena* arena) {
  PsConnectionOptions options;
  options.outstanding_bytes_max = static_cast<size_t>(kParametersMax) * sizeof(float);
  options.trace = trace;
  options.shared_memory = shared_memory;
  options.arena = arena;
  return options;
}

}  // namespace

// Null: closed.
std::shared_ptr<PsConnection> PsConnections::Find(const std::string& address) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return nullptr;
  std::shared_ptr<PsConnection>& place = connections_[address];
  if (place == nullptr) {
    place = std::make_shared<PsConnection>(address, WorkerConnectionOptions(trace_, shared_memory_, arena_));
  }
  return place;
}

void PsConnections::Send(const std::string& address, Frame frame, PsConnection::Done done) {
  if (const auto connection = Find(address)) connection->Send(std::move(frame), std::move(done));
}

void PsConnections::Snapshot(const std::string& address, Frame frame, PsConnection::OnTensor on_tensor,
                             PsConnection::Done done) {
  if (const auto connection = Find(address))
    connection->Snapshot(std::move(frame), std::move(on_tensor), std::move(done));
}

void PsConnections::Retain(const std::set<std::string>& addresses) {
  std::vector<std::shared_ptr<PsConnection>> closing;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = connections_.begin(); it != connections_.end();) {
      // Someone is in Send: that thread must not be the one to close it. The next Retain will.
      if (addresses.contains(it->first) || it->second.use_count() > 1) {
        ++it;
      } else {
        closing.push_back(std::move(it->second));
        it = connections_.erase(it);
      }
    }
  }
}

void PsConnections::Clear() {
  std::map<std::string, std::shared_ptr<PsConnection>> closing;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    closing.swap(connections_);
  }
  for (auto& [address, connection] : closing) {
    // Whoever is still in Send leaves it without waiting for anything; nobody else enters.
    while (connection.use_count() > 1) absl::SleepFor(absl::Milliseconds(1));
  }
}

}  // namespace cairn
