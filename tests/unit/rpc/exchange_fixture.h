// A small job and a ps without a coordinator: PartitionHost behind ExchangeService in a real server on 127.0.0.1 and a
// Unix socket.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "client/parameter_client.h"
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/model/graph.h"
#include "common/model/step_plan.h"
#include "common/rpc/server.h"
#include "common/rpc/shared_frames.h"
#include "common/shared_memory/handover.h"
#include "common/storage/kv_store.h"
#include "server/node/exchange_service.h"
#include "server/node/partition_host.h"

namespace cairn {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cairn-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One dense layer, [inputs] -> [units], SGD.
inline v1::JobSpec DenseJob(int inputs, int units, int replicas, bool asynchronous) {
  v1::JobSpec spec;
  spec.set_name("dense");
  spec.mutable_model()->add_layers()->mutable_input()->add_shape(inputs);
  spec.mutable_model()->add_layers()->mutable_dense()->set_units(units);
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_optimizer()->set_learning_rate(0.5f);
  spec.set_replicas(replicas);
  spec.set_strategy(asynchronous ? v1::PARAMETER_SERVER : v1::MULTI_WORKER_MIRRORED);
  spec.set_durability(v1::LOGGED);
  spec.set_seed(7);
  return spec;
}

inline v1::HostPartitions HostAll(uint64_t job_id, uint64_t generation, const v1::JobSpec& spec,
                                  int64_t partition_bytes) {
  v1::HostPartitions host;
  host.set_job_id(job_id);
  host.set_generation(generation);
  *host.mutable_spec() = spec;
  const absl::StatusOr<Graph> graph = Graph::Build(spec.model());
  EXPECT_TRUE(graph.ok()) << graph.status();
  for (const auto& range : CutPartitions(graph->space_size(), partition_bytes)) *host.add_partitions() = range;
  return host;
}

inline Frame PullOf(uint64_t job_id, uint32_t partition) {
  Frame f;
  f.kind = v1::ExchangeFrame::PULL;
  f.job = JobId(job_id);
  f.partition = PartitionId(partition);
  f.reply_dtype = v1::FLOAT32;
  return f;
}

inline Frame PushOf(const v1::HostPartitions& host, int partition, uint32_t replica, uint64_t sequence,
                    float gradient) {
  Frame f;
  f.kind = v1::ExchangeFrame::PUSH;
  f.job = JobId(host.job_id());
  f.generation = Generation(host.generation());
  const v1::PartitionRange& range = host.partitions(partition);
  f.partition = PartitionId(range.partition());
  f.replica_first = ReplicaId(static_cast<int32_t>(replica));
  f.replica_count = 1;
  f.sequence = sequence;
  f.examples = 2;
  f.learning_rate = 0.5f;
  f.dtype = v1::FLOAT32;
  f.reply_dtype = v1::FLOAT32;
  f.payload = Buffer::Allocate((range.end() - range.begin()) * 4);
  for (float& g : f.payload.mutable_floats()) g = gradient;
  f.payload_total = f.payload.size();
  return f;
}

// Returns the answer, or DEADLINE_EXCEEDED after half a minute, so that no test hangs.
inline absl::StatusOr<Frame> Call(PsConnection& connection, Frame request) {
  struct Slot {
    absl::Notification done;
    absl::StatusOr<Frame> answer;
  };
  auto slot = std::make_shared<Slot>();
  connection.Send(std::move(request), [slot](absl::StatusOr<Frame> answer) {
    slot->answer = std::move(answer);
    slot->done.Notify();
  });
  if (!slot->done.WaitForNotificationWithTimeout(absl::Seconds(30))) return absl::DeadlineExceededError("no answer");
  return slot->answer;
}

class TestPs {
 public:
  explicit TestPs(KvStore& store, const std::string& unix_socket = "", const std::string& listen = "127.0.0.1:0",
                  size_t received_bytes_max = kReceivedBytesMax)
      : host_(store, ProcessEnvironment(clock_, 2),
              {.reply = [this](uint64_t client, Frame f) { exchange_.Send(client, std::move(f)); },
               .job_error = [](JobId, Generation, const absl::Status&) {},
               .backup_report = [this](v1::BackupReport) { ++reports_; }}),
        exchange_(&host_, received_bytes_max) {
    if (!unix_socket.empty()) {
      absl::StatusOr<std::unique_ptr<HandoverSocket>> handover =
          HandoverSocket::Listen(HandoverPath(unix_socket), /*own_only=*/false);
      EXPECT_TRUE(handover.ok()) << handover.status();
      exchange_.SetHandover(*std::move(handover));
    }
    RpcServerOptions options;
    options.listen = listen;
    options.unix_socket = unix_socket;
    options.receive_bytes_max = static_cast<int>(kFrameBytesMax);
    absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start(options, {exchange_.service()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~TestPs() { Stop(); }
  void Stop() {
    host_.Drain();
    exchange_.Shutdown(absl::Seconds(5));
    server_->Stop(absl::ZeroDuration());
    host_.Stop();
  }

  int reports() const { return reports_.load(); }
  const PartitionHost& host() const { return host_; }
  PartitionHost& host() { return host_; }
  ExchangeService& exchange() { return exchange_; }
  RpcServer& server() { return *server_; }
  std::string address() { return server_->Address(""); }
  std::shared_ptr<grpc::Channel> RawChannel() {
    return grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials());
  }

 private:
  RealClock clock_;
  std::atomic<int> reports_{0};
  PartitionHost host_;
  ExchangeService exchange_;
  std::unique_ptr<RpcServer> server_;
};

}  // namespace cairn
