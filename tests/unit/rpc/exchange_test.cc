// Goal: the Exchange RPC from PsConnection to PartitionHost over real sockets. Broken and hostile peers are in
// exchange_peers_test.cc.
#include "tests/unit/rpc/exchange_test.h"

#include <atomic>
#include <thread>

namespace cairn {
namespace {

void RoundTrip(TestPs& ps, const v1::HostPartitions& host) {
  PsConnection connection(ps.address(), {});
  const auto before = Call(connection, PullOf(ExchangeTest::kJob, 0));
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(before->version, 0u);
  const auto after = Call(connection, PushOf(host, 0, 0, 1, 2.0f));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->version, 1u);
  ASSERT_EQ(after->payload.size(), before->payload.size());
  // One dense layer: the kernel comes first, padding last. mean gradient 1, learning rate 0.5.
  EXPECT_EQ(after->payload.floats()[0], before->payload.floats()[0] - 0.5f);
  // Sent again, as after a broken stream: answered, not applied.
  const auto again = Call(connection, PushOf(host, 0, 0, 1, 2.0f));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->version, 1u);
  EXPECT_EQ(again->payload.floats()[0], after->payload.floats()[0]);
}

// A store that has no room for anything from some moment on.
class FullStore : public KvStore {
 public:
  explicit FullStore(KvStore& store) : store_(store) {}
  absl::StatusOr<std::optional<std::string>> Get(std::string_view key) override { return store_.Get(key); }
  absl::Status Write(const KvBatch& batch, bool sync) override {
    return full ? absl::ResourceExhaustedError("no space left on device") : store_.Write(batch, sync);
  }
  absl::Status Scan(std::string_view prefix,
                    const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return store_.Scan(prefix, fn);
  }
  std::atomic<bool> full{false};

 private:
  KvStore& store_;
};

// A ps that is told that it holds a copy is believed to have what it acknowledged.
TEST(PartitionHost, ACopyThatWentWithItsStoreIsNotNamed) {
  const std::unique_ptr<KvStore> memory = NewMemoryKvStore();
  FullStore store(*memory);
  TestPs ps(store);
  v1::JobSpec spec = DenseJob(8, 4, 1, true);
  spec.set_durability(v1::LOGGED);
  const v1::HostPartitions host = HostAll(ExchangeTest::kJob, ExchangeTest::kGeneration, spec, 64);
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
  // Only the socket is reachable at this address.
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

// Each partition is at a different version, and the one before is refused.
class TornPs : public ExchangeHandler {
 public:
  explicit TornPs(absl::Status refusal) : refusal_(std::move(refusal)), exchange_(this) {
    RpcServerOptions options;
    options.listen = "127.0.0.1:0";
    absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start(options, {exchange_.service()});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~TornPs() override {
    exchange_.Shutdown(absl::Seconds(5));
    server_->Stop(absl::ZeroDuration());
  }
  void OnFrame(uint64_t client, Frame frame, Credit) override {
    Frame answer;
    answer.request_id = frame.request_id;
    answer.job = frame.job;
    answer.partition = frame.partition;
    answer.kind = frame.want_version ? v1::ExchangeFrame::ERROR : v1::ExchangeFrame::VALUES;
    if (frame.want_version) {
      answer.status = refusal_;
    } else {
      answer.version = 3 + frame.partition.value;
      answer.dtype = v1::FLOAT32;
      answer.payload = Buffer::Zeros(16 * sizeof(float));
      answer.payload_total = answer.payload.size();
    }
    exchange_.Send(client, std::move(answer));
  }
  void OnClientGone(uint64_t) override {}
  std::vector<v1::Route> Routes() {
    std::vector<v1::Route> routes(2);
    for (uint32_t p = 0; p < 2; ++p) {
      routes[p].mutable_range()->set_partition(p);
      routes[p].mutable_range()->set_begin(16 * p);
      routes[p].mutable_range()->set_end(16 * (p + 1));
      routes[p].set_ps("ps-torn");
      routes[p].set_address(server_->Address(""));
    }
    return routes;
  }

 private:
  const absl::Status refusal_;
  ExchangeService exchange_;
  std::unique_ptr<RpcServer> server_;
};

// A ps that is away for a moment differs from one that has lost the job: only the first is worth another try.
TEST(PullVariables, SaysWhyAJobThatStandsStillCannotBePulled) {
  for (const absl::Status& refusal :
       {absl::UnavailableError("the ps is stopping"), absl::FailedPreconditionError("3 is gone")}) {
    TornPs ps(refusal);
    const auto pulled = PullVariables(1, ps.Routes(), /*consistent=*/true, absl::Seconds(30), /*moves_on=*/false);
    EXPECT_EQ(pulled.status().code(), refusal.code()) << pulled.status();
    const std::string message(pulled.status().message());
    EXPECT_NE(message.find("partition 1 at version 4"), std::string::npos) << message;
    const bool gone = absl::IsFailedPrecondition(refusal);
    EXPECT_EQ(message.find("not at one version") != std::string::npos, gone) << message;
    EXPECT_EQ(message.find("the ps is stopping") != std::string::npos, !gone) << message;
  }
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

TEST_F(ExchangeTest, OutstandingBytesAreBounded) {
  Start(DenseJob(8, 4, 2, false), 1 << 20);
  PsConnectionOptions options;
  options.outstanding_bytes_max = host_.partitions(0).end() * 4;
  PsConnection connection(ps_->address(), options);
  connection.Send(PushOf(host_, 0, 0, 1, 1.0f), [](const absl::StatusOr<Frame>&) {});  // waits for the other replica's
  EXPECT_TRUE(absl::IsResourceExhausted(Call(connection, PushOf(host_, 0, 1, 1, 1.0f)).status()));
}

TEST_F(ExchangeTest, RequestsTimeOutAndGiveTheirBytesBack) {
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
  ASSERT_TRUE(timed_out.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  absl::Status pulled;
  do {  // on a busy machine this one may take longer than its time, too
    pulled = Call(connection, PullOf(kJob, 0)).status();
  } while (absl::IsDeadlineExceeded(pulled));
  EXPECT_TRUE(pulled.ok()) << pulled << ": its bytes are given back, a late answer does no harm";
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
