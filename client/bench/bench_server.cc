#include "client/bench/bench_server.h"

#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cairn/v1/bench.grpc.pb.h"
#include "cairn/v1/cluster.grpc.pb.h"
#include "client/bench/bench_job.h"
#include "client/bench/raw_stream.h"
#include "common/base/limits.h"
#include "common/rpc/access.h"
#include "common/rpc/byte_buffer.h"
#include "common/rpc/refusal.h"

namespace cairn {

// Serves one ps at a time: the last one that sent a Hello.
class BenchServer::Coordinator : public v1::Coordinator::Service {
 public:
  using NodeStream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::NodeMessage>;

  grpc::Status Session(grpc::ServerContext* context, NodeStream* stream) override {
    if (const absl::Status may = AdmitCall("/cairn.v1.Coordinator/Session", *context); !may.ok()) {
      return ToGrpcStatus(may);
    }
    v1::NodeMessage message;
    if (!stream->Read(&message) || !message.has_hello() || message.hello().role() != v1::PS) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "this is a benchmark's server; it takes one ps");
    }
    v1::CoordinatorMessage welcome;
    welcome.mutable_welcome()->set_heartbeat_interval_ms(500);
    welcome.mutable_welcome()->set_lease_ms(60'000);
    welcome.mutable_welcome()->set_coordinator_incarnation(1);
    {
      absl::MutexLock lock(&mutex_);
      address_ = message.hello().address();
      stream->Write(welcome);
      stream_ = stream;
    }
    while (stream->Read(&message)) OnMessage(message);
    absl::MutexLock lock(&mutex_);
    if (stream_ == stream) stream_ = nullptr;
    return grpc::Status::OK;
  }

  // Makes `job` the ps' only job, with new ids. Returns the ps' address and updates `job`.
  absl::StatusOr<std::string> Host(v1::HostPartitions* job) {
    absl::MutexLock one(&preparing_);
    absl::MutexLock lock(&mutex_);
    const auto joined = [this] {
      mutex_.AssertHeld();
      return stream_ != nullptr;
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&joined), kPrepareTimeout)) {
      return absl::UnavailableError("the ps did not start");
    }
    if (last_job_ > 0) {
      v1::CoordinatorMessage drop;
      drop.mutable_drop_job()->set_job_id(last_job_);
      stream_->Write(drop);
    }
    job->set_job_id(++last_job_);
    job->set_generation(last_job_);
    ready_ = false;
    error_.clear();
    v1::CoordinatorMessage host;
    *host.mutable_host_partitions() = *job;
    stream_->Write(host);
    const auto answered = [this] {
      mutex_.AssertHeld();
      return ready_ || !error_.empty();
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&answered), kPrepareTimeout)) {
      return absl::UnavailableError(
          absl::StrCat("the ps did not host the job within ", absl::FormatDuration(kPrepareTimeout)));
    }
    if (!ready_) return absl::UnavailableError(error_);
    return address_;
  }

 private:
  void OnMessage(const v1::NodeMessage& message) {
    absl::MutexLock lock(&mutex_);
    if (message.has_partitions_ready() && message.partitions_ready().job_id() == last_job_) ready_ = true;
    if (message.has_job_error()) error_ = message.job_error().message();
  }

  absl::Mutex preparing_ ABSL_ACQUIRED_BEFORE(mutex_);  // one Host call at a time
  absl::Mutex mutex_;                                   // also guards writes to the stream
  NodeStream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_job_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  std::string error_ ABSL_GUARDED_BY(mutex_);
};

class BenchServer::Bench : public v1::Bench::WithRawCallbackMethod_Stream<v1::Bench::Service> {
 public:
  explicit Bench(Coordinator* coordinator) : coordinator_(coordinator) {}

  grpc::Status Prepare(grpc::ServerContext* context, const v1::PrepareBench* request,
                       v1::BenchPrepared* response) override {
    if (const absl::Status may = AdmitCall("/cairn.v1.Bench/Prepare", *context); !may.ok()) return ToGrpcStatus(may);
    BenchJobOptions options;
    options.bytes = static_cast<int64_t>(request->bytes());
    options.partition_bytes = static_cast<int64_t>(request->partition_bytes());
    options.asynchronous = request->asynchronous();
    options.logged = request->logged();
    absl::StatusOr<v1::HostPartitions> job = MakeBenchJob(options);
    if (!job.ok()) return ToGrpcStatus(job.status());
    absl::StatusOr<std::string> address = coordinator_->Host(&*job);
    if (!address.ok()) return ToGrpcStatus(address.status());
    response->set_job_id(job->job_id());
    response->set_generation(job->generation());
    response->set_ps_address(*address);
    return grpc::Status::OK;
  }

  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Stream(grpc::CallbackServerContext* context) override {
    if (const absl::Status may = AdmitCall("/cairn.v1.Bench/Stream", *context); !may.ok()) {
      return new RefusedCall<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>(may);
    }
    return NewRawStreamReactor();
  }

 private:
  Coordinator* const coordinator_;
};

BenchServer::BenchServer()
    : coordinator_(std::make_unique<Coordinator>()), bench_(std::make_unique<Bench>(coordinator_.get())) {}

BenchServer::~BenchServer() { server_.reset(); }

absl::StatusOr<std::unique_ptr<BenchServer>> BenchServer::Start(const RpcServerOptions& options) {
  std::unique_ptr<BenchServer> out(new BenchServer);
  RpcServerOptions server = options;
  server.receive_bytes_max = static_cast<int>(kFrameBytesMax);
  CAIRN_ASSIGN_OR_RETURN(out->server_, RpcServer::Start(server, {out->coordinator_.get(), out->bench_.get()}));
  return out;
}

std::string BenchServer::address() const { return server_->Address(""); }

}  // namespace cairn
