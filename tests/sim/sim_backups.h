// The streams of a simulated ps to the backups of its partitions, as server/node/backup_connections in production: one
// to each ps, opened by the first request, and reopened after a back-off.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/node/backup_transport.h"
#include "tests/sim/exchange.h"

namespace cairn::sim {

class SimCluster;

class SimBackups : public BackupTransport {
 public:
  // For the host's current process. on_broken: a stream broke; may be null.
  SimBackups(SimCluster& cluster, Host& host, std::function<void()> on_broken);

  void Keep(const std::set<std::string>& addresses) override;
  void Send(const std::string& address, std::vector<Frame> request, Done done) override;
  std::map<std::string, PeerState> Peers() const override;

 private:
  struct Request {
    std::vector<Frame> frames;
    Done done;
  };
  struct Peer {
    std::shared_ptr<Exchange> exchange;  // null: no stream now
    std::vector<Request> waiting;        // for the next stream
    bool opening = false;
    absl::Time open_at = absl::InfinitePast();  // earliest time to open it
    absl::Time heard = absl::InfinitePast();    // last answer, by the host's clock
  };

  void Open(const std::string& address);
  void Broken(const std::string& address, const Exchange* exchange);
  void SendNow(const std::string& address, Peer& peer, Request request);

  SimCluster& cluster_;
  World& world_;
  Host& host_;
  const std::function<void()> on_broken_;
  std::map<std::string, Peer> peers_;
};

}  // namespace cairn::sim
