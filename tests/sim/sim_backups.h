// The streams of a simulated ps to the backups of its partitions, as server/node/backup_connections has them in
// production: one to each ps, opened by the first request on it, and again after a pause.
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
  // Of the host's present process. on_broken: a stream broke; may be null.
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
    std::shared_ptr<Exchange> exchange;  // null: no stream at present
    std::vector<Request> waiting;        // for the next one
    bool opening = false;
    absl::Time open_at = absl::InfinitePast();  // not before
    absl::Time heard = absl::InfinitePast();    // by the host's clock
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
