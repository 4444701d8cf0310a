// Goal: two coordinators on one etcd over real gRPC: standbys name the leader, clients find it, the lead changes
// together with the state, and a former leader reports its loss and does nothing more.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "cairn/v1/cluster.grpc.pb.h"
#include "client/health.h"
#include "client/job_client.h"
#include "client/session_client.h"
#include "common/rpc/channel.h"
#include "coordinator/node/coordinator_node.h"
#include "tests/unit/coordinator/fake_cluster.h"
#include "tests/unit/coordinator/fake_etcd.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

class SeveralCoordinatorsTest : public testing::Test {
 protected:
  std::unique_ptr<CoordinatorNode> Start(const std::string& name) {
    CoordinatorNodeOptions options;
    options.listen = "127.0.0.1:0";
    EtcdOptions etcd;
    etcd.address.endpoints = {etcd_.Endpoint(0)};
    etcd.name = name;
    etcd.lease = absl::Seconds(6);  // no test waits for its end; on a busy machine none is to lose the lead
    auto node = CoordinatorNode::StartWithEtcd(options, etcd);
    EXPECT_TRUE(node.ok()) << node.status();
    return *std::move(node);
  }

  // The leader's address according to `node`; "" while it leads itself or knows none.
  struct Answer {
    grpc::Status status;
    bool has_leader = false;
    std::string leader;
  };
  static Answer Ask(const CoordinatorNode& node) {
    const auto stub = v1::JobService::NewStub(*CreateChannel(node.address(), {}));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kLong));
    v1::ListJobsResponse response;
    Answer answer;
    answer.status = stub->ListJobs(&context, {}, &response);
    const auto& metadata = context.GetServerTrailingMetadata();
    if (const auto it = metadata.find(kLeaderMetadata); it != metadata.end()) {
      answer.has_leader = true;
      answer.leader = std::string(it->second.data(), it->second.size());
    }
    return answer;
  }
  static bool Await(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + kLong;
    while (absl::Now() < deadline) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(10));  // a machine may begin only so many connections a second
    }
    return false;
  }
  static bool AwaitLead(const CoordinatorNode& node) {
    return Await([&] { return Ask(node).status.ok(); });
  }
  static bool AwaitStandby(const CoordinatorNode& node, const CoordinatorNode& leader) {
    return Await([&] { return Ask(node).leader == leader.address(); });
  }

  static JobClient Client(const std::string& addresses) {
    JobClientOptions options;
    options.address = addresses;
    return JobClient(options);
  }
  static v1::JobSpec Spec(const std::string& name) {
    v1::JobSpec spec = FakeCluster::Spec(2);
    spec.set_name(name);
    return spec;
  }

  FakeEtcd etcd_;
};

TEST_F(SeveralCoordinatorsTest, AStandbyNamesTheLeaderAndClientsFollow) {
  const auto a = Start("a");
  ASSERT_TRUE(AwaitLead(*a));
  const auto b = Start("b");
  ASSERT_TRUE(AwaitStandby(*b, *a));
  const Answer answer = Ask(*b);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("the leader is \"a\" at " + a->address()));

  // A session is redirected too.
  auto stub = v1::Coordinator::NewStub(*CreateChannel(b->address(), {}));
  grpc::ClientContext context;
  auto session = stub->Session(&context);
  v1::NodeMessage hello;
  hello.mutable_hello()->set_name("ps-0");
  session->Write(hello);
  v1::CoordinatorMessage message;
  EXPECT_FALSE(session->Read(&message));
  EXPECT_EQ(session->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(context.GetServerTrailingMetadata().count(kLeaderMetadata), 1u);

  JobClient client = Client(b->address() + "," + a->address());
  const auto submitted = client.Submit(Spec("first"));
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(client.List()->jobs_size(), 1);
  EXPECT_TRUE(CheckHealth(b->address(), kLong).ok());
  // Only the standby is known: it still leads there.
  EXPECT_EQ(Client(b->address() + ",127.0.0.1:1").List()->jobs_size(), 1);
}

TEST_F(SeveralCoordinatorsTest, TheLeadGoesOnWithTheState) {
  auto a = Start("a");
  ASSERT_TRUE(AwaitLead(*a));
  const auto b = Start("b");
  ASSERT_TRUE(AwaitStandby(*b, *a));
  JobClient client = Client(a->address() + "," + b->address());
  ASSERT_TRUE(client.Submit(Spec("kept")).ok());

  // A watch and a node that go on through the change.
  absl::Mutex mutex;
  int ups = 0, statuses = 0;
  SessionCallbacks callbacks;
  callbacks.hello = [] {
    v1::Hello hello;
    hello.set_name("ps-0");
    hello.set_role(v1::PS);
    hello.set_address("127.0.0.1:1");
    hello.set_incarnation(7);
    return hello;
  };
  callbacks.on_connection = [&](bool up) {
    absl::MutexLock lock(&mutex);
    ups += up;
  };
  SessionClient node(b->address() + "," + a->address(), std::move(callbacks));
  absl::Status watched;
  v1::JobState last = v1::JOB_STATE_UNSPECIFIED;
  std::thread watch([&] {
    JobClient::WatchCallbacks on;
    on.on_status = [&](const v1::JobStatus& status) {
      absl::MutexLock lock(&mutex);
      last = status.state();
      ++statuses;
      return true;
    };
    watched = client.Watch(*JobRef::Parse("kept"), on);
  });
  const auto reached = [&](int& count, int wanted) {
    absl::MutexLock lock(&mutex);
    const auto enough = [&] { return count >= wanted; };
    return mutex.AwaitWithTimeout(absl::Condition(&enough), kLong);
  };
  EXPECT_TRUE(reached(ups, 1));
  EXPECT_TRUE(reached(statuses, 1));

  a->Stop();
  ASSERT_TRUE(AwaitLead(*b));
  EXPECT_TRUE(reached(ups, 2));
  const auto job = client.Get(*JobRef::Parse("kept"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(client.Cancel(*JobRef::Parse("kept"))->state(), v1::CANCELLED);
  watch.join();
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_EQ(last, v1::CANCELLED);
  a = nullptr;
  EXPECT_EQ(client.Submit(Spec("second"))->job().job_id(), 2u) << "numbers are not given twice";
}

TEST_F(SeveralCoordinatorsTest, WhoseLeaseEndedIsAStandby) {
  const auto a = Start("a");
  ASSERT_TRUE(AwaitLead(*a));
  const auto b = Start("b");
  ASSERT_TRUE(AwaitStandby(*b, *a));
  etcd_.EndLeases();
  ASSERT_TRUE(AwaitLead(*b));
  ASSERT_TRUE(AwaitStandby(*a, *b));
  EXPECT_TRUE(Client(a->address() + "," + b->address()).Submit(Spec("x")).ok());
}

TEST_F(SeveralCoordinatorsTest, AWriteThatFailsEndsTheTermAndNothingIsKeptOfIt) {
  const auto a = Start("a");
  ASSERT_TRUE(AwaitLead(*a));
  JobClient client = Client(a->address());
  ASSERT_TRUE(client.Submit(Spec("kept")).ok());
  etcd_.RefuseWrites(1,
                     grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"));
  const auto stub = v1::JobService::NewStub(*CreateChannel(a->address(), {}));
  grpc::ClientContext context;
  v1::SubmitRequest request;
  *request.mutable_spec() = Spec("lost");
  v1::SubmitResponse response;
  const grpc::Status status = stub->Submit(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("database space exceeded"));
  EXPECT_EQ(context.GetServerTrailingMetadata().count(kLeaderMetadata), 1u) << "ask another one";
  ASSERT_TRUE(AwaitLead(*a)) << "after a pause it leads again, from what is stored";
  ASSERT_EQ(client.List()->jobs_size(), 1);
  EXPECT_EQ(client.List()->jobs(0).spec().name(), "kept");
}

TEST_F(SeveralCoordinatorsTest, AStateThatCannotBeReadIsSaid) {
  etcd_.Put("cairn/state/cluster", "\xff\xff");
  const auto a = Start("a");
  std::string text;
  ASSERT_TRUE(Await([&] {
    text = Ask(*a).status.error_message();
    return text.find("cairn/state/cluster") != std::string::npos;
  })) << text;
  etcd_.Delete("cairn/state/cluster");
  EXPECT_TRUE(AwaitLead(*a));
}

TEST_F(SeveralCoordinatorsTest, WithoutEtcdItStandsByAndSaysWhy) {
  const std::string endpoint = etcd_.Endpoint(0);
  etcd_.StopMember(0);
  const auto a = Start("a");
  std::string text;
  ASSERT_TRUE(Await([&] {
    text = Ask(*a).status.error_message();
    return text.find(endpoint) != std::string::npos;
  }));
  EXPECT_TRUE(CheckHealth(a->address(), kLong).ok()) << "it is well itself";
  etcd_.StartMember(0);
  EXPECT_TRUE(AwaitLead(*a));
}

TEST_F(SeveralCoordinatorsTest, AnAddressThatOthersCannotUseIsRefused) {
  CoordinatorNodeOptions options;
  options.listen = "0.0.0.0:0";
  EtcdOptions etcd;
  etcd.address.endpoints = {etcd_.Endpoint(0)};
  const auto node = CoordinatorNode::StartWithEtcd(options, etcd);
  EXPECT_EQ(node.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(node.status().message()), HasSubstr("--advertise"));
}

}  // namespace
}  // namespace cairn
