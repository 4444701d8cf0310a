// Goal: a whole ps beside a coordinator that the test plays: it joins, hosts, survives a restart on its data directory
// without serving before it is told to, drops jobs, reports what it cannot do, and answers health checks and
// reflection.
#include "server/node/ps_node.h"

#include <grpcpp/generic/generic_stub.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "cairn/v1/cluster.grpc.pb.h"
#include "client/health.h"
#include "client/job_client.h"
#include "common/rpc/server.h"
#include "tests/unit/rpc/exchange_fixture.h"

namespace cairn {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);  // nothing takes that long; a test ends

// One session at a time.
class FakeCoordinator : public v1::Coordinator::Service {
 public:
  FakeCoordinator() {
    absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start({}, {this});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~FakeCoordinator() override { server_->Stop(absl::ZeroDuration()); }
  std::string address() { return server_->Address(""); }

  grpc::Status Session(grpc::ServerContext*,
                       grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::NodeMessage>* stream) override {
    v1::NodeMessage message;
    if (!stream->Read(&message) || !message.has_hello())
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no hello");
    v1::CoordinatorMessage welcome;
    welcome.mutable_welcome()->set_heartbeat_interval_ms(100);
    welcome.mutable_welcome()->set_lease_ms(3000);
    welcome.mutable_welcome()->set_cluster_id(++cluster_id_);
    stream->Write(welcome);
    {
      absl::MutexLock lock(&mutex_);
      stream_ = stream;
      received_.push_back(message);
    }
    while (stream->Read(&message)) {
      absl::MutexLock lock(&mutex_);
      received_.push_back(message);
    }
    absl::MutexLock lock(&mutex_);
    stream_ = nullptr;
    return grpc::Status::OK;
  }

  // Waits for the session, then sends.
  void Send(const v1::CoordinatorMessage& message) {
    absl::MutexLock lock(&mutex_);
    const auto there = [this] { return stream_ != nullptr; };
    ASSERT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kLong));
    stream_->Write(message);
  }
  void Send(const v1::HostPartitions& host) {
    v1::CoordinatorMessage m;
    *m.mutable_host_partitions() = host;
    Send(m);
  }

  // Returns the next message of that kind; others before it are dropped.
  std::optional<v1::NodeMessage> Next(v1::NodeMessage::KindCase kind) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&] {
      while (!received_.empty() && received_.front().kind_case() != kind) received_.pop_front();
      return !received_.empty();
    };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), kLong)) return std::nullopt;
    v1::NodeMessage out = received_.front();
    received_.pop_front();
    return out;
  }

 private:
  std::unique_ptr<RpcServer> server_;
  absl::Mutex mutex_;
  grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::NodeMessage>* stream_ = nullptr;
  uint64_t cluster_id_ = 0x123456789abcdef0;  // of the last session: another one each time
  std::deque<v1::NodeMessage> received_;
};

class PsNodeTest : public testing::Test {
 protected:
  PsNodeOptions Options() {
    PsNodeOptions o;
    o.coordinator = coordinator_.address();
    o.data_dir = dir_.path() + "/ps";
    o.threads = 2;
    return o;
  }
  void Start(const std::string& name = "") {
    PsNodeOptions options = Options();
    options.name = name;
    absl::StatusOr<std::unique_ptr<PsNode>> node = PsNode::Start(options);
    ASSERT_TRUE(node.ok()) << node.status();
    node_ = *std::move(node);
  }
  // Hosts and waits for the answer.
  void Host(const v1::HostPartitions& host) {
    coordinator_.Send(host);
    const auto ready = coordinator_.Next(v1::NodeMessage::kPartitionsReady);
    ASSERT_TRUE(ready.has_value());
    EXPECT_EQ(ready->partitions_ready().job_id(), host.job_id());
    EXPECT_EQ(ready->partitions_ready().generation(), host.generation());
    EXPECT_EQ(ready->partitions_ready().partitions_size(), host.partitions_size());
    ready_ = ready->partitions_ready();
  }
  absl::StatusOr<Frame> CallOnce(Frame f) {
    PsConnection connection(node_->address(), {});
    return Call(connection, std::move(f));
  }

  TempDir dir_;
  FakeCoordinator coordinator_;
  std::unique_ptr<PsNode> node_;
  v1::PartitionsReady ready_;
};

TEST_F(PsNodeTest, IsReadyWhenTheCoordinatorSaysSo) {
  Start();
  ASSERT_TRUE(coordinator_.Next(v1::NodeMessage::kHello).has_value());
  EXPECT_FALSE(node_->Ready().ok()) << "it was told nothing yet";
  v1::CoordinatorMessage message;
  const auto wait_for = [&](const std::string& why) {
    message.mutable_readiness()->set_why(why);
    coordinator_.Send(message);
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (absl::Now() < end && node_->Ready().message() != (why.empty() ? "" : "not ready: " + why))
      absl::SleepFor(absl::Milliseconds(5));
    EXPECT_EQ(node_->Ready().ok(), why.empty()) << node_->Ready();
    const std::string tcp = node_->address().substr(0, node_->address().find(','));
    EXPECT_EQ(CheckHealth(tcp, absl::Seconds(60), kReadyService).ok(), why.empty());
    EXPECT_TRUE(CheckHealth(tcp, absl::Seconds(60)).ok()) << "it serves, ready or not";
  };
  wait_for("");
  wait_for("3 partitions of job 1 are not up to date on it yet");
  wait_for("");
}

TEST_F(PsNodeTest, RestartsOnItsDataDirectory) {
  Start();
  const auto hello = coordinator_.Next(v1::NodeMessage::kHello);
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(hello->hello().role(), v1::PS);
  EXPECT_EQ(hello->hello().address(), node_->address());
  EXPECT_EQ(hello->hello().held_size(), 0);
  EXPECT_EQ(hello->hello().cluster_id(), 0u);
  const std::string name = hello->hello().name();
  EXPECT_EQ(name.substr(0, 3), "ps-");
  EXPECT_TRUE(coordinator_.Next(v1::NodeMessage::kHeartbeat).has_value());

  v1::HostPartitions host = HostAll(9, 2, DenseJob(100, 10, 1, true), 1024);
  Host(host);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    ASSERT_TRUE(CallOnce(PushOf(host, 1, 0, sequence, 1.0f)).ok());
  }
  const auto before = CallOnce(PullOf(9, 1));
  ASSERT_TRUE(before.ok());
  node_.reset();  // no grace

  Start();
  const auto again = coordinator_.Next(v1::NodeMessage::kHello);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->hello().name(), name);
  EXPECT_NE(again->hello().incarnation(), hello->hello().incarnation());
  EXPECT_EQ(again->hello().cluster_id(), 0x123456789abcdef1) << "that of the first Welcome";
  ASSERT_EQ(again->hello().held_size(), 1);
  EXPECT_EQ(again->hello().held(0).job_id(), 9u);
  EXPECT_EQ(again->hello().held(0).generation(), 2u);
  ASSERT_EQ(again->hello().held(0).partitions_size(), host.partitions_size());
  EXPECT_EQ(again->hello().held(0).partitions(1).version(), 3u);

  EXPECT_TRUE(absl::IsUnavailable(CallOnce(PullOf(9, 1)).status())) << "not assigned since its start";
  host.set_generation(4);
  Host(host);
  EXPECT_EQ(ready_.partitions(1).version(), 3u);
  const auto after = CallOnce(PullOf(9, 1));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->version, 3u);
  EXPECT_EQ(std::memcmp(after->payload.data(), before->payload.data(), before->payload.size()), 0);
  // The exactly-once table was restored too.
  const auto repeated = CallOnce(PushOf(host, 1, 0, 3, 1.0f));
  ASSERT_TRUE(repeated.ok()) << repeated.status();
  EXPECT_EQ(repeated->version, 3u);
}

TEST_F(PsNodeTest, StartsAgainUnderItsNameWithoutBeingGivenIt) {
  Start("ps-0");
  Host(HostAll(9, 2, DenseJob(100, 10, 1, true), 1024));  // after the Welcome
  node_.reset();
  Start();
  const auto hello = coordinator_.Next(v1::NodeMessage::kHello);
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(hello->hello().name(), "ps-0");
  EXPECT_EQ(hello->hello().held_size(), 1);
  node_.reset();

  PsNodeOptions other = Options();
  other.name = "ps-1";
  const absl::Status refused = PsNode::Start(other).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_NE(refused.message().find("that of ps \"ps-0\", not of \"ps-1\""), std::string::npos) << refused;

  // As an earlier release left it.
  ASSERT_TRUE(std::filesystem::remove(dir_.path() + "/ps/name"));
  EXPECT_TRUE(absl::IsInvalidArgument(PsNode::Start(Options()).status())) << "it would get a new name";
  Start("ps-0");
  ASSERT_TRUE(coordinator_.Next(v1::NodeMessage::kHello).has_value());
  Host(HostAll(9, 3, DenseJob(100, 10, 1, true), 1024));
  EXPECT_TRUE(std::filesystem::exists(dir_.path() + "/ps/name"));
}

TEST_F(PsNodeTest, SaysHowFarBackAPartitionCanBeTaken) {
  Start();
  v1::HostPartitions host = HostAll(9, 2, DenseJob(100, 10, 1, true), 1024);
  host.mutable_spec()->set_durability(v1::SNAPSHOT);
  Host(host);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) ASSERT_TRUE(CallOnce(PushOf(host, 1, 0, sequence, 1.0f)).ok());
  host.set_generation(3);
  Host(host);
  ASSERT_EQ(ready_.partitions(1).version(), 3u);
  EXPECT_EQ(ready_.partitions(1).version_min(), 3u) << "it has no log";
  ASSERT_EQ(ready_.partitions(1).versions_size(), 1);
  EXPECT_EQ(ready_.partitions(1).versions(0), 0u) << "the initial values";
}

TEST_F(PsNodeTest, LowerGenerationsAreIgnoredAndUnnamedPartitionsGo) {
  Start();
  v1::HostPartitions host = HostAll(1, 5, DenseJob(100, 10, 1, true), 1024);
  Host(host);
  ASSERT_TRUE(CallOnce(PushOf(host, 0, 0, 1, 1.0f)).ok());

  v1::HostPartitions older = host;
  older.set_generation(4);
  older.mutable_partitions()->DeleteSubrange(1, older.partitions_size() - 1);
  coordinator_.Send(older);
  Host(host);  // the same again: answered, with what is there
  EXPECT_EQ(ready_.partitions(0).version(), 1u);
  EXPECT_TRUE(CallOnce(PullOf(1, 2)).ok()) << "the older command took nothing away";

  v1::HostPartitions fewer = host;
  fewer.set_generation(6);
  fewer.mutable_partitions()->DeleteSubrange(0, 1);
  Host(fewer);
  EXPECT_TRUE(absl::IsNotFound(CallOnce(PullOf(1, 0)).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(CallOnce(PushOf(host, 1, 0, 1, 1.0f)).status())) << "fenced";
  EXPECT_TRUE(CallOnce(PushOf(fewer, 0, 0, 1, 1.0f)).ok());
  host.set_generation(7);
  Host(host);
  EXPECT_EQ(ready_.partitions(0).version(), 0u) << "forgotten, so begun anew";
}

TEST_F(PsNodeTest, ADroppedJobIsGoneFromDisk) {
  Start();
  const v1::HostPartitions first = HostAll(1, 1, DenseJob(10, 10, 1, true), 1024);
  const v1::HostPartitions second = HostAll(2, 1, DenseJob(10, 10, 1, true), 1024);
  Host(first);
  Host(second);
  v1::CoordinatorMessage drop;
  drop.mutable_drop_job()->set_job_id(1);
  coordinator_.Send(drop);
  Host(second);  // commands are carried out in order
  EXPECT_TRUE(absl::IsNotFound(CallOnce(PullOf(1, 0)).status()));
  EXPECT_TRUE(CallOnce(PullOf(2, 0)).ok());
  node_->Stop(absl::Seconds(3));
  node_.reset();
  Start();
  const auto hello = coordinator_.Next(v1::NodeMessage::kHello);
  ASSERT_TRUE(hello.has_value());
  ASSERT_EQ(hello->hello().held_size(), 1);
  EXPECT_EQ(hello->hello().held(0).job_id(), 2u);
}

TEST_F(PsNodeTest, AJobThatCannotBeHostedIsReportedAndOthersGoOn) {
  Start();
  v1::HostPartitions bad = HostAll(1, 3, DenseJob(10, 10, 1, true), 1024);
  bad.mutable_partitions(0)->set_end(uint64_t{1} << 30);
  coordinator_.Send(bad);
  const auto error = coordinator_.Next(v1::NodeMessage::kJobError);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->job_error().job_id(), 1u);
  EXPECT_EQ(error->job_error().generation(), 3u);
  EXPECT_NE(error->job_error().message().find("range"), std::string::npos) << error->job_error().message();
  Host(HostAll(2, 1, DenseJob(10, 10, 1, true), 1024));
  EXPECT_TRUE(CallOnce(PullOf(2, 0)).ok());
}

TEST_F(PsNodeTest, OptionsAndDataDirectoriesThatDoNotWorkAreRefused) {
  PsNodeOptions o = Options();
  o.listen = "nonsense";
  EXPECT_TRUE(absl::IsInvalidArgument(PsNode::Start(o).status()));
  o = Options();
  o.coordinator = "";
  EXPECT_TRUE(absl::IsInvalidArgument(PsNode::Start(o).status()));
  o = Options();
  o.threads = 1000;
  EXPECT_TRUE(absl::IsInvalidArgument(PsNode::Start(o).status()));

  Start();
  const auto second = PsNode::Start(Options());  // the same data directory
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_NE(second.status().message().find(dir_.path()), std::string::npos) << second.status();
  node_.reset();

  std::ofstream(dir_.path() + "/ps/store/db/CURRENT") << "not a manifest\n";
  const auto corrupt = PsNode::Start(Options());
  EXPECT_FALSE(corrupt.ok());
  EXPECT_NE(corrupt.status().message().find(dir_.path()), std::string::npos) << corrupt.status();
}

// ---- health and reflection: bytes as on the wire, since their protos are not installed with gRPC ----

absl::StatusOr<std::string> Unary(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                                  const std::string& request) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  const grpc::Slice slice(request);
  const grpc::ByteBuffer in(&slice, 1);
  grpc::ByteBuffer out;
  absl::Notification done;
  grpc::Status status;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &in, &out, [&](grpc::Status s) {
    status = std::move(s);
    done.Notify();
  });
  done.WaitForNotification();
  if (!status.ok()) return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  grpc::Slice whole;
  if (!out.DumpToSingleSlice(&whole).ok()) return absl::InternalError("no bytes");
  return std::string(reinterpret_cast<const char*>(whole.begin()), whole.size());
}

TEST_F(PsNodeTest, AnswersHealthChecksAndReflection) {
  Start();
  const std::string tcp = node_->address().substr(0, node_->address().find(','));
  const auto channel = grpc::CreateChannel(tcp, grpc::InsecureChannelCredentials());
  const auto health = Unary(channel, "/grpc.health.v1.Health/Check", "");
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(*health, "\x08\x01") << "status = SERVING";
  // list_services (field 7). A stream of one request, which a unary call is too.
  const auto services =
      Unary(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", std::string("\x3a\x01*", 3));
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_NE(services->find("cairn.v1.ParameterServer"), std::string::npos);
}

}  // namespace
}  // namespace cairn
