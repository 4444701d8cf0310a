// Goal: the Exchange RPC from PsConnection to PartitionHost over real sockets, and what a broken or hostile peer gets:
// a status, while the server lives on for the others.
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "cairn/v1/parameter.grpc.pb.h"
#include "tests/unit/rpc/exchange_fixture.h"

namespace cairn {
namespace {

constexpr uint64_t kJob = 5, kGeneration = 3;
// Requests beyond what one stream's queue and the windows of both sides can hold.
constexpr uint64_t kFramesMax = 1'000'000;

class ExchangeTest : public testing::Test {
 protected:
  void Start(const v1::JobSpec& spec, int64_t partition_bytes, bool unix_socket = false) {
    store_ = NewMemoryKvStore();
    ps_ = std::make_unique<TestPs>(*store_, unix_socket ? dir_.path() + "/ps.sock" : "");
    host_ = HostAll(kJob, kGeneration, spec, partition_bytes);
    const auto ready = ps_->host().Host(host_);
    ASSERT_TRUE(ready.ok()) << ready.status();
    ASSERT_EQ(ready->partitions_size(), host_.partitions_size());
  }
  std::vector<v1::Route> Routes() {
    std::vector<v1::Route> routes;
    for (const auto& range : host_.partitions()) {
      v1::Route& r = routes.emplace_back();
      *r.mutable_range() = range;
      r.set_ps("ps-test");
      r.set_address(ps_->address());
    }
    return routes;
  }

  TempDir dir_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<TestPs> ps_;
  v1::HostPartitions host_;
};

void RoundTrip(TestPs& ps, const v1::HostPartitions& host) {
  PsConnection connection(ps.address(), {});
  const auto before = Call(connection, PullOf(kJob, 0));
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(before->version, 0u);
  const auto after = Call(connection, PushOf(host, 0, 0, 1, 2.0f));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->version, 1u);
  ASSERT_EQ(after->payload.size(), before->payload.size());
  // One dense layer: the kernel comes first, padding last. mean gradient 1, learning rate 0.5.
  EXPECT_EQ(after->payload.floats()[0], before->payload.floats()[0] - 0.5f);
  // Sent again (as after a broken stream): answered, not applied.
  const auto again = Call(connection, PushOf(host, 0, 0, 1, 2.0f));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->version, 1u);
  EXPECT_EQ(again->payload.floats()[0], after->payload.floats()[0]);
}

// From a moment on there is no room for anything.
class FullStore : public KvStore {
 public:
  explicit FullStore(KvStore& store) : store_(store) {}
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return store_.Get(key); }
  absl::Status Write(const KvBatch& batch, bool sync) override {
    return full ? absl::ResourceExhaustedError("no space left on device") : store_.Write(batch, sync);
  }
  absl::Status Scan(std::string_view prefix, const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return store_.Scan(prefix, fn);
  }
  std::atomic<bool> full{false};

 private:
  KvStore& store_;
};

// Whoever is told that it holds a copy believes that this has what it acknowledged.
TEST(PartitionHost, ACopyThatWentWithItsStoreIsNotNamed) {
  const std::unique_ptr<KvStore> memory = NewMemoryKvStore();
  FullStore store(*memory);
  TestPs ps(store);
  v1::JobSpec spec = DenseJob(8, 4, 1, true);
  spec.set_durability(v1::LOGGED);
  const v1::HostPartitions host = HostAll(kJob, kGeneration, spec, 64);
  ASSERT_TRUE(ps.host().Host(host).ok());
  const int all = host.partitions_size();
  ASSERT_GE(all, 2);
  ASSERT_EQ(ps.host().Held().at(0).partitions_size(), all);
  store.full = true;
  PsConnection connection(ps.address(), {});
  EXPECT_TRUE(absl::IsUnavailable(Call(connection, PushOf(host, 1, 0, 1, 2.0f)).status()));
  const std::vector<v1::HeldPartitions> held = ps.host().Held();
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].partitions_size(), all - 1);
  for (const v1::HeldPartition& p : held[0].partitions()) EXPECT_NE(p.partition(), 1u);
}

TEST_F(ExchangeTest, PushAndPullOverTcp) {
  Start(DenseJob(8, 4, 1, true), 1 << 20);
  RoundTrip(*ps_, host_);
}

TEST_F(ExchangeTest, PushAndPullOverAUnixSocket) {
  Start(DenseJob(8, 4, 1, true), 1 << 20, true);
  ASSERT_NE(ps_->address().find(",unix:"), std::string::npos);
  // Only the socket works under this address.
  const std::string address = "127.0.0.1:1" + ps_->address().substr(ps_->address().find(','));
  PsConnection connection(address, {});
  EXPECT_TRUE(Call(connection, PullOf(kJob, 0)).ok());
  RoundTrip(*ps_, host_);
}

TEST_F(ExchangeTest, ASocketFileWithoutAListenerMeansTcp) {
  Start(DenseJob(8, 4, 1, true), 1 << 20);
  PsConnection connection(ps_->address() + ",unix:" + dir_.path() + "/nobody.sock", {});
  const auto values = Call(connection, PullOf(kJob, 0));
  EXPECT_TRUE(values.ok()) << values.status();
}

TEST_F(ExchangeTest, TensorsOfManyChunks) {
  Start(DenseJob(1200, 2000, 1, true), 4 << 20);  // 9.6 MB: 4 MiB cut into four, 4 MiB, and the rest
  ASSERT_EQ(host_.partitions_size(), 6);
  PsConnection connection(ps_->address(), {});
  for (int p = 0; p < 6; ++p) {
    const auto before = Call(connection, PullOf(kJob, p));
    ASSERT_TRUE(before.ok()) << before.status();
    const auto after = Call(connection, PushOf(host_, p, 0, 1, 4.0f));
    ASSERT_TRUE(after.ok()) << after.status();
    for (size_t i : {size_t{0}, size_t{262144}, after->payload.floats().size() - 2000}) {
      if (i < after->payload.floats().size()) {
        EXPECT_EQ(after->payload.floats()[i], before->payload.floats()[i] - 1.0f) << i;
      }
    }
  }
}

TEST_F(ExchangeTest, ManyRequestsAtOnceAreEachAnsweredOnce) {
  Start(DenseJob(100, 100, 4, true), 4096);
  const int partitions = host_.partitions_size();
  ASSERT_GT(partitions, 8);
  constexpr int kRounds = 20;
  std::atomic<int> ok{0}, failed{0};
  std::vector<std::thread> workers;
  for (uint32_t replica = 0; replica < 4; ++replica) {
    workers.emplace_back([&, replica] {
      PsConnection connection(ps_->address(), {});
      for (uint64_t round = 1; round <= kRounds; ++round) {
        absl::BlockingCounter left(partitions);
        for (int p = 0; p < partitions; ++p) {
          connection.Send(PushOf(host_, p, replica, round, 1.0f), [&](absl::StatusOr<Frame> answer) {
            ++(answer.ok() ? ok : failed);
            left.DecrementCount();
          });
        }
        left.Wait();
      }
    });
  }
  for (auto& t : workers) t.join();
  EXPECT_EQ(ok, 4 * kRounds * partitions);
  EXPECT_EQ(failed, 0);
  const auto pulled = PullVariables(kJob, Routes(), false, absl::Seconds(30));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->version, 4u * kRounds);
  EXPECT_EQ(pulled->version_max, 4u * kRounds);
}

TEST_F(ExchangeTest, ASynchronousStepWaitsForAllReplicas) {
  Start(DenseJob(8, 4, 2, false), 1 << 20);
  PsConnection a(ps_->address(), {}), b(ps_->address(), {});
  absl::Notification first;
  absl::StatusOr<Frame> first_answer;
  a.Send(PushOf(host_, 0, 0, 1, 1.0f), [&](absl::StatusOr<Frame> answer) {
    first_answer = std::move(answer);
    first.Notify();
  });
  ASSERT_TRUE(Call(a, PullOf(kJob, 0)).ok());  // handled after the push, on the same stream
  EXPECT_FALSE(first.HasBeenNotified());
  const auto second = Call(b, PushOf(host_, 0, 1, 1, 3.0f));
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE(first.WaitForNotificationWithTimeout(absl::Seconds(30)));
  ASSERT_TRUE(first_answer.ok());
  EXPECT_EQ(first_answer->version, 1u);
  EXPECT_EQ(first_answer->payload.floats()[0], second->payload.floats()[0]);
}

TEST_F(ExchangeTest, ErrorsCarryTheirCode) {
  Start(DenseJob(8, 4, 1, true), 1 << 20);
  PsConnection connection(ps_->address(), {});
  EXPECT_TRUE(absl::IsNotFound(Call(connection, PullOf(kJob, 99)).status()));
  EXPECT_TRUE(absl::IsNotFound(Call(connection, PullOf(77, 0)).status()));
  Frame stale = PushOf(host_, 0, 0, 1, 1.0f);
  stale.generation = Generation(kGeneration - 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(Call(connection, stale).status()));
  stale.generation = Generation(kGeneration + 1);
  EXPECT_TRUE(absl::IsUnavailable(Call(connection, stale).status()));
  Frame short_one = PushOf(host_, 0, 0, 1, 1.0f);
  short_one.payload = Buffer::Zeros(64);
  short_one.payload_total = 64;
  EXPECT_TRUE(absl::IsInvalidArgument(Call(connection, short_one).status()));
  Frame kind;
  kind.job = JobId(kJob);
  EXPECT_TRUE(absl::IsInvalidArgument(Call(connection, kind).status()));
  EXPECT_TRUE(Call(connection, PullOf(kJob, 0)).ok()) << "the stream has survived all that";
}

TEST_F(ExchangeTest, PullVariablesLaysPartitionsTogether) {
  Start(DenseJob(100, 30, 1, false), 1024);
  const auto pulled = PullVariables(kJob, Routes(), true, absl::Seconds(30));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->values.size(), host_.partitions().rbegin()->end() * 4);
  PsConnection connection(ps_->address(), {});
  for (const auto& range : host_.partitions()) {
    const auto values = Call(connection, PullOf(kJob, range.partition()));
    ASSERT_TRUE(values.ok());
    EXPECT_EQ(std::memcmp(values->payload.data(), pulled->values.data() + range.begin() * 4, values->payload.size()),
              0);
  }
  auto routes = Routes();
  routes[0].mutable_range()->set_partition(1000);
  const auto missing = PullVariables(kJob, routes, true, absl::Seconds(30));
  EXPECT_TRUE(absl::IsNotFound(missing.status())) << missing.status();
  EXPECT_NE(missing.status().message().find("ps-test"), std::string::npos);
}

// One partition is a step ahead: a consistent pull takes the version before from it, or waits for the other.
TEST_F(ExchangeTest, AConsistentPullIsOfOneVersion) {
  Start(DenseJob(16, 32, 1, false), 1024);
  ASSERT_GE(host_.partitions_size(), 2);
  PsConnection connection(ps_->address(), {});
  ASSERT_TRUE(Call(connection, PushOf(host_, 0, 0, 1, 1.0f)).ok());
  const auto torn = PullVariables(kJob, Routes(), false, absl::Seconds(30));
  ASSERT_TRUE(torn.ok());
  EXPECT_EQ(torn->version, 0u);
  EXPECT_EQ(torn->version_max, 1u);
  std::thread worker([&] {
    for (int p = 1; p < host_.partitions_size(); ++p) {
      EXPECT_TRUE(Call(connection, PushOf(host_, p, 0, 1, 1.0f)).ok());
    }
  });
  const auto pulled = PullVariables(kJob, Routes(), true, absl::Seconds(30));
  worker.join();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->version, pulled->version_max);
}

TEST_F(ExchangeTest, APsThatIsNotThere) {
  uint16_t port;
  {
    auto store = NewMemoryKvStore();
    TestPs gone(*store);
    port = static_cast<uint16_t>(gone.server().port());
  }
  const std::string address = "127.0.0.1:" + std::to_string(port);
  PsConnection connection(address, {});
  EXPECT_TRUE(absl::IsUnavailable(Call(connection, PullOf(1, 0)).status()));
  EXPECT_TRUE(absl::IsUnavailable(Call(connection, PullOf(1, 0)).status())) << "after the back-off again";
  v1::Route route;
  route.mutable_range()->set_end(16);
  route.set_ps("ps-gone");
  route.set_address(address);
  const auto pulled = PullVariables(1, {route}, true, absl::Milliseconds(300));
  EXPECT_TRUE(absl::IsUnavailable(pulled.status()) || absl::IsDeadlineExceeded(pulled.status())) << pulled.status();
  EXPECT_NE(pulled.status().message().find("ps-gone"), std::string::npos) << pulled.status();
}

TEST_F(ExchangeTest, ABrokenStreamFailsWhatIsUnansweredAndTheNextSendReconnects) {
  Start(DenseJob(8, 4, 2, false), 1 << 20);
  const std::string listen = "127.0.0.1:" + std::to_string(ps_->server().port());
  PsConnection connection(ps_->address(), {});
  absl::Notification broken;
  absl::Status status;
  connection.Send(PushOf(host_, 0, 0, 1, 1.0f), [&](absl::StatusOr<Frame> answer) {
    status = answer.status();
    broken.Notify();
  });
  ASSERT_TRUE(Call(connection, PullOf(kJob, 0)).ok());  // the push is there, and waits at its barrier
  ps_.reset();
  ASSERT_TRUE(broken.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;

  ps_ = std::make_unique<TestPs>(*store_, "", listen);
  ASSERT_TRUE(ps_->host().LoadHeld().ok());
  EXPECT_TRUE(absl::IsUnavailable(Call(connection, PullOf(kJob, 0)).status()))
      << "recovered, not assigned: nobody is served";
  ASSERT_TRUE(ps_->host().Host(host_).ok());
  const auto values = Call(connection, PullOf(kJob, 0));
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->version, 0u);
}

TEST_F(ExchangeTest, ClosingAConnectionCancelsWhatWaits) {
  Start(DenseJob(8, 4, 2, false), 1 << 20);
  int calls = 0;
  absl::Status status;
  {
    PsConnection connection(ps_->address(), {});
    connection.Send(PushOf(host_, 0, 0, 1, 1.0f), [&](absl::StatusOr<Frame> answer) {
      ++calls;
      status = answer.status();
    });
    ASSERT_TRUE(Call(connection, PullOf(kJob, 0)).ok());
  }
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  { PsConnection never_sent(ps_->address(), {}); }
}

TEST_F(ExchangeTest, OutstandingBytesAreBoundedAndRequestsTimeOut) {
  Start(DenseJob(8, 4, 2, false), 1 << 20);
  PsConnectionOptions options;
  options.outstanding_bytes_max = host_.partitions(0).end() * 4;
  options.request_timeout = absl::Milliseconds(200);
  PsConnection connection(ps_->address(), options);
  absl::Notification timed_out;
  absl::Status status;
  connection.Send(PushOf(host_, 0, 0, 1, 1.0f), [&](absl::StatusOr<Frame> answer) {
    status = answer.status();
    timed_out.Notify();
  });
  EXPECT_TRUE(absl::IsResourceExhausted(Call(connection, PushOf(host_, 0, 1, 1, 1.0f)).status()));
  ASSERT_TRUE(timed_out.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(Call(connection, PullOf(kJob, 0)).ok()) << "its bytes are given back, a late answer does no harm";
}

// ---- hostile and foreign peers ----

grpc::ByteBuffer BytesOf(const std::string& s) {
  const grpc::Slice slice(s);
  return grpc::ByteBuffer(&slice, 1);
}

// Sends one message on a raw stream and returns how the stream ends.
grpc::Status StatusAfter(const std::shared_ptr<grpc::Channel>& channel, const std::string& bytes) {
  struct Reactor : grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
    void OnReadDone(bool ok) override {
      if (ok) StartRead(&incoming);
    }
    void OnDone(const grpc::Status& s) override {
      status = s;
      done.Notify();
    }
    grpc::ByteBuffer incoming, outgoing;
    grpc::Status status;
    absl::Notification done;
  } reactor;
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  stub.PrepareBidiStreamingCall(&context, "/cairn.v1.ParameterServer/Exchange", grpc::StubOptions(), &reactor);
  reactor.outgoing = BytesOf(bytes);
  reactor.StartRead(&reactor.incoming);
  reactor.StartWrite(&reactor.outgoing);
  reactor.StartCall();
  reactor.done.WaitForNotification();
  return reactor.status;
}

TEST_F(ExchangeTest, BytesThatAreNoFrameEndTheStreamAndNothingElse) {
  Start(DenseJob(8, 4, 1, true), 1 << 20);
  PsConnection neighbour(ps_->address(), {});
  ASSERT_TRUE(Call(neighbour, PullOf(kJob, 0)).ok());
  v1::ExchangeFrame giant;
  giant.set_kind(v1::ExchangeFrame::PUSH);
  giant.set_payload("abcd");
  giant.set_payload_total(uint64_t{1} << 50);
  v1::ExchangeFrame hole = giant;
  hole.set_payload_total(100);
  hole.set_payload_offset(8);
  for (const std::string& bytes : {std::string("\xff\xff\xff garbage"), std::string("\xa2\x06\xff\x7f", 4),
                                   giant.SerializeAsString(), hole.SerializeAsString()}) {
    const grpc::Status status = StatusAfter(ps_->RawChannel(), bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_FALSE(status.error_message().empty());
  }
  // A message larger than any frame: gRPC's own limit.
  EXPECT_EQ(StatusAfter(ps_->RawChannel(), std::string(kFrameBytesMax + 1, 'x')).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Call(neighbour, PullOf(kJob, 0)).ok());
}

// The plain protobuf stub, as another language would use it, that closes its side before it reads.
TEST_F(ExchangeTest, AnOrdinaryProtobufClient) {
  Start(DenseJob(8, 4, 1, true), 1 << 20);
  auto stub = v1::ParameterServer::NewStub(ps_->RawChannel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  auto stream = stub->Exchange(&context);
  const size_t numbers = host_.partitions(0).end();
  v1::ExchangeFrame push;
  push.set_kind(v1::ExchangeFrame::PUSH);
  push.set_request_id(41);
  push.set_job_id(kJob);
  push.set_generation(kGeneration);
  push.set_replica_count(1);
  push.set_sequence(1);
  push.set_examples(1);
  push.set_learning_rate(1);
  push.set_dtype(v1::FLOAT32);
  push.set_reply_dtype(v1::BFLOAT16);
  push.set_payload(std::string(numbers * 4, '\0'));
  push.set_payload_total(numbers * 4);
  v1::ExchangeFrame pull;
  pull.set_kind(v1::ExchangeFrame::PULL);
  pull.set_request_id(42);
  pull.set_job_id(kJob);
  ASSERT_TRUE(stream->Write(push));
  ASSERT_TRUE(stream->Write(pull));
  stream->WritesDone();
  v1::ExchangeFrame answer;
  std::vector<uint64_t> ids;
  while (stream->Read(&answer)) {
    EXPECT_EQ(answer.kind(), v1::ExchangeFrame::VALUES);
    EXPECT_EQ(answer.version(), 1u);
    ids.push_back(answer.request_id());
    if (answer.request_id() == 41) {
      EXPECT_EQ(answer.payload().size(), numbers * 2);
    }
  }
  EXPECT_TRUE(stream->Finish().ok());
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids, (std::vector<uint64_t>{41, 42}));
}

// A client that sends and never reads is held up: its requests are read until kStreamQueueBytesMax of answers wait, and
// no further.
TEST(ExchangeService, AClientThatDoesNotReadIsHeldUp) {
  // Answers everything at once with 1 MiB.
  class Handler : public ExchangeHandler {
   public:
    void OnFrame(uint64_t client, Frame frame, Credit) override {
      frame.kind = v1::ExchangeFrame::VALUES;
      frame.payload = values_;
      ++handled;
      service->Send(client, std::move(frame));
    }
    void OnClientGone(uint64_t) override { gone.Notify(); }
    ExchangeService* service = nullptr;
    std::atomic<int> handled{0};
    absl::Notification gone;

   private:
    const Buffer values_ = Buffer::Zeros(1 << 20);
  } handler;
  ExchangeService service(&handler);
  handler.service = &service;
  auto server = RpcServer::Start({}, {service.service()});
  ASSERT_TRUE(server.ok()) << server.status();

  auto stub =
      v1::ParameterServer::NewStub(grpc::CreateChannel((*server)->Address(""), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto stream = stub->Exchange(&context);
  constexpr int kRequests = 1000;  // they fit any window, so that writing them does not block
  v1::ExchangeFrame pull;
  pull.set_kind(v1::ExchangeFrame::PULL);
  for (int i = 0; i < kRequests; ++i) {
    pull.set_request_id(i + 1);
    ASSERT_TRUE(stream->Write(pull));
  }
  int before = 0;
  do {  // until half a second brings nothing more
    before = handler.handled;
    EXPECT_FALSE(handler.gone.WaitForNotificationWithTimeout(absl::Milliseconds(500)));
  } while (handler.handled != before || before == 0);
  // What the windows of both sides hold was sent; the rest is the queue.
  EXPECT_GE(before, static_cast<int>(kStreamQueueBytesMax >> 20));
  EXPECT_LT(before, kRequests / 2);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(handler.gone.WaitForNotificationWithTimeout(absl::Seconds(30)));
  (*server)->Stop(absl::ZeroDuration());
}

// The same with answers that have no payload: each counts for what it holds, so that the reads stop.
TEST_F(ExchangeTest, AClientThatDoesNotReadErrorsIsHeldUp) {
  Start(DenseJob(8, 4, 1, true), 1 << 20);
  auto stub = v1::ParameterServer::NewStub(ps_->RawChannel());
  grpc::ClientContext context;
  auto stream = stub->Exchange(&context);
  // Streams without a reader fill the windows of both sides; then the writer stands still, and stays so until it is
  // cancelled.
  std::atomic<uint64_t> sent = 0;
  absl::Notification ended;
  std::thread writer([&] {
    v1::ExchangeFrame pull;
    pull.set_kind(v1::ExchangeFrame::PULL);
    pull.set_job_id(kJob);
    pull.set_partition(4242);  // not here
    while (sent < kFramesMax) {
      pull.set_request_id(sent + 1);
      if (!stream->Write(pull)) break;
      ++sent;
    }
    ended.Notify();
  });
  uint64_t before = 0;
  do {  // until a second brings nothing more
    before = sent;
  } while (!ended.WaitForNotificationWithTimeout(absl::Seconds(1)) && sent != before);
  EXPECT_LT(sent, kFramesMax) << "nothing held the client up";
  PsConnection neighbour(ps_->address(), {});
  EXPECT_TRUE(Call(neighbour, PullOf(kJob, 0)).ok());
  context.TryCancel();
  writer.join();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(ExchangeTest, TheListenersPortIsItsOwn) {
  Start(DenseJob(8, 4, 1, true), 1 << 20);
  RpcServerOptions options;
  options.listen = "127.0.0.1:" + std::to_string(ps_->server().port());
  const auto second = RpcServer::Start(options, {});
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_NE(second.status().message().find(options.listen), std::string::npos);
}

}  // namespace
}  // namespace cairn
