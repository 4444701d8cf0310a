// Goal: a snapshot that is sent during training goes out chunk by chunk, as a share of the other traffic; a stream that
// ends sends all of it. In one test the wall clock is set back.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>

#include "cairn/v1/parameter.grpc.pb.h"
#include "common/base/limits.h"
#include "common/rpc/server.h"
#include "server/node/exchange_service.h"
#include "tests/unit/base/wall_clock.h"

namespace cairn {
namespace {

// PULL: an answer without payload. SNAPSHOT: one tensor of three chunks.
class Handler : public ExchangeHandler {
 public:
  void OnFrame(uint64_t client, Frame frame, Credit) override {
    const bool snapshot = frame.kind == v1::ExchangeFrame::SNAPSHOT;
    frame.kind = snapshot ? v1::ExchangeFrame::IMAGE : v1::ExchangeFrame::VALUES;
    frame.tensors = 1;
    frame.payload = snapshot ? Buffer::Zeros(3 * kFramePayloadBytesMax) : Buffer();
    service->Send(client, std::move(frame));
  }
  void OnClientGone(uint64_t) override {}
  ExchangeService* service = nullptr;
};

class SnapshotPaceTest : public testing::Test {
 protected:
  void Start(const SnapshotPace& pace) {
    service_ = std::make_unique<ExchangeService>(&handler_, kReceivedBytesMax, pace);
    handler_.service = service_.get();
    auto server = RpcServer::Start({}, {service_->service()});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::ParameterServer::NewStub(grpc::CreateChannel(server_->Address(""), grpc::InsecureChannelCredentials()));
    stream_ = stub_->Exchange(&context_);
  }
  void TearDown() override {
    EXPECT_TRUE(stream_->Finish().ok());
    server_->Stop(absl::ZeroDuration());
  }
  void Ask(v1::ExchangeFrame::Kind kind) {
    v1::ExchangeFrame frame;
    frame.set_kind(kind);
    frame.set_request_id(++requests_);
    ASSERT_TRUE(stream_->Write(frame));
  }
  // "VALUES", "IMAGE at 1" (MiB), or "" at the stream's end.
  std::string Next() {
    v1::ExchangeFrame frame;
    if (!stream_->Read(&frame)) return "";
    if (frame.kind() == v1::ExchangeFrame::VALUES) return "VALUES";
    return "IMAGE at " + std::to_string(frame.payload_offset() / kFramePayloadBytesMax);
  }

  Handler handler_;
  std::unique_ptr<ExchangeService> service_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<v1::ParameterServer::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExchangeFrame, v1::ExchangeFrame>> stream_;
  uint64_t requests_ = 0;
};

TEST_F(SnapshotPaceTest, BesideTrainingItWaitsForItsTurnAndNothingWaitsForIt) {
  Start({/*free_bytes=*/0, /*share=*/0, /*bytes_per_second_min=*/1,
         /*idle_after=*/absl::InfiniteDuration()});  // a chunk in 12 days
  Ask(v1::ExchangeFrame::PULL);
  EXPECT_EQ(Next(), "VALUES");
  Ask(v1::ExchangeFrame::SNAPSHOT);
  EXPECT_EQ(Next(), "IMAGE at 0");
  for (int i = 0; i < 3; ++i) {
    Ask(v1::ExchangeFrame::PULL);
    EXPECT_EQ(Next(), "VALUES");
  }
  stream_->WritesDone();
  EXPECT_EQ(Next(), "IMAGE at 1") << "a stream that ends is not held back";
  EXPECT_EQ(Next(), "IMAGE at 2");
  EXPECT_EQ(Next(), "");
}

TEST_F(SnapshotPaceTest, OtherAnswersEarnItItsTurns) {
  Start({/*free_bytes=*/0, /*share=*/1e9, /*bytes_per_second_min=*/1, /*idle_after=*/absl::InfiniteDuration()});
  Ask(v1::ExchangeFrame::PULL);
  EXPECT_EQ(Next(), "VALUES");
  Ask(v1::ExchangeFrame::SNAPSHOT);
  EXPECT_EQ(Next(), "IMAGE at 0");
  Ask(v1::ExchangeFrame::PULL);
  for (const char* answer : {"VALUES", "IMAGE at 1", "IMAGE at 2"}) EXPECT_EQ(Next(), answer);
  stream_->WritesDone();
  EXPECT_EQ(Next(), "");
}

TEST_F(SnapshotPaceTest, ASmallOneIsNotHeldBack) {
  Start({/*free_bytes=*/4 << 20, /*share=*/0, /*bytes_per_second_min=*/1, /*idle_after=*/absl::InfiniteDuration()});
  Ask(v1::ExchangeFrame::PULL);
  EXPECT_EQ(Next(), "VALUES");
  Ask(v1::ExchangeFrame::SNAPSHOT);
  for (const char* chunk : {"IMAGE at 0", "IMAGE at 1", "IMAGE at 2"}) EXPECT_EQ(Next(), chunk);
  stream_->WritesDone();
  EXPECT_EQ(Next(), "");
}

TEST_F(SnapshotPaceTest, AClockThatIsSetBackHoldsNothingUp) {
  Start({/*free_bytes=*/0, /*share=*/0, /*bytes_per_second_min=*/4 << 20, /*idle_after=*/absl::Minutes(30)});
  Ask(v1::ExchangeFrame::PULL);
  EXPECT_EQ(Next(), "VALUES");
  Ask(v1::ExchangeFrame::SNAPSHOT);
  EXPECT_EQ(Next(), "IMAGE at 0");
  wall_clock_ahead_s = -3600;
  std::future<std::string> next = std::async(std::launch::async, [this] { return Next(); });
  if (next.wait_for(std::chrono::seconds(20)) != std::future_status::ready) context_.TryCancel();
  EXPECT_EQ(next.get(), "IMAGE at 1");
  wall_clock_ahead_s = 0;
  stream_->WritesDone();
  EXPECT_EQ(Next(), "IMAGE at 2");
  EXPECT_EQ(Next(), "");
}

TEST_F(SnapshotPaceTest, WithoutTrainingItIsNotHeldBack) {
  Start({/*free_bytes=*/0, /*share=*/0, /*bytes_per_second_min=*/1, /*idle_after=*/absl::ZeroDuration()});
  Ask(v1::ExchangeFrame::SNAPSHOT);
  for (const char* chunk : {"IMAGE at 0", "IMAGE at 1", "IMAGE at 2"}) EXPECT_EQ(Next(), chunk);
  stream_->WritesDone();
  EXPECT_EQ(Next(), "");
}

}  // namespace
}  // namespace cairn
