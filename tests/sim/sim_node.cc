#include "tests/sim/sim_node.h"

#include "absl/strings/str_join.h"
#include "tests/sim/sim_cluster.h"

namespace cairn::sim {
namespace {

constexpr absl::Duration kBackOffMin = absl::Milliseconds(50), kBackOffMax = absl::Seconds(1);
constexpr absl::Duration kWelcomeTimeout = absl::Seconds(5);

template <typename Partitions>
std::string Versions(const Partitions& partitions) {
  return absl::StrJoin(partitions, " ", [](std::string* out, const v1::HeldPartition& p) {
    absl::StrAppendFormat(out, "%d@%d%s", p.partition(), p.version(), p.backup() ? "b" : "");
    if (p.version_min() < p.version()) absl::StrAppend(out, ">", p.version_min());
    if (p.versions_size() > 0) absl::StrAppend(out, "|", absl::StrJoin(p.versions(), "|"));
  });
}

}  // namespace

SimNode::SimNode(SimCluster& cluster, std::string name)
    : cluster_(cluster), world_(cluster.world()), host_(std::move(name)) {}

absl::Time SimNode::Now() const { return world_.ClockOf(host_); }

void SimNode::Later(absl::Duration delay, std::function<void()> fn) { world_.AfterOn(host_, delay, std::move(fn)); }

void SimNode::Start() {
  if (host_.up) return;
  host_.up = true;
  ++host_.process;
  host_.started = world_.now();
  host_.still_until = absl::InfinitePast();
  world_.Trace("%s starts", name());
  back_off_ = kBackOffMin;
  session_ = nullptr;
  OnStart();
  Connect();
}

void SimNode::End() {
  if (!host_.up) return;
  world_.Trace("%s is killed", name());
  cluster_.network().ProcessEnded(host_);
  host_.up = false;
  session_ = nullptr;
  OnEnd();
}

void SimNode::BreakSession() {
  if (session_ != nullptr) cluster_.network().BreakStream(session_);
}

void SimNode::Connect() {
  SimCoordinator& to = cluster_.coordinator(coordinator_++ % cluster_.coordinators());
  session_ = cluster_.network().Dial(host_, to.host());
  welcome_ = false;
  std::shared_ptr<Stream> session = session_;
  session->OnBroken(Stream::kDialer, [this, session] {
    if (session_ == session) Reconnect();
  });
  if (to.up()) {
    v1::NodeMessage message;
    *message.mutable_hello() = Hello();
    if (world_.tracing()) world_.Trace("%s -> %s: %s", name(), to.host().name, Describe(message));
    session->Send(Stream::kDialer, [&to, session, message, this] {
      to.OnHello(session, message.hello(), [this, session](const v1::CoordinatorMessage& command) {
        if (session_ == session) OnMessage(command);
      });
    });
  }
  Later(kWelcomeTimeout, [this, session] {
    if (session_ != session || welcome_) return;
    session->Close(Stream::kDialer);
    Reconnect();
  });
}

void SimNode::Reconnect() {
  session_ = nullptr;
  Later(world_.rng.Between(back_off_ / 2, back_off_), [this] {
    if (session_ == nullptr) Connect();
  });
  back_off_ = std::min(back_off_ * 2, kBackOffMax);
}

void SimNode::OnMessage(const v1::CoordinatorMessage& message) {
  if (message.has_welcome()) {
    welcome_ = true;
    welcomed_at_ = world_.now();
    --coordinator_;  // this one leads: first choice next time
    back_off_ = kBackOffMin;
    heartbeat_interval_ = absl::Milliseconds(message.welcome().heartbeat_interval_ms());
    Beat(session_);
  }
  last_welcome_ = Now();
  OnCommand(message);
}

void SimNode::Say(v1::NodeMessage message) {
  if (session_ == nullptr || !welcome_) return;
  SimCoordinator* to = cluster_.CoordinatorOn(session_->host(Stream::kListener));
  if (world_.tracing() && !message.has_heartbeat()) {
    world_.Trace("%s -> %s: %s", name(), to->host().name, Describe(message));
  }
  session_->Send(Stream::kDialer,
                 [to, session = session_, message = std::move(message)] { to->OnMessage(session, message); });
}

void SimNode::Beat(const std::shared_ptr<Stream>& session) {
  if (session_ != session || !session->open(Stream::kDialer)) return;
  v1::NodeMessage message;
  *message.mutable_heartbeat() = Heartbeat();
  Say(std::move(message));
  Later(heartbeat_interval_, [this, session] { Beat(session); });
}

// ---- traces ----

std::string Describe(const v1::CoordinatorMessage& m) {
  if (m.has_welcome()) return "welcome";
  if (m.has_host_partitions()) {
    const v1::HostPartitions& h = m.host_partitions();
    return absl::StrFormat("host generation %d: %s%s", h.generation(),
                           absl::StrJoin(h.partitions(), " ",
                                         [](std::string* out, const v1::PartitionRange& p) {
                                           absl::StrAppend(out, p.partition(), p.backup() ? "b" : "");
                                           for (const v1::BackupRoute& b : p.backups()) {
                                             absl::StrAppend(out, "->", b.node(), b.in_sync() ? "(in sync)" : "");
                                           }
                                         }),
                           h.has_rollback_to() ? absl::StrFormat(", back to %d", h.rollback_to()) : "");
  }
  if (m.has_drop_job()) return "drop the job";
  if (m.has_readiness()) return absl::StrCat("ready", m.readiness().why().empty() ? "" : " not: ", m.readiness().why());
  if (m.has_assign_replicas()) {
    const v1::AssignReplicas& a = m.assign_replicas();
    return absl::StrFormat("replicas [%s], assignment %d, generation %d, routes %s", absl::StrJoin(a.replicas(), ","),
                           a.assignment(), a.generation(),
                           absl::StrJoin(a.routes(), " ", [](std::string* out, const v1::Route& r) {
                             absl::StrAppend(out, r.range().partition(), ":", r.address());
                           }));
  }
  if (m.has_inspect_data()) return "inspect data";
  if (m.has_finalize()) return "finalize";
  if (m.has_restore()) return "restore " + m.restore().path();
  return absl::StrFormat("message %d", m.kind_case());
}

std::string Describe(const v1::NodeMessage& m) {
  if (m.has_hello()) {
    std::string text = absl::StrFormat("hello, incarnation %d", m.hello().incarnation());
    for (const v1::HeldPartitions& h : m.hello().held()) {
      absl::StrAppendFormat(&text, ", holds generation %d: %s", h.generation(), Versions(h.partitions()));
    }
    for (const v1::HeldReplicas& h : m.hello().running()) {
      absl::StrAppendFormat(&text, ", runs generation %d: [%s]", h.generation(), absl::StrJoin(h.replicas(), ","));
    }
    return text;
  }
  if (m.has_partitions_ready()) {
    return absl::StrFormat("ready generation %d: %s", m.partitions_ready().generation(),
                           Versions(m.partitions_ready().partitions()));
  }
  if (m.has_replica_report()) {
    const v1::ReplicaReport& r = m.replica_report();
    return r.finished() ? absl::StrFormat("replica %d has finished", r.replica())
                        : absl::StrFormat("replica %d: up to step %d", r.replica(), r.last_step());
  }
  if (m.has_figures()) {
    std::string text =
        absl::StrFormat("figures at version %d, generation %d:", m.figures().version(), m.figures().generation());
    for (const v1::EpochFigures& e : m.figures().epochs()) {
      absl::StrAppendFormat(&text, " epoch %d: %d examples of %d steps;", e.epoch(), e.train().examples(),
                            e.replica_steps());
    }
    return text;
  }
  if (m.has_backup_report()) {
    const v1::BackupReport& b = m.backup_report();
    if (!b.lost().empty())
      return absl::StrFormat("partition %d: %s is not reached, generation %d", b.partition(), b.node(), b.generation());
    return absl::StrFormat("partition %d: %s has caught up at %d, generation %d", b.partition(), b.node(), b.version(),
                           b.generation());
  }
  if (m.has_finalized()) return m.finalized().error().empty() ? "the digest" : "no digest: " + m.finalized().error();
  if (m.has_job_error()) return "job error: " + m.job_error().message();
  if (m.has_data_info()) return "data info";
  return absl::StrFormat("message %d", m.kind_case());
}

}  // namespace cairn::sim
