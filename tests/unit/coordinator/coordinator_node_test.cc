// Goal: the coordinator's node over real gRPC: sessions, calls of users, watches, a restart on its state, a stop that
// ends every call, a store that fails.
#include "coordinator/node/coordinator_node.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "cairn/v1/cluster.grpc.pb.h"
#include "client/session_client.h"
#include "common/rpc/channel.h"
#include "coordinator/core/events.h"
#include "coordinator/store/state_store.h"
#include "tests/unit/coordinator/fake_cluster.h"

namespace cairn {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);  // a test that waits so long has failed

// A store that outlives its owner and can be told to fail.
class SharedStore : public KvStore {
 public:
  struct Disk {
    std::unique_ptr<KvStore> kv = NewMemoryKvStore();
    std::atomic<bool> broken{false};
  };
  explicit SharedStore(std::shared_ptr<Disk> disk) : disk_(std::move(disk)) {}
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return disk_->kv->Get(key); }
  absl::Status Write(const KvBatch& batch, bool sync) override {
    EXPECT_TRUE(sync);
    if (disk_->broken) return absl::InternalError("no space left");
    return disk_->kv->Write(batch, sync);
  }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return disk_->kv->Scan(prefix, fn);
  }

 private:
  std::shared_ptr<Disk> disk_;
};

// A ps or a worker that obeys: its partitions are ready at once, its replicas done at once.
class ObedientNode {
 public:
  ObedientNode(const std::string& coordinator, v1::Hello hello) : hello_(std::move(hello)) {
    SessionCallbacks callbacks;
    callbacks.hello = [this] { return hello_; };
    callbacks.on_message = [this](const v1::CoordinatorMessage& message) { Obey(message); };
    client_ = std::make_unique<SessionClient>(coordinator, std::move(callbacks));
    ready_.Notify();
  }
  ~ObedientNode() { client_.reset(); }

  static v1::Hello Ps() {
    v1::Hello hello;
    hello.set_name("ps-0");
    hello.set_role(v1::PS);
    hello.set_address("127.0.0.1:1");
    hello.set_incarnation(1);
    return hello;
  }
  static v1::Hello Worker() {
    v1::Hello hello;
    hello.set_name("worker-0");
    hello.set_role(v1::WORKER);
    hello.set_slots(2);
    hello.set_incarnation(2);
    return hello;
  }

 private:
  void Obey(const v1::CoordinatorMessage& message) {
    ready_.WaitForNotification();  // client_ stands
    v1::NodeMessage answer;
    if (message.has_host_partitions()) {
      answer.mutable_partitions_ready()->set_job_id(message.host_partitions().job_id());
      answer.mutable_partitions_ready()->set_generation(message.host_partitions().generation());
      for (const auto& range : message.host_partitions().partitions()) {
        answer.mutable_partitions_ready()->add_partitions()->set_partition(range.partition());
      }
      client_->Send(answer);
    } else if (message.has_inspect_data()) {
      v1::DataInfoReply& reply = *answer.mutable_data_info();
      reply.set_request_id(message.inspect_data().request_id());
      if (message.inspect_data().data().path() == "/missing") reply.set_error("data.path: \"/missing\" does not exist");
      reply.mutable_info()->set_train_examples(40);
      reply.mutable_info()->set_test_examples(16);
      reply.mutable_info()->add_example_shape(8);
      reply.mutable_info()->set_classes(4);
      client_->Send(answer);
    } else if (message.has_assign_replicas()) {
      if (!message.assign_replicas().spec().name().starts_with("quick")) return;
      for (int32_t r : message.assign_replicas().replicas()) {
        for (int epoch = 0; epoch < 2; ++epoch) {
          v1::ReplicaReport& report = *answer.mutable_replica_report();
          report.set_job_id(message.assign_replicas().job_id());
          report.set_replica(r);
          report.set_last_step(epoch * 5 + 4);
          report.set_finished(epoch == 1);
          client_->Send(answer);
        }
      }
    } else if (message.has_figures_stored()) {
      answer.mutable_figures()->set_job_id(message.figures_stored().job_id());
      answer.mutable_figures()->set_generation(1);
      answer.mutable_figures()->set_version(10);
      client_->Send(answer);
    } else if (message.has_finalize()) {
      answer.mutable_finalized()->set_job_id(message.finalize().job_id());
      answer.mutable_finalized()->set_digest("abc");
      client_->Send(answer);
    } else if (message.has_evaluate_shard()) {
      answer.mutable_evaluated()->set_request_id(message.evaluate_shard().request_id());
      answer.mutable_evaluated()->mutable_sums()->set_examples(16);
      client_->Send(answer);
    }
  }

  const v1::Hello hello_;
  absl::Notification ready_;
  std::unique_ptr<SessionClient> client_;
};

class CoordinatorNodeTest : public testing::Test {
 protected:
  void SetUp() override { StartNode("127.0.0.1:0"); }

  void StartNode(const std::string& listen) {
    CoordinatorNodeOptions options;
    options.listen = listen;
    options.on_fatal = [this](const absl::Status&) { fatal_.Notify(); };
    auto node = CoordinatorNode::Start(options, std::make_unique<SharedStore>(disk_));
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = *std::move(node);
    jobs_ = v1::JobService::NewStub(*CreateChannel(node_->address(), {}));
  }

  static std::unique_ptr<grpc::ClientContext> Context(absl::Duration timeout = kLong) {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    context->set_wait_for_ready(true);
    return context;
  }

  v1::SubmitRequest Request(const std::string& name) {
    v1::SubmitRequest request;
    *request.mutable_spec() = FakeCluster::Spec(2);
    request.mutable_spec()->set_name(name);
    return request;
  }

  // Waits until so many nodes are alive.
  bool WaitForNodes(int count) {
    const absl::Time deadline = absl::Now() + kLong;
    while (absl::Now() < deadline) {
      v1::ListNodesResponse response;
      if (!jobs_->ListNodes(Context().get(), {}, &response).ok()) return false;
      int alive = 0;
      for (const auto& node : response.nodes()) alive += node.alive();
      if (alive == count) return true;
      absl::SleepFor(absl::Milliseconds(2));  // a machine may begin only so many calls a second
    }
    return false;
  }

  std::shared_ptr<SharedStore::Disk> disk_ = std::make_shared<SharedStore::Disk>();
  absl::Notification fatal_;
  std::unique_ptr<CoordinatorNode> node_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
};

TEST_F(CoordinatorNodeTest, AJobFromSubmitToTheEnd) {
  ObedientNode ps(node_->address(), ObedientNode::Ps()), worker(node_->address(), ObedientNode::Worker());
  ASSERT_TRUE(WaitForNodes(2));
  v1::SubmitResponse submitted;
  grpc::Status status = jobs_->Submit(Context().get(), Request("quick"), &submitted);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(submitted.job().job_id(), 1u);

  v1::GetJobRequest request;
  request.set_name("quick");
  auto context = Context();
  auto watch = jobs_->WatchJob(context.get(), request);
  v1::JobStatus last, read;
  while (watch->Read(&read)) last = read;
  EXPECT_TRUE(watch->Finish().ok());
  EXPECT_EQ(last.state(), v1::SUCCEEDED) << last.reason();
  EXPECT_EQ(last.digest(), "abc");
  EXPECT_EQ(last.epochs_size(), 2);

  v1::EvaluateRequest evaluate;
  evaluate.mutable_job()->set_job_id(1);
  v1::EvaluateResponse evaluated;
  status = jobs_->Evaluate(Context().get(), evaluate, &evaluated);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(evaluated.sums().examples(), 16u);

  v1::ListJobsResponse list;
  ASSERT_TRUE(jobs_->ListJobs(Context().get(), {}, &list).ok());
  EXPECT_EQ(list.jobs_size(), 1);
  v1::DeleteJobResponse deleted;
  EXPECT_TRUE(jobs_->DeleteJob(Context().get(), request, &deleted).ok());
  v1::JobStatus job;
  EXPECT_EQ(jobs_->GetJob(Context().get(), request, &job).error_code(), grpc::StatusCode::NOT_FOUND);
  auto gone = Context();
  auto none = jobs_->WatchJob(gone.get(), request);
  EXPECT_FALSE(none->Read(&read));
  EXPECT_EQ(none->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CoordinatorNodeTest, ErrorsOfSubmit) {
  ObedientNode worker(node_->address(), ObedientNode::Worker());
  ASSERT_TRUE(WaitForNodes(1));
  v1::SubmitRequest request = Request("bad");
  request.mutable_spec()->mutable_data()->set_path("/missing");
  v1::SubmitResponse response;
  grpc::Status status = jobs_->Submit(Context().get(), request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("/missing"), std::string::npos) << status.error_message();
  request.mutable_spec()->mutable_optimizer()->set_learning_rate(-1);
  status = jobs_->Submit(Context().get(), request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("learning_rate"), std::string::npos) << status.error_message();
}

TEST_F(CoordinatorNodeTest, ARequestThatIsNoMessageIsRefusedAsSuch) {
  grpc::GenericStub stub(*CreateChannel(node_->address(), {}));
  for (const char* method : {"/cairn.v1.JobService/Submit", "/cairn.v1.JobService/WatchJob"}) {
    auto context = Context();
    grpc::CompletionQueue queue;
    const grpc::Slice garbage("\xff\xff\xff");
    grpc::ByteBuffer answer;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(context.get(), method, grpc::ByteBuffer(&garbage, 1), &queue);
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method << ": " << status.error_message();
    EXPECT_NE(status.error_message().find(method), std::string::npos) << status.error_message();
  }
  v1::ListJobsResponse list;
  EXPECT_TRUE(jobs_->ListJobs(Context().get(), {}, &list).ok());
}

TEST_F(CoordinatorNodeTest, ASessionMustBeginWithHello) {
  auto stub = v1::Coordinator::NewStub(*CreateChannel(node_->address(), {}));
  auto context = Context();
  auto stream = stub->Session(context.get());
  v1::NodeMessage message;
  message.mutable_heartbeat();
  stream->Write(message);
  v1::CoordinatorMessage answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  auto bad_context = Context();
  auto bad = stub->Session(bad_context.get());
  message.mutable_hello()->set_name("no role");
  bad->Write(message);
  EXPECT_FALSE(bad->Read(&answer));
  EXPECT_EQ(bad->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CoordinatorNodeTest, ARestartKeepsItsJobsAndNodesReturn) {
  ObedientNode ps(node_->address(), ObedientNode::Ps()), worker(node_->address(), ObedientNode::Worker());
  ASSERT_TRUE(WaitForNodes(2));
  // The job waits for workers: once it has run, this ps, which holds nothing when it returns, would count as one that
  // lost its data.
  v1::SubmitRequest slow = Request("slow");
  slow.mutable_spec()->set_min_workers(2);
  v1::SubmitResponse submitted;
  ASSERT_TRUE(jobs_->Submit(Context().get(), slow, &submitted).ok());
  const std::string address = node_->address();
  node_.reset();
  StartNode(address);
  ASSERT_TRUE(WaitForNodes(2));
  v1::GetJobRequest request;
  request.set_job_id(submitted.job().job_id());
  v1::JobStatus job;
  ASSERT_TRUE(jobs_->GetJob(Context().get(), request, &job).ok());
  EXPECT_EQ(job.spec().name(), "slow");
  ASSERT_TRUE(jobs_->CancelJob(Context().get(), request, &job).ok());
  EXPECT_EQ(job.state(), v1::CANCELLED);
}

TEST_F(CoordinatorNodeTest, StopEndsEveryCall) {
  // Without workers the job stays queued, and its watch goes on.
  v1::SubmitResponse submitted;
  ASSERT_TRUE(jobs_->Submit(Context().get(), Request("waits"), &submitted).ok());
  v1::GetJobRequest request;
  request.set_job_id(submitted.job().job_id());
  auto context = Context();
  auto watch = jobs_->WatchJob(context.get(), request);
  v1::JobStatus status;
  ASSERT_TRUE(watch->Read(&status));
  node_->Stop();
  while (watch->Read(&status)) {
  }
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  node_->Stop();  // idempotent
}

TEST_F(CoordinatorNodeTest, AWatchThatIsGivenUpHurtsNobody) {
  v1::SubmitResponse submitted;
  ASSERT_TRUE(jobs_->Submit(Context().get(), Request("waits"), &submitted).ok());
  v1::GetJobRequest request;
  request.set_job_id(submitted.job().job_id());
  for (int i = 0; i < 20; ++i) {
    auto context = Context();
    auto watch = jobs_->WatchJob(context.get(), request);
    v1::JobStatus status;
    if (i % 2 == 0) {
      EXPECT_TRUE(watch->Read(&status));
    }
    context->TryCancel();
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  v1::JobStatus job;
  EXPECT_TRUE(jobs_->GetJob(Context().get(), request, &job).ok());
}

TEST_F(CoordinatorNodeTest, AStoreThatFailsIsFatal) {
  disk_->broken = true;
  v1::SubmitResponse submitted;
  std::thread call([&] { EXPECT_FALSE(jobs_->Submit(Context().get(), Request("lost"), &submitted).ok()); });
  EXPECT_TRUE(fatal_.WaitForNotificationWithTimeout(kLong));
  node_->Stop();  // ends the call, which was never stored
  call.join();
}

TEST(StateStore, CorruptStateIsRefusedByItsKey) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
           {"cluster", "\xff\xff"}, {"job/1", "\xff\xff"}, {"job/1", ""}, {"job/x", "\x0a\x02\x08\x01"}}) {
    auto kv = NewMemoryKvStore();
    KvBatch batch;
    batch.Put(key, value);
    ASSERT_TRUE(kv->Write(batch, true).ok());
    auto state = StateStore(std::move(kv)).Load();
    EXPECT_EQ(state.status().code(), absl::StatusCode::kDataLoss) << key;
    EXPECT_NE(state.status().message().find(key), std::string::npos);
  }
}

TEST(CoordinatorOptions, WrongOnesAreNamed) {
  CoordinatorOptions options;
  EXPECT_TRUE(options.Validate().ok());
  options.lease = absl::Milliseconds(600);
  EXPECT_NE(options.Validate().message().find("lease"), std::string::npos);
  options = {};
  options.heartbeat_interval = absl::ZeroDuration();
  EXPECT_NE(options.Validate().message().find("heartbeat_interval"), std::string::npos);
  options = {};
  options.reopen_grace = absl::Seconds(10);
  EXPECT_NE(options.Validate().message().find("reopen_grace"), std::string::npos);
}

}  // namespace
}  // namespace cairn
