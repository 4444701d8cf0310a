// Goal: a SessionClient keeps a session up: hello first, heartbeats after Welcome, a new session after a loss or a
// refusal, nothing queued without bound, and a destructor that returns whatever the coordinator does.
#include "client/session_client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "cairn/v1/cluster.grpc.pb.h"
#include "common/base/version.h"
#include "common/rpc/server.h"

namespace cairn {
namespace {

using Stream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::NodeMessage>;
constexpr absl::Duration kLong = absl::Seconds(30);  // a test that waits so long has failed

// Each session is handled by the next script of the list, later ones by the last.
class FakeCoordinator : public v1::Coordinator::Service {
 public:
  using Script = std::function<grpc::Status(Stream*)>;
  explicit FakeCoordinator(std::deque<Script> scripts) : scripts_(std::move(scripts)) {}

  grpc::Status Session(grpc::ServerContext*, Stream* stream) override {
    Script script;
    {
      absl::MutexLock lock(&mutex_);
      script = scripts_.front();
      if (scripts_.size() > 1) scripts_.pop_front();
    }
    return script(stream);
  }

  std::string Start(const std::string& listen = "127.0.0.1:0") {
    RpcServerOptions options;
    options.listen = listen;
    auto server = RpcServer::Start(options, {this});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    return server_->Address("");
  }
  void Stop() { server_.reset(); }

 private:
  absl::Mutex mutex_;
  std::deque<Script> scripts_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<RpcServer> server_;
};

void Welcome(Stream* stream, int heartbeat_ms = 10) {
  v1::CoordinatorMessage message;
  message.mutable_welcome()->set_heartbeat_interval_ms(heartbeat_ms);
  stream->Write(message);
}

void ReadUntilBroken(Stream* stream) {
  v1::NodeMessage message;
  while (stream->Read(&message)) {
  }
}

grpc::Status WelcomeAndRead(Stream* stream) {
  Welcome(stream);
  ReadUntilBroken(stream);
  return grpc::Status::OK;
}

// What the client reported to its owner.
struct Told {
  absl::Mutex mutex;
  int hellos = 0, ups = 0, downs = 0;
  std::vector<v1::CoordinatorMessage> messages;
  std::vector<absl::Status> rejected, unreached;

  SessionCallbacks Callbacks() {
    SessionCallbacks callbacks;
    callbacks.hello = [this] {
      absl::MutexLock lock(&mutex);
      v1::Hello hello;
      hello.set_name("node");
      hello.set_incarnation(++hellos);
      return hello;
    };
    callbacks.heartbeat = [] {
      v1::Heartbeat heartbeat;
      heartbeat.set_memory_bytes(42);
      return heartbeat;
    };
    callbacks.on_message = [this](const v1::CoordinatorMessage& message) {
      absl::MutexLock lock(&mutex);
      messages.push_back(message);
    };
    callbacks.on_connection = [this](bool up) {
      absl::MutexLock lock(&mutex);
      ++(up ? ups : downs);
    };
    callbacks.on_rejected = [this](const absl::Status& status) {
      absl::MutexLock lock(&mutex);
      rejected.push_back(status);
    };
    callbacks.on_unreached = [this](const absl::Status& status) {
      absl::MutexLock lock(&mutex);
      unreached.push_back(status);
    };
    return callbacks;
  }
  bool Wait(std::function<bool()> condition) {
    absl::MutexLock lock(&mutex);
    return mutex.AwaitWithTimeout(absl::Condition(&condition, &std::function<bool()>::operator()), kLong);
  }
};

TEST(SessionClient, HelloThenHeartbeatsAndMessagesBothWays) {
  v1::NodeMessage first, second, ready;
  absl::Notification done;
  FakeCoordinator coordinator({[&](Stream* stream) {
    stream->Read(&first);
    Welcome(stream);
    v1::CoordinatorMessage drop;
    drop.mutable_drop_job()->set_job_id(7);
    stream->Write(drop);
    stream->Read(&second);
    while (!ready.has_partitions_ready() && stream->Read(&ready)) {
    }
    if (!done.HasBeenNotified()) done.Notify();
    ReadUntilBroken(stream);
    return grpc::Status::OK;
  }});
  Told told;
  SessionClient client(coordinator.Start(), told.Callbacks());
  ASSERT_TRUE(told.Wait([&] { return told.messages.size() == 2; }));
  v1::NodeMessage message;
  message.mutable_partitions_ready()->set_job_id(7);
  client.Send(message);
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kLong));
  EXPECT_EQ(first.hello().name(), "node");
  EXPECT_EQ(second.heartbeat().memory_bytes(), 42u);
  EXPECT_EQ(ready.partitions_ready().job_id(), 7u);
  absl::MutexLock lock(&told.mutex);
  EXPECT_TRUE(told.messages[0].has_welcome());
  EXPECT_EQ(told.messages[1].drop_job().job_id(), 7u);
  EXPECT_EQ(told.ups, 1);
}

TEST(SessionClient, ANodeThatRecordsAnswersForItselfUntilItsSessionEnds) {
  v1::NodeMessage first, read;
  absl::Notification answered, end;
  FakeCoordinator coordinator({[&](Stream* stream) {
                                 stream->Read(&first);
                                 Welcome(stream);
                                 v1::CoordinatorMessage message;
                                 message.mutable_fetch_trace()->set_request_id(5);
                                 message.mutable_fetch_trace()->mutable_request()->set_trace_id(1);
                                 message.mutable_fetch_trace()->set_job_id(7);
                                 message.mutable_fetch_trace()->set_seconds(60);
                                 stream->Write(message);
                                 while (!read.has_trace_read() && stream->Read(&read)) {
                                 }
                                 answered.Notify();
                                 end.WaitForNotificationWithTimeout(kLong);
                                 return grpc::Status::OK;
                               },
                               WelcomeAndRead});
  Told told;
  TraceRecorder recorder;
  SessionCallbacks callbacks = told.Callbacks();
  callbacks.trace = &recorder;
  SessionClient client(coordinator.Start(), std::move(callbacks));
  ASSERT_TRUE(answered.WaitForNotificationWithTimeout(kLong));
  EXPECT_TRUE(first.hello().serves_trace());
  EXPECT_EQ(read.trace_read().request_id(), 5u);
  EXPECT_GT(read.trace_read().trace().node_ns(), 0);
  EXPECT_EQ(read.trace_read().error(), "");
  EXPECT_TRUE(recorder.Wants(JobId(7)));
  end.Notify();
  ASSERT_TRUE(told.Wait([&] { return told.downs == 1; }));
  EXPECT_FALSE(recorder.on());
}

TEST(SessionClient, ABrokenSessionIsOpenedAgainWithAFreshHello) {
  FakeCoordinator coordinator({[](Stream* stream) {
                                 Welcome(stream);
                                 return grpc::Status(grpc::StatusCode::UNAVAILABLE, "stopping");
                               },
                               WelcomeAndRead});
  Told told;
  SessionClient client(coordinator.Start(), told.Callbacks());
  ASSERT_TRUE(told.Wait([&] { return told.ups == 2; }));
  absl::MutexLock lock(&told.mutex);
  EXPECT_EQ(told.downs, 1);
  EXPECT_EQ(told.hellos, 2);
  EXPECT_TRUE(told.rejected.empty());
}

TEST(SessionClient, ARefusalIsToldAndTriedAgain) {
  FakeCoordinator coordinator(
      {[](Stream*) { return grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "a twin is alive"); },
       [](Stream*) { return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "hello.slots"); }, WelcomeAndRead});
  Told told;
  SessionClient client(coordinator.Start(), told.Callbacks());
  ASSERT_TRUE(told.Wait([&] { return told.ups == 1; }));
  absl::MutexLock lock(&told.mutex);
  ASSERT_EQ(told.rejected.size(), 2u);
  EXPECT_EQ(told.rejected[0], absl::AlreadyExistsError("a twin is alive"));
  EXPECT_EQ(told.rejected[1], absl::InvalidArgumentError("hello.slots"));
  EXPECT_EQ(told.downs, 0) << "it was never up";
}

// A coordinator of long before does not know that it should refuse this node.
TEST(SessionClient, ACoordinatorThatIsTooFarAwayIsRefusedAndTriedAgain) {
  const auto far = [](Stream* stream) {
    v1::CoordinatorMessage message;
    message.mutable_welcome()->set_heartbeat_interval_ms(10);
    message.mutable_welcome()->set_version("9.9");
    message.mutable_welcome()->set_interface(ClusterInterface() + 2);
    stream->Write(message);
    v1::NodeMessage read;
    while (stream->Read(&read)) EXPECT_TRUE(read.has_hello()) << read.DebugString();
    return grpc::Status::OK;
  };
  FakeCoordinator coordinator({far, far, WelcomeAndRead});
  Told told;
  SessionClient client(coordinator.Start(), told.Callbacks());
  ASSERT_TRUE(told.Wait([&] { return told.ups == 1; }));
  absl::MutexLock lock(&told.mutex);
  ASSERT_EQ(told.rejected.size(), 1u);
  EXPECT_THAT(std::string(told.rejected[0].message()),
              testing::HasSubstr("welcome.interface: the coordinator is cairn 9.9 (interface"));
  EXPECT_EQ(told.messages.size(), 1u) << "nothing was obeyed but the last one's Welcome";
  EXPECT_EQ(told.downs, 0) << "it was never up";
}

TEST(SessionClient, TheSameRefusalIsToldOnce) {
  const auto refuse = [](Stream*) { return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "hello.cluster_id"); };
  FakeCoordinator coordinator({refuse, refuse, refuse, WelcomeAndRead});
  Told told;
  SessionClient client(coordinator.Start(), told.Callbacks());
  ASSERT_TRUE(told.Wait([&] { return told.ups == 1; }));
  absl::MutexLock lock(&told.mutex);
  EXPECT_EQ(told.hellos, 4);
  EXPECT_EQ(told.rejected.size(), 1u);
}

TEST(SessionClient, TheCoordinatorMayComeLateAndComeBack) {
  FakeCoordinator first({WelcomeAndRead}), second({WelcomeAndRead});
  const std::string address = first.Start();
  first.Stop();
  Told told;
  SessionClient client(address, told.Callbacks());
  ASSERT_TRUE(told.Wait([&] { return told.hellos >= 4; })) << "it keeps trying";
  second.Start(address);
  ASSERT_TRUE(told.Wait([&] { return told.ups == 1; }));
  absl::MutexLock lock(&told.mutex);
  ASSERT_EQ(told.unreached.size(), 1u) << "told once";
  EXPECT_TRUE(absl::IsUnavailable(told.unreached[0])) << told.unreached[0];
  EXPECT_THAT(std::string(told.unreached[0].message()), testing::HasSubstr("refused"));
}

TEST(SessionClient, OfSeveralCoordinatorsAllAreTriedBeforeOneIsMissed) {
  FakeCoordinator second({WelcomeAndRead});
  Told told;
  SessionClient client("127.0.0.1:1," + second.Start(), told.Callbacks());
  ASSERT_TRUE(told.Wait([&] { return told.ups == 1; }));
  absl::MutexLock lock(&told.mutex);
  EXPECT_TRUE(told.unreached.empty());
}

TEST(SessionClient, NonsenseInWelcomeDoesNotMakeItSpin) {
  std::atomic<int> beats{0};
  absl::Notification three;
  FakeCoordinator coordinator({[&](Stream* stream) {
    Welcome(stream, -5);
    v1::NodeMessage message;
    while (stream->Read(&message)) {
      if (message.has_heartbeat() && ++beats == 3) three.Notify();
    }
    return grpc::Status::OK;
  }});
  Told told;
  SessionClient client(coordinator.Start(), told.Callbacks());
  EXPECT_TRUE(three.WaitForNotificationWithTimeout(kLong));
}

TEST(SessionClient, AnAddressThatIsNoneIsRejected) {
  Told told;
  SessionClient client("no address", told.Callbacks());
  ASSERT_TRUE(told.Wait([&] { return !told.rejected.empty(); }));
  absl::MutexLock lock(&told.mutex);
  EXPECT_EQ(told.rejected[0].code(), absl::StatusCode::kInvalidArgument);
}

TEST(SessionClient, WhatTheCoordinatorDoesNotReadIsBounded) {
  absl::Notification release;
  FakeCoordinator coordinator({[&](Stream* stream) {
                                 Welcome(stream, 1000);
                                 release.WaitForNotificationWithTimeout(kLong);  // reads nothing
                                 return grpc::Status::OK;
                               },
                               WelcomeAndRead});
  Told told;
  SessionClient client(coordinator.Start(), told.Callbacks());
  ASSERT_TRUE(told.Wait([&] { return told.ups == 1; }));
  v1::NodeMessage message;
  message.mutable_job_error()->set_message(std::string(1 << 20, 'x'));
  for (int i = 0; i < 20; ++i) client.Send(message);
  EXPECT_TRUE(told.Wait([&] { return told.downs == 1; })) << "20 MiB do not fit 8";
  release.Notify();
  EXPECT_TRUE(told.Wait([&] { return told.ups == 2; }));
}

TEST(SessionClient, TheDestructorReturnsWhateverTheStateIs) {
  const absl::Time start = absl::Now();
  {
    Told told;
    SessionClient unreachable("127.0.0.1:1", told.Callbacks());
    ASSERT_TRUE(told.Wait([&] { return told.hellos >= 1; }));
  }
  {
    Told told;
    SessionClient at_once("127.0.0.1:1", told.Callbacks());
  }
  {
    FakeCoordinator silent({[](Stream* stream) {
      ReadUntilBroken(stream);
      return grpc::Status::OK;
    }});
    Told told;
    SessionClient waiting_for_welcome(silent.Start(), told.Callbacks());
    ASSERT_TRUE(told.Wait([&] { return told.hellos >= 1; }));
  }
  EXPECT_LT(absl::Now() - start, kLong);
}

}  // namespace
}  // namespace cairn
