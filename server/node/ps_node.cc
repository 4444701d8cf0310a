#include "server/node/ps_node.h"

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/session_client.h"
#include "common/base/files.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "common/rpc/daemon.h"
#include "common/rpc/shared_frames.h"
#include "common/shared_memory/handover.h"
#include "server/node/exchange_service.h"
#include "server/node/node_name.h"
#include "server/node/partition_host.h"
#include "server/storage/persistence.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

// Long enough for a message to leave; the process then stops as on a signal.
constexpr absl::Duration kTellFault = absl::Milliseconds(300);

// Removes sockets of earlier processes with this data directory. The directory is locked, so no process listens there.
void RemoveOldSockets(const std::string& data_dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(data_dir, error)) {
    const fs::path extension = entry.path().extension();
    if ((extension == ".sock" || extension == ".mem") && fs::is_socket(entry.symlink_status(error)))
      fs::remove(entry.path(), error);
  }
}

// The name contains the incarnation: on another host the same path is then another file name, and never taken for this
// ps.
std::string UnixSocketFor(const PsNodeOptions& options, uint64_t incarnation) {
  if (options.unix_socket == "none") return "";
  if (!options.unix_socket.empty()) return fs::absolute(options.unix_socket).string();
  const std::string path =
      (fs::absolute(options.data_dir) / absl::StrFormat("ps-%016x.sock", incarnation)).lexically_normal().string();
  if (path.size() <= kUnixSocketPathBytesMax) return path;
  LogWarning(
      "no Unix socket: %s is longer than %d bytes; workers on this host use TCP; --unix-socket sets a shorter one",
      path, kUnixSocketPathBytesMax);
  return "";
}

}  // namespace

absl::Status PsNodeOptions::Validate() const {
  CAIRN_RETURN_IF_ERROR(Annotate(ParseAddress(listen).status(), "listen"));
  if (coordinator.empty()) return absl::InvalidArgumentError("coordinator: say where it listens, host:port");
  CAIRN_RETURN_IF_ERROR(Annotate(ParseCoordinators(coordinator).status(), "coordinator"));
  if (data_dir.empty()) return absl::InvalidArgumentError("data-dir: say where variables are kept");
  if (threads < 0 || threads > 256)
    return absl::InvalidArgumentError(absl::StrFormat("threads: %d is not in 0..256", threads));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PsNode>> PsNode::Start(const PsNodeOptions& options) {
  CAIRN_RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<PsNode> node(new PsNode);
  node->options_ = options;
  node->incarnation_ = RandomBits();
  PsNodeOptions& o = node->options_;
  if (o.threads == 0) o.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 4);
  if (o.host_label.empty()) o.host_label = HostName();
  if (const absl::Status made = MakeFolders(o.data_dir); !made.ok())
    return absl::PermissionDeniedError(absl::StrCat("data-dir ", o.data_dir, ": ", made.message()));
  CAIRN_ASSIGN_OR_RETURN(
      node->store_, OpenRocksDbKvStore((fs::path(o.data_dir) / "store").string(),
                                       [node = node.get()](const absl::Status& status) { node->StoreFailed(status); }));
  const bool joined = Persistence(*node->store_).ClusterId().value_or(0) != 0;  // StartServer tells errors
  CAIRN_ASSIGN_OR_RETURN(o.name, ChooseNodeName({o.data_dir, o.name, joined}, OwnCaller()));
  CAIRN_RETURN_IF_ERROR(node->StartServer());
  node->StartSession();
  return node;
}

absl::Status PsNode::StartServer() {
  RemoveOldSockets(options_.data_dir);
  PartitionHostCallbacks callbacks;
  callbacks.reply = [this](uint64_t client, Frame frame) { exchange_->Send(client, std::move(frame)); };
  callbacks.job_error = [this](JobId job, Generation generation, const absl::Status& status) {
    if (store_failed_) return;  // the process ends: what the disk holds can be served again
    v1::NodeMessage message;
    message.mutable_job_error()->set_job_id(job.value);
    message.mutable_job_error()->set_generation(generation.value);
    message.mutable_job_error()->set_message(absl::StrFormat("ps \"%s\": %s", options_.name, status.ToString()));
    control_->Post([this, message = std::move(message)] {
      if (session_ != nullptr) session_->Send(message);
    });
  };
  callbacks.backup_report = [this](v1::BackupReport report) {
    v1::NodeMessage message;
    *message.mutable_backup_report() = std::move(report);
    control_->Post([this, message = std::move(message)] {
      if (session_ != nullptr) session_->Send(message);
    });
  };
  callbacks.figures = [this](v1::FiguresReport report) {
    v1::NodeMessage message;
    *message.mutable_figures() = std::move(report);
    control_->Post([this, message = std::move(message)] {
      if (session_ != nullptr) session_->Send(message);
    });
  };
  callbacks.kept = [this](v1::PartitionsReady ready) {
    v1::NodeMessage message;
    *message.mutable_partitions_ready() = std::move(ready);
    control_->Post([this, message = std::move(message)] {
      if (session_ != nullptr) session_->Send(message);
    });
  };
  control_ = std::make_unique<SerialExecutor>("control");
  host_ = std::make_unique<PartitionHost>(
      *store_, ProcessEnvironment(timing_.clock, options_.threads, &timing_.trace, options_.shared_memory),
      std::move(callbacks));
  exchange_ = std::make_unique<ExchangeService>(host_.get());
  exchange_->SetTrace(&timing_.trace);
  absl::StatusOr<uint64_t> cluster_id = Persistence(*store_).ClusterId();
  if (cluster_id.ok()) cluster_id_ = *cluster_id;
  if (absl::Status status = cluster_id.ok() ? host_->LoadHeld() : cluster_id.status(); !status.ok()) {
    return Annotate(status,
                    absl::StrCat("data-dir ", options_.data_dir,
                                 ": its list of jobs is damaged; restore it from a copy, or start with an empty one"));
  }
  RpcServerOptions server;
  server.listen = options_.listen;
  server.unix_socket = UnixSocketFor(options_, incarnation_);
  server.receive_bytes_max = static_cast<int>(kFrameBytesMax);
  server.rpc_bytes_max = kReceivedBytesMax + kRpcBytesMax;  // gRPC holds what was received until it is handled
  OfferSharedMemory(server.unix_socket);
  CAIRN_ASSIGN_OR_RETURN(server_, RpcServer::Start(server, {exchange_->service()}));
  server_->SetServing(kReadyService, false);
  address_ = server_->Address(options_.advertise);
  return absl::OkStatus();
}

// Before the first stream.
void PsNode::OfferSharedMemory(const std::string& unix_socket) {
  if (!options_.shared_memory || unix_socket.empty()) return;
  absl::StatusOr<std::unique_ptr<HandoverSocket>> handover =
      HandoverSocket::Listen(HandoverPath(unix_socket), /*own_only=*/UsesTls());
  if (!handover.ok()) {
    LogWarning("no shared memory: %s; workers on this host use the socket; --unix-socket sets another path",
               handover.status().message());
    return;
  }
  exchange_->SetHandover(*std::move(handover));
}

void PsNode::StartSession() {
  SessionCallbacks callbacks;
  callbacks.hello = [this] {
    v1::Hello hello;
    hello.set_name(options_.name);
    hello.set_role(v1::PS);
    hello.set_address(address_);
    hello.set_host(options_.host_label);
    hello.set_incarnation(incarnation_);
    for (v1::HeldPartitions& held : host_->Held()) *hello.add_held() = std::move(held);
    hello.set_fault(Fault());
    hello.set_cluster_id(cluster_id_);
    hello.set_version(ProgramVersion());
    hello.set_interface(ClusterInterface());
    return hello;
  };
  callbacks.heartbeat = [this] {
    v1::Heartbeat heartbeat;
    heartbeat.set_memory_bytes(ResidentBytes());
    heartbeat.set_cpu_seconds(ProcessCpuSeconds());
    heartbeat.set_fault(Fault());
    return heartbeat;
  };
  callbacks.on_message = [this](const v1::CoordinatorMessage& message) {
    control_->Post([this, message] { Command(message); });
  };
  callbacks.on_connection = [this](bool up) {
    if (up) {
      LogInfo("joined the cluster at %s as \"%s\"", options_.coordinator, options_.name);
      host_->ReportAgain();
    } else {
      LogWarning("the coordinator at %s is away; continuing without it", options_.coordinator);
      control_->Post([this] { SetReady("the coordinator is away"); });  // after the messages that it sent before
    }
  };
  callbacks.on_rejected = [](const absl::Status& status) {
    LogError("the coordinator refuses this ps: %s; trying again", status.ToString());
  };
  callbacks.on_unreached = [this](const absl::Status& status) {
    LogWarning("no coordinator at %s, trying again: %s", options_.coordinator, status.message());
  };
  callbacks.trace = &timing_.trace;
  control_->RunAndWait([&] { session_ = std::make_unique<SessionClient>(options_.coordinator, std::move(callbacks)); });
}

absl::Status PsNode::Ready() const {
  absl::MutexLock lock(&ready_mutex_);
  return not_ready_.empty() ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("not ready: ", not_ready_));
}

void PsNode::SetReady(std::string why_not) {
  absl::MutexLock lock(&ready_mutex_);
  not_ready_ = std::move(why_not);
  server_->SetServing(kReadyService, not_ready_.empty());
}

// From the thread whose write failed. Nothing is acknowledged any more that needs the store. The coordinator is told
// before the process ends, so that `cairn nodes` has the reason.
void PsNode::StoreFailed(const absl::Status& status) {
  store_failed_ = true;
  if (control_ == nullptr) return;  // Start fails
  control_->Post([this, status] {
    LogError("the store in %s failed: %s; this ps stops serving and ends with %d", options_.data_dir, status.message(),
             kExitStoreFailed);
    SetReady("its store failed");
    if (session_ != nullptr) {
      v1::NodeMessage message;
      message.mutable_heartbeat()->set_memory_bytes(ResidentBytes());
      message.mutable_heartbeat()->set_cpu_seconds(ProcessCpuSeconds());
      message.mutable_heartbeat()->set_fault(FaultText(status));
      session_->Send(std::move(message));
    }
    control_->PostAfter(kTellFault, [this, status] {
      if (options_.on_fatal) options_.on_fatal(status);
    });
  });
}

std::string PsNode::Fault() const {
  const std::string fault = host_->fault();
  return fault.empty() ? fault : FaultText(absl::UnavailableError(fault));
}

std::string PsNode::FaultText(const absl::Status& status) const {
  return absl::StrFormat(
      "its data directory %s failed: %s; make room there or repair it, then restart the ps (on an empty directory if "
      "it is damaged)",
      options_.data_dir, status.message());
}

void PsNode::Command(const v1::CoordinatorMessage& message) {
  if (session_ == nullptr) return;  // stopping
  v1::NodeMessage answer;
  if (message.has_welcome()) {
    const absl::Status kept = KeepNodeName(options_.data_dir, options_.name);
    if (!kept.ok()) LogError("data directory %s: this ps' name cannot be kept: %s", options_.data_dir, kept.ToString());
    JoinCluster(message.welcome().cluster_id());
  } else if (message.has_readiness()) {
    SetReady(message.readiness().why());
  } else if (message.has_host_partitions()) {
    const v1::HostPartitions& host = message.host_partitions();
    absl::StatusOr<v1::PartitionsReady> ready = host_->Host(host);
    if (ready.ok()) {
      LogInfo("job %d: %s ready, generation %d", host.job_id(), CountText(host.partitions_size(), "partition"),
              host.generation());
      *answer.mutable_partitions_ready() = *std::move(ready);
      session_->Send(std::move(answer));
    } else if (absl::IsAborted(ready.status())) {
      LogInfo("ignored: %s", ready.status().message());
    } else {
      LogError("job %d: %s", host.job_id(), ready.status().ToString());
      if (store_failed_) return;  // the process ends; the job waits for it to come back
      v1::JobError* error = answer.mutable_job_error();
      error->set_job_id(host.job_id());
      error->set_generation(host.generation());
      error->set_message(absl::StrFormat("ps \"%s\", data directory %s: %s", options_.name, options_.data_dir,
                                         ready.status().ToString()));
      session_->Send(std::move(answer));
    }
  } else if (message.has_figures_stored()) {
    const v1::FiguresStored& stored = message.figures_stored();
    host_->FiguresStored(JobId(stored.job_id()), stored.epochs(), stored.question());
  } else if (message.has_drop_job()) {
    const absl::Status status = host_->Drop(JobId(message.drop_job().job_id()));
    if (!status.ok()) LogError("job %d: cannot be dropped: %s", message.drop_job().job_id(), status.ToString());
  }
}

// Runs before any partition is assigned.
void PsNode::JoinCluster(uint64_t id) {
  if (id == 0 || cluster_id_ != 0) return;
  const absl::Status status = Persistence(*store_).SetClusterId(id);
  if (status.ok()) {
    cluster_id_ = id;
  } else {
    LogError("data directory %s: the id of its cluster cannot be stored: %s", options_.data_dir, status.ToString());
  }
}

PsNode::~PsNode() { Stop(absl::ZeroDuration()); }

void PsNode::Stop(absl::Duration grace) {
  if (stopped_) return;
  stopped_ = true;
  if (control_ != nullptr) control_->RunAndWait([this] { session_.reset(); });
  if (server_ != nullptr) {
    server_->SetServing(false);
    SetReady("it stops");
    host_->Drain();
    exchange_->Shutdown(grace);
    server_->Stop(absl::ZeroDuration());
  }
  if (host_ != nullptr) host_->Stop();
  if (control_ != nullptr) control_->Stop();
}

}  // namespace cairn
