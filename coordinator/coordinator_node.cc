#include "coordinator/coordinator_node.h"

#include <utility>

#include "common/rpc/daemon.h"
#include "common/rpc/server.h"
#include "coordinator/cluster_driver.h"
#include "coordinator/job_service.h"
#include "coordinator/session_service.h"
#include "coordinator/state_store.h"

namespace cairn {
namespace {

// Calls are answered by then: the driver ends them all before the server stops.
constexpr absl::Duration kStopGrace = absl::Seconds(2);

}  // namespace

class CoordinatorNode::Impl {
 public:
  Impl(const CoordinatorNodeOptions& options, StateStore store, const StoredState& state)
      : driver_(
            options.core, RandomBits(), std::move(store), state, &clock_,
            options.on_fatal ? options.on_fatal : [](const absl::Status&) {}),
        sessions_(&driver_),
        jobs_(&driver_, &clock_) {}

  absl::Status Listen(const std::string& listen) {
    RpcServerOptions options;
    options.listen = listen;
    CAIRN_ASSIGN_OR_RETURN(server_, RpcServer::Start(options, {&sessions_, &jobs_}));
    return absl::OkStatus();
  }

  void Stop() {
    driver_.Stop();
    if (server_ != nullptr) server_->Stop(kStopGrace);
  }

  const RpcServer& server() const { return *server_; }

 private:
  RealClock clock_;
  ClusterDriver driver_;
  SessionService sessions_;
  JobServiceImpl jobs_;
  std::unique_ptr<RpcServer> server_;
};

absl::StatusOr<std::unique_ptr<CoordinatorNode>> CoordinatorNode::Start(const CoordinatorNodeOptions& options,
                                                                        std::unique_ptr<KvStore> store) {
  CAIRN_RETURN_IF_ERROR(options.core.Validate());
  StateStore state_store(std::move(store));
  CAIRN_ASSIGN_OR_RETURN(const StoredState state, state_store.Load());
  auto impl = std::make_unique<Impl>(options, std::move(state_store), state);
  CAIRN_RETURN_IF_ERROR(impl->Listen(options.listen));
  return std::unique_ptr<CoordinatorNode>(new CoordinatorNode(std::move(impl)));
}

CoordinatorNode::CoordinatorNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CoordinatorNode::~CoordinatorNode() { Stop(); }

int CoordinatorNode::port() const { return impl_->server().port(); }

std::string CoordinatorNode::address() const { return impl_->server().Address(""); }

void CoordinatorNode::Stop() { impl_->Stop(); }

}  // namespace cairn
