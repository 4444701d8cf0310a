// Goal: a broken, foreign or hostile peer of the Exchange RPC gets a status or is slowed down, while the server goes on
// serving the others.
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "cairn/v1/parameter.grpc.pb.h"
#include "tests/unit/rpc/exchange_test.h"

namespace cairn {
namespace {

// Requests beyond what one stream's queue and the windows of both sides can hold.
constexpr uint64_t kFramesMax = 1'000'000;

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

// The plain protobuf stub, as used by another language, with a client that closes its side before it reads.
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

// Eight streams each announce the largest partition and send its first bytes. Others are served meanwhile; the eight
// are ended.
TEST(ExchangeService, LiarsHoldWhatTheySentAndNotForEver) {
  class Handler : public ExchangeHandler {
   public:
    void OnFrame(uint64_t client, Frame frame, Credit) override {
      frame.kind = v1::ExchangeFrame::VALUES;
      frame.payload = Buffer();
      service->Send(client, std::move(frame));
    }
    void OnClientGone(uint64_t) override {}
    ExchangeService* service = nullptr;
  } handler;
  constexpr size_t kBytesMax = kReceivedBytesMax;
  ExchangeService service(&handler, kBytesMax, {}, /*stall_max=*/absl::Seconds(2));
  handler.service = &service;
  auto server = RpcServer::Start({}, {service.service()});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::ParameterServer::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string((*server)->port()), grpc::InsecureChannelCredentials()));
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(60);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::ExchangeFrame, v1::ExchangeFrame>>> liars;
  v1::ExchangeFrame lie;
  lie.set_kind(v1::ExchangeFrame::PUSH);
  lie.set_job_id(1);
  lie.set_dtype(v1::FLOAT32);
  lie.set_payload("abcd");
  lie.set_payload_total(static_cast<uint64_t>(kPartitionBytesMax));
  for (int i = 0; i < 8; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    contexts.back()->set_deadline(deadline);
    liars.push_back(stub->Exchange(contexts.back().get()));
    ASSERT_TRUE(liars.back()->Write(lie));
  }
  // One that asks for as much as a partition has, in frames.
  grpc::ClientContext context;
  context.set_deadline(deadline);
  const auto honest = stub->Exchange(&context);
  v1::ExchangeFrame part = lie, answer;
  part.set_payload(std::string(kFramePayloadBytesMax, 'x'));
  for (size_t at = 0; at < lie.payload_total(); at += kFramePayloadBytesMax) {
    part.set_payload_offset(at);
    ASSERT_TRUE(honest->Write(part));
  }
  ASSERT_TRUE(honest->Read(&answer));
  EXPECT_EQ(answer.kind(), v1::ExchangeFrame::VALUES) << answer.DebugString();
  honest->WritesDone();
  EXPECT_TRUE(honest->Finish().ok());
  for (const auto& liar : liars) {
    EXPECT_FALSE(liar->Read(&answer));
    const grpc::Status status = liar->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_NE(status.error_message().find("a part of a request came and then nothing"), std::string::npos)
        << status.error_message();
  }
  (*server)->Stop(absl::ZeroDuration());
}

// A client that sends and never reads is slowed down: its requests are read until kStreamQueueBytesMax of answers wait,
// and no further.
TEST(ExchangeService, AClientThatDoesNotReadIsHeldUp) {
  // Answers every request at once with 1 MiB.
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
  // What the windows of both sides hold was sent; the rest is in the queue. It fills, and then nothing more comes for
  // half a second.
  constexpr int kQueue = kStreamQueueBytesMax >> 20;
  int before = 0;
  do {
    before = handler.handled;
    ASSERT_FALSE(handler.gone.WaitForNotificationWithTimeout(absl::Milliseconds(500)));
  } while (handler.handled != before || before < kQueue);
  EXPECT_LT(before, kRequests / 2);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ASSERT_TRUE(handler.gone.WaitForNotificationWithTimeout(absl::Seconds(30)));
  (*server)->Stop(absl::ZeroDuration());
}

// The same with answers without payload: each counts with what it occupies, so that reading stops.
TEST_F(ExchangeTest, AClientThatDoesNotReadErrorsIsHeldUp) {
  Start(DenseJob(8, 4, 1, true), 1 << 20);
  auto stub = v1::ParameterServer::NewStub(ps_->RawChannel());
  grpc::ClientContext context;
  auto stream = stub->Exchange(&context);
  // Streams without a reader fill the windows of both sides; then the writer blocks until it is cancelled.
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

}  // namespace
}  // namespace cairn
