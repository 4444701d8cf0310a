// SimNode: the base of a simulated ps or worker: a host, a process that starts and ends, and a Session with
// the leading coordinator.
#pragma once

#include <memory>
#include <string>

#include "cairn/v1/cluster.pb.h"
#include "tests/sim/network.h"

namespace cairn::sim {

class SimCluster;

class SimNode {
 public:
  SimNode(SimCluster& cluster, std::string name);
  virtual ~SimNode() = default;

  void Start();
  void End();  // kill -9
  bool up() const { return host_.up; }
  Host& host() { return host_; }
  const std::string& name() const { return host_.name; }
  void BreakSession();
  // Whether its current session has lasted this long.
  bool ConnectedFor(absl::Duration time) const {
    return session_ != nullptr && welcome_ && world_.now() - welcomed_at_ > time;
  }
  // The time of the last message from a coordinator, by this host's clock.
  absl::Time last_welcome() const { return last_welcome_; }

 protected:
  virtual v1::Hello Hello() = 0;
  virtual v1::Heartbeat Heartbeat() { return {}; }
  virtual void OnCommand(const v1::CoordinatorMessage& message) = 0;
  virtual void OnStart() {}
  virtual void OnEnd() = 0;

  void Say(v1::NodeMessage message);
  absl::Time Now() const;
  // Runs fn in this process after the delay, by this host's clock.
  void Later(absl::Duration delay, std::function<void()> fn);

  SimCluster& cluster_;
  World& world_;
  Host host_;

 private:
  void Connect();
  void Reconnect();
  void OnMessage(const v1::CoordinatorMessage& message);
  void Beat(const std::shared_ptr<Stream>& session);

  std::shared_ptr<Stream> session_;
  bool welcome_ = false;
  size_t coordinator_ = 0;
  absl::Duration back_off_;
  absl::Duration heartbeat_interval_;
  absl::Time last_welcome_;
  absl::Time welcomed_at_;  // of the session, in world time
};

// A short description of a message, for traces.
std::string Describe(const v1::CoordinatorMessage& message);
std::string Describe(const v1::NodeMessage& message);

}  // namespace cairn::sim
