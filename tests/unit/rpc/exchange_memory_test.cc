// Goal: the Exchange RPC through shared memory gives the same answers as through sockets, ends as it does, falls back
// to the socket where memory cannot be had, and a client that misuses its memory loses its own stream and nothing else.
#include <grpcpp/generic/generic_stub.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/unix_socket.h"
#include "common/rpc/byte_buffer.h"
#include "common/tensor/buffer_pages.h"
#include "tests/unit/rpc/exchange_test.h"

namespace cairn {
namespace {

constexpr PsConnectionOptions kWithMemory{.streams = 1, .shared_memory = true};

class ExchangeMemoryTest : public ExchangeTest {
 protected:
  // Until the ps has noticed what a client did.
  bool Becomes(const std::function<bool()>& condition) {
    for (int i = 0; i < 30000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }
  size_t links() { return ps_->exchange().links(); }

  // With its payload in the shared pages, if there are some.
  static Frame Shared(Frame frame) {
    Buffer payload = AllocateInSharedPages(frame.payload.size());
    std::memcpy(payload.mutable_data(), frame.payload.data(), payload.size());
    frame.payload = std::move(payload);
    return frame;
  }
  size_t mapped() {
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);) count += line.find("memfd:cairn-arena") != std::string::npos;
    return count;
  }
  void CompareWithTheSocket(const PsConnectionOptions& with_memory);
  void AskManyAtOnce(const SharedArena* arena);

  size_t mapped_ = 0;  // while the two were compared
};

// The values after a push of random numbers, beside those of another ps that gets the same push through its socket.
void ExchangeMemoryTest::CompareWithTheSocket(const PsConnectionOptions& with_memory) {
  Start(DenseJob(1200, 2000, 1, true), 4 << 20,
        /*unix_socket=*/true);  // 9.6 MB: tensors of many chunks, and small ones
  const std::unique_ptr<KvStore> other_store = NewMemoryKvStore();
  TestPs other(*other_store, dir_.path() + "/other.sock");
  ASSERT_TRUE(other.host().Host(host_).ok());
  PsConnection socket(other.address(), {.streams = 1});
  PsConnection memory(ps_->address(), with_memory);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> numbers(-1, 1);
  for (int p = 0; p < host_.partitions_size(); ++p) {
    const auto one = Call(socket, PullOf(kJob, p)), two = Call(memory, PullOf(kJob, p));
    ASSERT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
    ASSERT_EQ(one->payload.size(), two->payload.size());
    EXPECT_EQ(std::memcmp(one->payload.data(), two->payload.data(), one->payload.size()), 0);
    Frame push = PushOf(host_, p, 0, 1, 4.0f);
    for (float& number : push.payload.mutable_floats()) number = numbers(random);
    const auto pushed = Call(memory, Shared(push)), again = Call(memory, Shared(push)), expected = Call(socket, push);
    ASSERT_TRUE(pushed.ok() && again.ok() && expected.ok()) << pushed.status() << again.status() << expected.status();
    EXPECT_EQ(pushed->version, 1u);
    EXPECT_EQ(again->version, 1u) << "applied once";
    ASSERT_EQ(expected->payload.size(), pushed->payload.size());
    EXPECT_EQ(std::memcmp(expected->payload.data(), pushed->payload.data(), pushed->payload.size()), 0) << p;
    EXPECT_NE(std::memcmp(one->payload.data(), pushed->payload.data(), pushed->payload.size()), 0) << p;
  }
  EXPECT_EQ(links(), 1u);
  EXPECT_EQ(ps_->exchange().clients(), 1u);
  mapped_ = mapped();
}

TEST_F(ExchangeMemoryTest, AnswersAreTheSameAsThroughTheSocket) { CompareWithTheSocket(kWithMemory); }

void ExchangeMemoryTest::AskManyAtOnce(const SharedArena* arena) {
  Start(DenseJob(1200, 2000, 1, true), 1 << 20, /*unix_socket=*/true);
  PsConnection memory(ps_->address(),
                      {.outstanding_bytes_max = size_t{1} << 30, .shared_memory = true, .arena = arena});
  constexpr int kRounds = 20;
  const int partitions = host_.partitions_size();
  absl::BlockingCounter answers(kRounds * partitions);
  std::atomic<int> good{0};
  for (int round = 1; round <= kRounds; ++round) {
    for (int p = 0; p < partitions; ++p) {
      memory.Send(Shared(PushOf(host_, p, 0, static_cast<uint64_t>(round), 1.0f)),
                  [&](const absl::StatusOr<Frame>& answer) {
                    if (answer.ok()) ++good;
                    answers.DecrementCount();
                  });
    }
  }
  answers.Wait();
  EXPECT_EQ(good, kRounds * partitions);
  EXPECT_EQ(links(), 2u);
}

TEST_F(ExchangeMemoryTest, ManyRequestsAtOnceAreAllAnswered) { AskManyAtOnce(nullptr); }

// Gradients lie in an arena that the ps reads.
class ExchangeArenaTest : public ExchangeMemoryTest {
 protected:
  ExchangeArenaTest() { SetSharedPages(Arena()); }
  static SharedArena* Arena() {
    static SharedArena* const arena = SharedArena::Create(kArenaBytes)->release();
    return arena;
  }
};

TEST_F(ExchangeArenaTest, AnswersAreTheSameAsThroughTheSocket) {
  ASSERT_EQ(mapped(), 1u);
  CompareWithTheSocket({.streams = 1, .shared_memory = true, .arena = Arena()});
  EXPECT_EQ(mapped_, 2u) << "its own, and the view of the ps";
  EXPECT_TRUE(Becomes([&] { return mapped() == 1; })) << "what the two ends mapped is gone with the connection";
}

TEST_F(ExchangeArenaTest, ManyRequestsAtOnceAreAllAnswered) { AskManyAtOnce(Arena()); }

TEST_F(ExchangeArenaTest, BeyondTheMostArenasAClientsIsNotRead) {
  Start(DenseJob(8, 4, 1, true), 1 << 20, /*unix_socket=*/true);
  std::vector<std::unique_ptr<PsConnection>> connections;
  for (size_t i = 0; i < kClientArenasMax + 3; ++i) {
    connections.push_back(std::make_unique<PsConnection>(
        ps_->address(), PsConnectionOptions{.streams = 1, .shared_memory = true, .arena = Arena()}));
    ASSERT_TRUE(Call(*connections.back(), PullOf(kJob, 0)).ok());
  }
  EXPECT_EQ(links(), kClientArenasMax + 3);
  EXPECT_EQ(mapped(), 1 + kClientArenasMax) << "its own, and those that the ps reads";
  connections.clear();
  EXPECT_TRUE(Becomes([&] { return mapped() == 1; }));
}

TEST_F(ExchangeMemoryTest, AClientThatGoesIsForgottenWithItsMemory) {
  Start(DenseJob(8, 4, 2, false), 1 << 20, /*unix_socket=*/true);
  absl::Status status;
  {
    PsConnection memory(ps_->address(), kWithMemory);
    ASSERT_TRUE(Call(memory, PullOf(kJob, 0)).ok());
    EXPECT_EQ(links(), 1u);
    memory.Send(PushOf(host_, 0, 0, 1, 1.0f), [&](const absl::StatusOr<Frame>& answer) { status = answer.status(); });
  }
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(Becomes([&] { return ps_->exchange().clients() == 0 && links() == 0; }));
}

TEST_F(ExchangeMemoryTest, APsThatStopsEndsTheStreamAndANewOneIsUsed) {
  Start(DenseJob(8, 4, 2, false), 1 << 20, /*unix_socket=*/true);
  const std::string address = "127.0.0.1:1" + ps_->address().substr(ps_->address().find(','));
  PsConnection memory(address, kWithMemory);
  ASSERT_TRUE(Call(memory, PullOf(kJob, 0)).ok());
  absl::Notification ended;
  absl::Status status;
  memory.Send(PushOf(host_, 0, 0, 1, 1.0f), [&](const absl::StatusOr<Frame>& answer) {  // waits for the other replica
    status = answer.status();
    ended.Notify();
  });
  ASSERT_TRUE(Call(memory, PullOf(kJob, 0)).ok());
  ps_.reset();
  ASSERT_TRUE(ended.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  ps_ = std::make_unique<TestPs>(*store_, dir_.path() + "/ps.sock");
  ASSERT_TRUE(ps_->host().Host(host_).ok());
  EXPECT_TRUE(Becomes([&] { return Call(memory, PullOf(kJob, 0)).ok(); }));
  EXPECT_EQ(links(), 1u);
}

TEST_F(ExchangeMemoryTest, BeyondTheMostLinksTheSocketIsUsed) {
  Start(DenseJob(8, 4, 1, true), 1 << 20, /*unix_socket=*/true);
  std::vector<std::unique_ptr<PsConnection>> connections;
  for (size_t i = 0; i < kSharedLinksMax + 3; ++i) {
    connections.push_back(std::make_unique<PsConnection>(ps_->address(), kWithMemory));
    ASSERT_TRUE(Call(*connections.back(), PullOf(kJob, 0)).ok());
  }
  EXPECT_EQ(links(), kSharedLinksMax);
  connections.erase(connections.begin(), connections.begin() + 3);
  EXPECT_TRUE(Becomes([&] { return links() == kSharedLinksMax - 3; }));
}

// Whoever listens at the ps' second socket has no memory for this ticket: the client tries again without.
TEST_F(ExchangeMemoryTest, AClientThatGetsNoMemoryUsesTheSocket) {
  Start(DenseJob(8, 4, 1, true), 1 << 20, /*unix_socket=*/true);
  const std::string path = HandoverPath(dir_.path() + "/ps.sock");
  std::filesystem::rename(path, path + ".away");
  auto stranger = HandoverSocket::Listen(path, /*own_only=*/false);
  ASSERT_TRUE(stranger.ok()) << stranger.status();
  PsConnection memory(ps_->address(), kWithMemory);
  EXPECT_TRUE(Becomes([&] { return Call(memory, PullOf(kJob, 0)).ok(); }));
  EXPECT_EQ(links(), 0u);
  stranger->reset();
  PsConnection none(ps_->address(), kWithMemory);  // nobody listens there at all
  EXPECT_TRUE(Call(none, PullOf(kJob, 0)).ok());
  EXPECT_EQ(links(), 0u);
}

// ---- a client that does not follow the rules ----

// A raw call that has asked for memory.
struct RawCall : grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>, SharedLink::User {
  explicit RawCall(const std::string& address, const std::string& asked = kSharedMemoryAsked)
      : channel(
            grpc::CreateChannel(address[0] == '/' ? "unix:" + address : address, grpc::InsecureChannelCredentials())),
        stub(channel) {
    context.AddMetadata(kSharedMemoryMetadata, asked);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    stub.PrepareBidiStreamingCall(&context, "/cairn.v1.ParameterServer/Exchange", grpc::StubOptions(), this);
    AddHold();
    StartRead(&incoming);
    StartCall();
    metadata.WaitForNotification();
    const auto found = context.GetServerInitialMetadata().find(kSharedMemoryMetadata);
    if (found != context.GetServerInitialMetadata().end())
      ticket = std::string(found->second.data(), found->second.size());
  }
  ~RawCall() override {
    context.TryCancel();
    if (!ended) End();
  }
  absl::StatusOr<SharedRegion> Take(const std::string& socket) {
    auto connection = ConnectUnixSocket(HandoverPath(socket), false);
    if (!connection.ok()) return connection.status();
    auto taken = TakeRegion(*std::move(connection), ticket, SharedLink::kRegionBytes, nullptr, absl::Seconds(30));
    if (!taken.ok()) return taken.status();
    return std::move(taken->region);
  }
  grpc::Status End() {
    RemoveHold();
    done.WaitForNotification();
    ended = true;
    return status;
  }
  void Write(const Frame& frame) {
    outgoing = ToByteBuffer(frame);
    StartWrite(&outgoing);
    written.WaitForNotification();
  }
  void OnReadInitialMetadataDone(bool ok) override {
    has_metadata = ok;
    metadata.Notify();
  }
  void OnReadDone(bool ok) override {
    if (ok && !answered.HasBeenNotified()) answered.Notify();
    if (ok) StartRead(&incoming);
  }
  void OnWriteDone(bool) override { written.Notify(); }
  void OnDone(const grpc::Status& s) override {
    status = s;
    done.Notify();
  }
  void OnMessage(RingMessage) override {}
  void OnRoom() override {}
  void OnEnd(absl::Status) override {}

  std::shared_ptr<grpc::Channel> channel;
  grpc::GenericStub stub;
  grpc::ClientContext context;
  grpc::ByteBuffer incoming, outgoing;
  absl::Notification metadata, answered, written, done;
  bool has_metadata = false;
  std::string ticket;
  grpc::Status status;
  bool ended = false;
};

TEST_F(ExchangeMemoryTest, NonsenseInItsMemoryEndsAStreamAndNothingElse) {
  Start(DenseJob(8, 4, 1, true), 1 << 20, /*unix_socket=*/true);
  const std::string socket = dir_.path() + "/ps.sock";
  PsConnection neighbour(ps_->address(), kWithMemory);
  ASSERT_TRUE(Call(neighbour, PullOf(kJob, 0)).ok());
  for (const std::string& header :
       {std::string("\xff\xff\xff garbage"), std::string(kFrameHeaderBytesMax, 'x'), std::string("\xa2\x06\x02xx")}) {
    RawCall raw(socket);
    auto region = raw.Take(socket);
    ASSERT_TRUE(region.ok()) << region.status();
    SharedLink link(*std::move(region), SharedLink::End::kTaker, &raw);
    link.TryWrite({reinterpret_cast<const uint8_t*>(header.data()), header.size()}, {});
    EXPECT_EQ(raw.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT) << raw.status.error_message();
    EXPECT_FALSE(raw.status.error_message().empty());
  }
  {  // all counts are wrong, and the thread is woken
    RawCall raw(socket);
    auto region = raw.Take(socket);
    ASSERT_TRUE(region.ok()) << region.status();
    std::memset(region->data() + sizeof(LinkEnd), 0x7f, sizeof(LinkEnd));
    auto* const giver = reinterpret_cast<LinkEnd*>(region->data());
    giver->parked = 0;
    syscall(SYS_futex, &giver->parked, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    EXPECT_EQ(raw.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT) << raw.status.error_message();
  }
  EXPECT_TRUE(Call(neighbour, PullOf(kJob, 0)).ok());
  EXPECT_TRUE(Becomes([&] { return links() == 1; }));
}

TEST_F(ExchangeMemoryTest, FramesInTheCallAndInTheMemoryDoNotMix) {
  Start(DenseJob(8, 4, 1, true), 1 << 20, /*unix_socket=*/true);
  const std::string socket = dir_.path() + "/ps.sock";
  Frame pull = PullOf(kJob, 0);
  pull.request_id = 1;
  {
    RawCall raw(socket);  // asks, and then uses the call: its ticket is void
    ASSERT_EQ(raw.ticket.size(), kTicketBytes);
    raw.Write(pull);
    ASSERT_TRUE(raw.answered.WaitForNotificationWithTimeout(absl::Seconds(30)));
    EXPECT_FALSE(raw.Take(socket).ok());
  }
  RawCall raw(socket);
  const auto region = raw.Take(socket);
  ASSERT_TRUE(region.ok()) << region.status();
  raw.Write(pull);
  EXPECT_EQ(raw.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT) << raw.status.error_message();
}

TEST_F(ExchangeMemoryTest, MemoryIsForProcessesOnThisHostThatAskForIt) {
  Start(DenseJob(8, 4, 1, true), 1 << 20, /*unix_socket=*/true);
  const RawCall over_tcp("127.0.0.1:" + std::to_string(ps_->server().port()));
  EXPECT_TRUE(over_tcp.has_metadata) << "it waits for an answer";
  EXPECT_EQ(over_tcp.ticket, "");
  const RawCall newer(dir_.path() + "/ps.sock", "3");
  EXPECT_TRUE(newer.has_metadata);
  EXPECT_EQ(newer.ticket, "") << "a layout that this ps does not know";
  PsConnection unasked(ps_->address(), {.streams = 1});
  EXPECT_TRUE(Call(unasked, PullOf(kJob, 0)).ok());
  EXPECT_EQ(links(), 0u);
}

}  // namespace
}  // namespace cairn
