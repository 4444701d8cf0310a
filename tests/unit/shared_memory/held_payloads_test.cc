// Goal: a payload in an arena goes through a link without being copied into it, stays until it was read, is held in
// bounds while nobody reads, and is not taken for what was sent once its sender may change it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/shared_memory/shared_link.h"

namespace cairn {
namespace {

constexpr size_t kChunk = kRingPayloadBytesMax;
constexpr size_t kHeldMost = kReferencedBytesMax / kChunk;

// Keeps what comes.
class Reader : public SharedLink::User {
 public:
  struct Came {
    std::string payload;
    size_t ring_bytes = 0;
    bool intact = false;
  };
  std::vector<Came> Await(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&] { return came_.size() >= count || ended_; };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(60)));
    return came_;
  }
  absl::Status AwaitEnd() {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&ended_), absl::Seconds(60)));
    return status_;
  }
  void AwaitRoom() {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&room_), absl::Seconds(60)));
    room_ = false;
  }

 private:
  void OnMessage(RingMessage message) override {
    Came came{"", message.ring_bytes};
    for (const auto& piece : message.payload) {
      came.payload.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    came.intact = message.Intact();
    absl::MutexLock lock(&mutex_);
    came_.push_back(std::move(came));
  }
  void OnRoom() override {
    absl::MutexLock lock(&mutex_);
    room_ = true;
  }
  void OnEnd(absl::Status status) override {
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
    ended_ = true;
  }

  absl::Mutex mutex_;
  std::vector<Came> came_;
  bool room_ = false, ended_ = false;
  absl::Status status_;
};

class HeldPayloadsTest : public testing::Test {
 protected:
  // read: the other end maps the writer's arena.
  void Connect(bool read = true) {
    auto region = SharedRegion::Create(SharedLink::kRegionBytes);
    ASSERT_TRUE(region.ok()) << region.status();
    auto taken = SharedRegion::Open(region->TakeDescriptor(), SharedLink::kRegionBytes);
    ASSERT_TRUE(taken.ok()) << taken.status();
    if (read) view_ = std::make_unique<ArenaView>(*ArenaView::Open(*arena_->OpenReadOnly(), arena_->size()));
    writing_ = std::make_unique<SharedLink>(*std::move(region), SharedLink::End::kGiver, &writer_,
                                            SharedLink::Arenas{.own = arena_.get()});
    reading_ = std::make_unique<SharedLink>(*std::move(taken), SharedLink::End::kTaker, &reader_,
                                            SharedLink::Arenas{.read = view_.get()});
    ASSERT_TRUE(writing_->Start().ok());
    ASSERT_TRUE(reading_->Start().ok());
  }
  // `bytes` times this letter in the arena, which are given back with the last reference.
  std::shared_ptr<uint8_t> Payload(char letter, size_t bytes = kChunk) {
    auto* const p = static_cast<uint8_t*>(arena_->Take(bytes));
    EXPECT_NE(p, nullptr);
    std::memset(p, letter, bytes);
    return {p, [this, bytes](uint8_t* q) { arena_->Give(q, bytes); }};
  }
  bool Write(std::shared_ptr<uint8_t> payload, size_t bytes = kChunk) {
    const uint8_t* const data = payload.get();
    return writing_->TryWrite({}, {data, bytes}, std::move(payload));
  }

  const std::unique_ptr<SharedArena> arena_ = *SharedArena::Create(size_t{256} << 20);
  std::unique_ptr<ArenaView> view_;
  Reader writer_, reader_;
  std::unique_ptr<SharedLink> writing_, reading_;
};

TEST_F(HeldPayloadsTest, AreReadWhereTheyAre) {
  Connect();
  ASSERT_TRUE(Write(Payload('a')));
  ASSERT_TRUE(Write(Payload('b', kReferenceBytesMin), kReferenceBytesMin));
  ASSERT_TRUE(Write(Payload('c', kReferenceBytesMin - 1), kReferenceBytesMin - 1)) << "a small one is copied";
  const std::string outside(kChunk, 'd');
  ASSERT_TRUE(writing_->TryWrite({}, {reinterpret_cast<const uint8_t*>(outside.data()), kChunk}));
  const auto unowned = Payload('e');
  ASSERT_TRUE(writing_->TryWrite({}, {unowned.get(), kChunk}));
  const auto came = reader_.Await(5);
  const auto payload_is = [&](size_t i, char letter, size_t bytes) {
    return came.at(i).payload == std::string(bytes, letter) && came.at(i).intact;
  };
  EXPECT_TRUE(payload_is(0, 'a', kChunk) && payload_is(1, 'b', kReferenceBytesMin));
  EXPECT_TRUE(payload_is(2, 'c', kReferenceBytesMin - 1) && payload_is(3, 'd', kChunk) && payload_is(4, 'e', kChunk));
  EXPECT_LE(came[0].ring_bytes, 128u);
  EXPECT_LE(came[1].ring_bytes, 128u);
  EXPECT_GE(came[2].ring_bytes, kReferenceBytesMin - 1);
  EXPECT_GE(came[3].ring_bytes, kChunk);
  EXPECT_GE(came[4].ring_bytes, kChunk) << "nobody would keep it";
}

TEST_F(HeldPayloadsTest, AreReleasedWhenTheyWereRead) {
  Connect();
  reading_->Pause();
  std::shared_ptr<uint8_t> payload = Payload('a');
  const std::weak_ptr<uint8_t> watch = payload;
  ASSERT_TRUE(Write(std::move(payload)));
  ASSERT_TRUE(writing_->TryWrite({}, {}));
  EXPECT_FALSE(watch.expired());
  reading_->Resume();
  EXPECT_EQ(reader_.Await(2).at(0).payload, std::string(kChunk, 'a'));
  // Nothing more is written: the link looks by itself.
  while (arena_->bytes_used() > 0) std::this_thread::yield();
  EXPECT_TRUE(watch.expired());
}

TEST_F(HeldPayloadsTest, AreBoundedWhileNobodyReads) {
  Connect();
  reading_->Pause();
  size_t written = 0;
  for (; Write(Payload(static_cast<char>('a' + written))); ++written) ASSERT_LE(written, kHeldMost);
  EXPECT_EQ(written, kHeldMost);
  EXPECT_EQ(arena_->bytes_used(), kReferencedBytesMax);
  reading_->Resume();
  writer_.AwaitRoom();
  for (int i = 0; i < 200; ++i) {
    while (!Write(Payload(static_cast<char>('a' + written)))) writer_.AwaitRoom();
    ++written;
  }
  const auto came = reader_.Await(written);
  for (size_t i = 0; i < written; ++i) {
    ASSERT_EQ(came.at(i).payload, std::string(kChunk, static_cast<char>('a' + i))) << i;
  }
}

TEST_F(HeldPayloadsTest, KeepTheirOrderAmongThoseInTheRing) {
  Connect();
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::string> sent;
  for (int i = 0; i < 500; ++i) {
    const size_t bytes =
        random() % 4 == 0 ? random() % 1000 : kReferenceBytesMin + random() % (kChunk - kReferenceBytesMin);
    sent.emplace_back(bytes, static_cast<char>('a' + i % 26));
    const std::shared_ptr<uint8_t> payload = Payload(static_cast<char>('a' + i % 26), bytes + 1);
    const bool owned = random() % 3 > 0;  // else it is copied into the ring
    while (!writing_->TryWrite({}, {payload.get(), bytes}, owned ? payload : nullptr)) writer_.AwaitRoom();
  }
  const auto came = reader_.Await(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(came.at(i).payload == sent[i] && came[i].intact) << i;
}

TEST_F(HeldPayloadsTest, AreNotWhatWasSentOnceTheSenderHasGone) {
  Connect();
  reading_->Pause();
  const std::shared_ptr<uint8_t> used_again = Payload('a');
  ASSERT_TRUE(Write(used_again));
  ASSERT_TRUE(writing_->TryWrite({}, {}));
  ASSERT_TRUE(Write(Payload('b')));
  writing_.reset();
  EXPECT_EQ(arena_->bytes_used(), kChunk) << "the other one is given back";
  reading_->Resume();
  const absl::Status status = reader_.AwaitEnd();
  const auto came = reader_.Await(2);
  ASSERT_EQ(came.size(), 2u);
  EXPECT_FALSE(came[0].intact);
  EXPECT_TRUE(came[1].intact) << "it was in the ring";
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

// Of a sender that names memory which the reader does not map.
TEST_F(HeldPayloadsTest, OfAnUnknownArenaEndTheLink) {
  Connect(/*read=*/false);
  ASSERT_TRUE(Write(Payload('a')));
  const absl::Status status = reader_.AwaitEnd();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("of an arena of 0"));
}

// Of a sender that has taken the pages away: neither of the two pays for them.
TEST_F(HeldPayloadsTest, ThatAreGoneEndTheLink) {
  Connect();
  reading_->Pause();
  const std::shared_ptr<uint8_t> payload = Payload('a');
  ASSERT_TRUE(Write(payload));
  arena_->Discard(payload.get(), kChunk);
  reading_->Resume();
  const absl::Status status = reader_.AwaitEnd();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("are not there"));
  EXPECT_EQ(arena_->bytes_used(), 0u);
}

}  // namespace
}  // namespace cairn
