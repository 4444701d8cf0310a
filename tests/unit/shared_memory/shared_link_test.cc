// Goal: two ends of a link exchange messages in order, stop for want of room and go on, pause, end as they are told to,
// and do not hang, crash or fault whatever the other process does to their memory.
#include "common/shared_memory/shared_link.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace cairn {
namespace {

// Two mappings of one memory, as two processes have.
struct TwoRegions {
  SharedRegion giver, taker;
};

TwoRegions MakeRegions() {
  absl::StatusOr<SharedRegion> giver = SharedRegion::Create(SharedLink::kRegionBytes);
  EXPECT_TRUE(giver.ok()) << giver.status();
  absl::StatusOr<SharedRegion> taker = SharedRegion::Open(giver->TakeDescriptor(), SharedLink::kRegionBytes);
  EXPECT_TRUE(taker.ok()) << taker.status();
  return {*std::move(giver), *std::move(taker)};
}

// One end that writes what it is given, in order, and keeps what comes.
class Endpoint : public SharedLink::User {
 public:
  // pauses: after each message.
  Endpoint(SharedRegion region, SharedLink::End end, bool pauses = false)
      : pauses_(pauses), link_(std::move(region), end, this) {
    EXPECT_TRUE(link_.Start().ok());
  }
  ~Endpoint() override { link_.Stop(); }

  void Send(std::string payload) {
    {
      absl::MutexLock lock(&mutex_);
      queue_.push_back(std::move(payload));
      if (writing_) return;
      writing_ = true;
    }
    Pump();
  }
  // The first `count` payloads that came, or fewer if the link ended.
  std::vector<std::string> Await(size_t count) {
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
  size_t queued() {
    absl::MutexLock lock(&mutex_);
    return queue_.size();
  }
  size_t came() {
    absl::MutexLock lock(&mutex_);
    return came_.size();
  }
  SharedLink& link() { return link_; }

 private:
  void OnMessage(RingMessage message) override {
    std::string payload;
    for (const auto& piece : message.payload) payload.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    EXPECT_EQ(message.header, "h" + std::to_string(payload.size()));
    if (pauses_) link_.Pause();
    absl::MutexLock lock(&mutex_);
    came_.push_back(std::move(payload));
  }
  void OnRoom() override { Pump(); }
  void OnEnd(absl::Status status) override {
    absl::MutexLock lock(&mutex_);
    status_ = std::move(status);
    ended_ = true;
  }
  // By whoever set writing_.
  void Pump() {
    while (true) {
      std::string next;
      {
        absl::MutexLock lock(&mutex_);
        if (queue_.empty()) {
          writing_ = false;
          return;
        }
        next = queue_.front();
      }
      const std::string header = "h" + std::to_string(next.size());
      if (!link_.TryWrite({reinterpret_cast<const uint8_t*>(header.data()), header.size()},
                          {reinterpret_cast<const uint8_t*>(next.data()), next.size()})) {
        return;
      }
      absl::MutexLock lock(&mutex_);
      queue_.pop_front();
    }
  }

  const bool pauses_;
  absl::Mutex mutex_;
  std::deque<std::string> queue_;
  bool writing_ = false;
  std::vector<std::string> came_;
  bool ended_ = false;
  absl::Status status_;
  SharedLink link_;
};

class SharedLinkTest : public testing::Test {
 protected:
  TwoRegions regions_ = MakeRegions();
};

TEST_F(SharedLinkTest, MessagesOfAnySizeBothWays) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Endpoint a(std::move(regions_.giver), SharedLink::End::kGiver), b(std::move(regions_.taker), SharedLink::End::kTaker);
  std::vector<std::string> there, back;
  for (int i = 0; i < 3000; ++i) {
    const size_t most = random() % 20 == 0 ? kRingPayloadBytesMax : 3000;
    std::string text(random() % (most + 1), static_cast<char>('a' + i % 26));
    (i % 2 == 0 ? there : back).push_back(text);
    (i % 2 == 0 ? a : b).Send(std::move(text));
  }
  EXPECT_EQ(b.Await(there.size()), there);
  EXPECT_EQ(a.Await(back.size()), back);
}

TEST_F(SharedLinkTest, AFullRingWaitsForItsReader) {
  Endpoint a(std::move(regions_.giver), SharedLink::End::kGiver);
  Endpoint b(std::move(regions_.taker), SharedLink::End::kTaker, /*pauses=*/true);
  std::vector<std::string> sent;
  for (int i = 0; i < 40; ++i) sent.emplace_back(kRingPayloadBytesMax - static_cast<size_t>(i), 'x');
  for (const std::string& text : sent) a.Send(text);
  EXPECT_EQ(b.Await(1).size(), 1u);
  EXPECT_GE(a.queued(), 30u) << "more than the ring holds was taken";
  for (size_t i = 2; i <= sent.size(); ++i) {
    b.link().Resume();
    EXPECT_EQ(b.Await(i).size(), i) << "one message for each Resume";
  }
  EXPECT_EQ(b.Await(sent.size()), sent);
}

TEST_F(SharedLinkTest, FinishDeliversWhatIsThere) {
  Endpoint a(std::move(regions_.giver), SharedLink::End::kGiver), b(std::move(regions_.taker), SharedLink::End::kTaker);
  b.link().Pause();
  for (int i = 0; i < 5; ++i) a.Send("text");
  b.link().Finish();
  b.link().Resume();
  EXPECT_TRUE(b.AwaitEnd().ok());
  EXPECT_EQ(b.came(), 5u);
}

TEST_F(SharedLinkTest, ALinkThatEndsFreesItsWriter) {
  Endpoint a(std::move(regions_.giver), SharedLink::End::kGiver);
  for (int i = 0; i < 40; ++i) a.Send(std::string(kRingPayloadBytesMax, 'x'));  // nobody reads
  EXPECT_GE(a.queued(), 30u);
  a.link().Stop();
  EXPECT_TRUE(a.AwaitEnd().ok());
  EXPECT_EQ(a.queued(), 0u) << "they are dropped";
  a.Send("later");
  EXPECT_EQ(a.queued(), 0u);
}

TEST_F(SharedLinkTest, NonsenseEndsTheLink) {
  uint8_t* const memory = regions_.taker.data();
  Endpoint a(std::move(regions_.giver), SharedLink::End::kGiver);
  auto* const other = reinterpret_cast<LinkEnd*>(memory + sizeof(LinkEnd));
  other->written = uint64_t{1} << 40;
  a.link().Resume();  // looks
  const absl::Status status = a.AwaitEnd();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

// A reader that always finds something to read gives room to its writer nevertheless.
TEST_F(SharedLinkTest, ABlockedWriterGoesOnWhileMessagesCome) {
  Endpoint a(std::move(regions_.giver), SharedLink::End::kGiver), b(std::move(regions_.taker), SharedLink::End::kTaker);
  std::atomic<bool> done{false};
  std::thread flood([&] {
    while (!done) {
      if (b.queued() < 64) b.Send(std::string(60000, 'f'));
    }
  });
  for (int i = 0; i < 60; ++i) a.Send(std::string(kRingPayloadBytesMax, 'x'));
  EXPECT_EQ(b.Await(60).size(), 60u);
  done = true;
  flood.join();
}

// Another process may write to the word on which the thread sleeps, at the worst moments, or have the kernel put who
// sleeps there elsewhere.
TEST_F(SharedLinkTest, StopsWhateverHappensToTheWordThatItSleepsOn) {
  for (int i = 0; i < 6; ++i) {
    TwoRegions regions = MakeRegions();
    auto* const own = reinterpret_cast<LinkEnd*>(regions.taker.data());
    std::atomic<bool> end{false};
    std::thread attacker([&] {
      while (!end) {
        own->parked = i % 2 == 0 ? 0 : 1;
        own->parked = 1;
        own->room_wanted = 77;
        syscall(SYS_futex, &own->parked, FUTEX_REQUEUE, 0, 100, &own->room_wanted, 0);
      }
    });
    {
      Endpoint a(std::move(regions.giver), SharedLink::End::kGiver);
      for (int n = 0; i % 3 == 0 && n < 20; ++n) a.Send(std::string(kRingPayloadBytesMax, 'x'));
      a.link().Stop();
    }
    end = true;
    attacker.join();
  }
}

// What comes after Finish does not keep the link.
TEST_F(SharedLinkTest, FinishEndsThoughTheOtherEndWritesOn) {
  Endpoint a(std::move(regions_.giver), SharedLink::End::kGiver), b(std::move(regions_.taker), SharedLink::End::kTaker);
  std::atomic<bool> done{false};
  std::thread flood([&] {
    while (!done) {
      if (a.queued() < 64) a.Send("text");
    }
  });
  b.Await(100);
  b.link().Finish();
  EXPECT_TRUE(b.AwaitEnd().ok());
  done = true;
  flood.join();
}

TEST(SharedRegion, CannotBeShrunkAndIsCheckedByWhoTakesIt) {
  absl::StatusOr<SharedRegion> region = SharedRegion::Create(8192);
  ASSERT_TRUE(region.ok()) << region.status();
  const FileDescriptor fd = region->TakeDescriptor();
  EXPECT_NE(ftruncate(fd.get(), 0), 0);
  EXPECT_NE(ftruncate(fd.get(), 1 << 20), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(SharedRegion::Open(FileDescriptor(dup(fd.get())), 4096).status()));
  EXPECT_TRUE(SharedRegion::Open(FileDescriptor(dup(fd.get())), 8192).ok());
  FileDescriptor open(memfd_create("open", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open.get(), 8192), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(SharedRegion::Open(std::move(open), 8192).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(SharedRegion::Open(FileDescriptor(), 8192).status()));
}

}  // namespace
}  // namespace cairn
