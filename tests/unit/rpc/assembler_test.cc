// Goal: whole frames survive splitting and joining, with other requests between the chunks; chunks that do not fit are
// refused, and what a peer can make us hold is bounded. Addresses and back-off beside them.
#include "common/rpc/assembler.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/base/limits.h"
#include "common/rpc/backoff.h"
#include "common/rpc/channel.h"
#include "common/rpc/limits.h"

namespace cairn {
namespace {

Frame Whole(uint64_t id, size_t bytes) {
  Frame f;
  f.kind = v1::ExchangeFrame::PUSH;
  f.request_id = id;
  f.sequence = id * 3;
  f.payload = Buffer::Allocate(bytes);
  for (size_t i = 0; i < bytes; ++i) f.payload.mutable_data()[i] = static_cast<uint8_t>(i * 7 + id);
  return f;
}

// A chunk as it is received.
DecodedFrame Received(const Frame& chunk) {
  DecodedFrame d;
  d.frame = chunk;
  d.frame.payload = Buffer();
  d.payload_size = chunk.payload.size();
  if (d.payload_size > 0) d.payload.push_back({chunk.payload.data(), chunk.payload.size()});
  return d;
}

TEST(FrameSplitter, AFrameWithoutPayloadIsOneChunk) {
  FrameSplitter splitter(Whole(1, 0));
  EXPECT_FALSE(splitter.done());
  const Frame chunk = splitter.Next();
  EXPECT_TRUE(splitter.done());
  EXPECT_EQ(chunk.payload_total, 0u);
  EXPECT_EQ(chunk.request_id, 1u);
}

TEST(FrameSplitter, ChunksCoverThePayloadWithoutCopies) {
  const Frame whole = Whole(1, 1000);
  FrameSplitter splitter(whole, 300);
  size_t at = 0;
  while (!splitter.done()) {
    const Frame chunk = splitter.Next();
    EXPECT_EQ(chunk.payload_offset, at);
    EXPECT_EQ(chunk.payload_total, 1000u);
    EXPECT_EQ(chunk.payload.data(), whole.payload.data() + at);
    at += chunk.payload.size();
    EXPECT_EQ(splitter.bytes_left(), 1000 - at);
  }
  EXPECT_EQ(at, 1000u);
}

TEST(FrameAssembler, JoinsInterleavedRequests) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  FrameAssembler assembler(1 << 20);
  std::vector<FrameSplitter> senders;
  std::vector<Frame> originals;
  for (uint64_t id = 0; id < 20; ++id) {
    originals.push_back(Whole(id, random() % 5000));
    senders.emplace_back(originals.back(), 1 + random() % 700);
  }
  size_t finished = 0;
  while (finished < senders.size()) {
    FrameSplitter& s = senders[random() % senders.size()];
    if (s.done()) continue;
    absl::StatusOr<std::optional<Frame>> frame = assembler.Add(Received(s.Next()));
    ASSERT_TRUE(frame.ok()) << frame.status();
    ASSERT_EQ(frame->has_value(), s.done());
    if (!s.done()) continue;
    ++finished;
    const Frame& got = **frame;
    const Frame& want = originals[got.request_id];
    EXPECT_EQ(got.sequence, want.sequence);
    EXPECT_EQ(got.payload_offset, 0u);
    EXPECT_TRUE(got.payload.unique());
    ASSERT_EQ(got.payload.size(), want.payload.size());
    if (!got.payload.empty()) {
      EXPECT_EQ(std::memcmp(got.payload.data(), want.payload.data(), got.payload.size()), 0);
    }
  }
  EXPECT_EQ(assembler.bytes_joining(), 0u);
}

struct BadChunk {
  const char* name;
  void (*spoil)(Frame*);
};

class BadSecondChunk : public testing::TestWithParam<BadChunk> {};

TEST_P(BadSecondChunk, IsRefused) {
  FrameAssembler assembler(1 << 20);
  FrameSplitter splitter(Whole(1, 1000), 400);
  ASSERT_TRUE(assembler.Add(Received(splitter.Next())).ok());
  Frame second = splitter.Next();
  GetParam().spoil(&second);
  const auto result = assembler.Add(Received(second));
  EXPECT_TRUE(absl::IsInvalidArgument(result.status())) << result.status();
}

INSTANTIATE_TEST_SUITE_P(All, BadSecondChunk,
                         testing::Values(BadChunk{"gap", [](Frame* f) { f->payload_offset += 1; }},
                                         BadChunk{"again", [](Frame* f) { f->payload_offset = 0; }},
                                         BadChunk{"total", [](Frame* f) { f->payload_total -= 4; }},
                                         BadChunk{"kind", [](Frame* f) { f->kind = v1::ExchangeFrame::PULL; }},
                                         BadChunk{"job", [](Frame* f) { f->job = JobId(9); }},
                                         BadChunk{"partition", [](Frame* f) { f->partition = PartitionId(9); }},
                                         BadChunk{"generation", [](Frame* f) { f->generation = Generation(9); }},
                                         BadChunk{"sequence", [](Frame* f) { f->sequence++; }},
                                         BadChunk{"examples", [](Frame* f) { f->examples = 77; }},
                                         BadChunk{"dtype", [](Frame* f) { f->dtype = v1::FLOAT16; }},
                                         BadChunk{"empty", [](Frame* f) { f->payload = Buffer(); }},
                                         BadChunk{"overflow", [](Frame* f) { f->payload_offset = ~uint64_t{0} - 10; }},
                                         BadChunk{"beyond", [](Frame* f) { f->payload = Buffer::Zeros(601); }}),
                         [](const auto& info) { return info.param.name; });

TEST(FrameAssembler, BadFirstChunks) {
  FrameAssembler assembler(1 << 20, 1 << 16);
  Frame f = Whole(1, 100);
  f.payload_total = 50;
  EXPECT_TRUE(absl::IsInvalidArgument(assembler.Add(Received(f)).status())) << "more than the total";
  f.payload_total = 200;
  f.payload_offset = 100;
  EXPECT_TRUE(absl::IsInvalidArgument(assembler.Add(Received(f)).status())) << "begins in the middle";
  f.payload_offset = 0;
  f.payload_total = (1 << 16) + 1;
  EXPECT_TRUE(absl::IsInvalidArgument(assembler.Add(Received(f)).status())) << "a tensor too large";
  f.payload_total = ~uint64_t{0};
  EXPECT_TRUE(absl::IsInvalidArgument(assembler.Add(Received(f)).status())) << "a giant";
  EXPECT_EQ(assembler.bytes_joining(), 0u);
}

TEST(FrameAssembler, TheTensorsOfAnImageAreFramesOfOneRequest) {
  FrameAssembler assembler(10000);
  for (uint32_t tensor = 0; tensor < 3; ++tensor) {
    Frame whole = Whole(4, 700);
    whole.kind = v1::ExchangeFrame::IMAGE;
    whole.tensor = tensor;
    whole.tensors = 3;
    if (tensor == 0) whole.image = "header";
    FrameSplitter splitter(whole, 300);
    std::optional<Frame> joined;
    while (!splitter.done()) {
      ASSERT_FALSE(joined.has_value());
      auto added = assembler.Add(Received(splitter.Next()));
      ASSERT_TRUE(added.ok()) << added.status();
      joined = *std::move(added);
    }
    ASSERT_TRUE(joined.has_value());
    EXPECT_EQ(joined->tensor, tensor);
    EXPECT_EQ(joined->tensors, 3u);
    EXPECT_EQ(joined->image, whole.image);
    EXPECT_EQ(joined->payload.size(), 700u);
  }
  EXPECT_EQ(assembler.bytes_joining(), 0u);
}

TEST(FrameAssembler, WhatManyStreamsHoldIsBoundedTogether) {
  ByteBudget budget(1000);
  {
    FrameAssembler a(10000, 10000, &budget), b(10000, 10000, &budget);
    FrameSplitter first(Whole(1, 700), 300), second(Whole(2, 700), 300);
    ASSERT_TRUE(a.Add(Received(first.Next())).ok());
    EXPECT_EQ(budget.taken(), 700u);
    std::optional<Frame> joined;
    while (!second.done()) {
      auto added = b.Add(Received(second.Next()));
      ASSERT_TRUE(added.ok()) << added.status();
      joined = *std::move(added);
    }
    ASSERT_TRUE(joined.has_value());
    EXPECT_TRUE(absl::IsResourceExhausted(joined->status));
    EXPECT_TRUE(joined->payload.empty());
    while (!first.done()) {
      auto added = a.Add(Received(first.Next()));
      ASSERT_TRUE(added.ok()) << added.status();
      joined = *std::move(added);
    }
    EXPECT_TRUE(joined->status.ok());
    EXPECT_EQ(joined->payload.size(), 700u);
    EXPECT_EQ(budget.taken(), 0u);
    FrameSplitter third(Whole(3, 900), 300);
    ASSERT_TRUE(b.Add(Received(third.Next())).ok());
    EXPECT_EQ(budget.taken(), 900u);
  }
  EXPECT_EQ(budget.taken(), 0u) << "a stream that ends gives back what it was joining";
}

// As through shared memory: more than a frame of a call may hold. It is counted like one of many chunks.
TEST(FrameAssembler, ALargeFrameInOneChunkIsCountedAndWhole) {
  const size_t bytes = kFramePayloadBytesMax + 12;
  ByteBudget budget(bytes);
  FrameAssembler a(2 * bytes, 2 * bytes, &budget);
  const auto one_chunk = [](uint64_t id, size_t size) {
    Frame frame = Whole(id, size);
    frame.payload_total = size;
    return frame;
  };
  const Frame sent = one_chunk(1, bytes);
  auto joined = a.Add(Received(sent));
  ASSERT_TRUE(joined.ok() && joined->has_value()) << joined.status();
  EXPECT_EQ((*joined)->payload.size(), bytes);
  EXPECT_EQ(std::memcmp((*joined)->payload.data(), sent.payload.data(), bytes), 0);
  EXPECT_EQ(a.joins(), 0u);
  EXPECT_EQ(budget.taken(), 0u);
  ASSERT_TRUE(budget.TryTake(1));
  joined = a.Add(Received(one_chunk(2, bytes)));
  ASSERT_TRUE(joined.ok() && joined->has_value()) << joined.status();
  EXPECT_TRUE(absl::IsResourceExhausted((*joined)->status)) << (*joined)->status;
  EXPECT_TRUE((*joined)->payload.empty());
  EXPECT_EQ(budget.taken(), 1u);
  EXPECT_TRUE(a.Add(Received(one_chunk(3, 100))).ok()) << "the stream goes on";
}

// Eight small chunks that announce the largest tensors once took all of the budget.
TEST(FrameAssembler, MemoryFollowsWhatHasArrivedNotWhatIsAnnounced) {
  ByteBudget budget(8 << 20), peer(4 << 20, &budget);
  std::vector<std::unique_ptr<FrameAssembler>> liars;
  for (uint64_t id = 0; id < 8; ++id) {
    liars.push_back(std::make_unique<FrameAssembler>(2 << 20, 1 << 20, &peer));
    Frame f = Whole(id, 100);
    f.payload_total = 1 << 20;
    ASSERT_TRUE(liars.back()->Add(Received(f)).ok());
    EXPECT_LE(liars.back()->bytes_joining(), 100 * kAssemblerGrowth);
    EXPECT_EQ(liars.back()->joins(), 1u);
  }
  EXPECT_LE(budget.taken(), 8 * 100 * kAssemblerGrowth);
  FrameAssembler honest(2 << 20, 1 << 20, &budget);
  const Frame sent = Whole(9, 1 << 20);
  FrameSplitter splitter(sent, 1000);
  std::optional<Frame> joined;
  for (size_t arrived = 0; !splitter.done();) {
    Frame chunk = splitter.Next();
    arrived += chunk.payload.size();
    auto added = honest.Add(Received(chunk));
    ASSERT_TRUE(added.ok()) << added.status();
    EXPECT_LE(honest.bytes_joining(), arrived * kAssemblerGrowth);
    joined = *std::move(added);
  }
  ASSERT_TRUE(joined.has_value() && joined->status.ok());
  ASSERT_EQ(joined->payload.size(), sent.payload.size());
  EXPECT_EQ(std::memcmp(joined->payload.data(), sent.payload.data(), sent.payload.size()), 0);
  EXPECT_EQ(honest.bytes_joining(), 0u);
  liars.clear();
  EXPECT_EQ(peer.taken() + budget.taken(), 0u);
}

// The header of a chunk may hold the chunk's bytes as well, as the splitter's do: they are not memory of the request.
TEST(FrameAssembler, AHeaderWithItsBytesCountsOnce) {
  FrameAssembler assembler(4096, 1024);
  FrameSplitter splitter(Whole(1, 200), 60);
  std::optional<Frame> whole;
  while (!splitter.done()) {
    const Frame chunk = splitter.Next();
    DecodedFrame received = Received(chunk);
    received.frame.payload = chunk.payload;
    auto added = assembler.Add(std::move(received));
    ASSERT_TRUE(added.ok()) << added.status();
    EXPECT_LE(assembler.bytes_joining(), 200u);
    whole = *std::move(added);
  }
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(std::memcmp(whole->payload.data(), Whole(1, 200).payload.data(), 200), 0);
  EXPECT_EQ(assembler.bytes_joining(), 0u);
}

// One that runs out of budget in the middle gives back what it held, so that the others can be completed.
TEST(FrameAssembler, ARequestThatNoLongerFitsIsDroppedAndTheOthersGoOn) {
  ByteBudget all(2000), peer(1200, &all);
  FrameAssembler a(10000, 10000, &peer), b(10000, 10000, &peer);
  FrameSplitter large(Whole(1, 1100), 100), small(Whole(2, 300), 100);
  ASSERT_TRUE(a.Add(Received(large.Next())).ok());  // takes 400
  ASSERT_TRUE(b.Add(Received(small.Next())).ok());  // takes 300
  std::optional<Frame> dropped, joined;
  while (!large.done()) dropped = *a.Add(Received(large.Next()));
  ASSERT_TRUE(dropped.has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(dropped->status)) << dropped->status;
  EXPECT_EQ(peer.taken(), 300u);
  EXPECT_EQ(all.taken(), 300u);
  while (!small.done()) joined = *b.Add(Received(small.Next()));
  EXPECT_TRUE(joined.has_value() && joined->status.ok());
  EXPECT_EQ(all.taken(), 0u);
}

TEST(FrameAssembler, WhatIsBegunIsBounded) {
  FrameAssembler assembler(1000, 600);
  Frame f = Whole(1, 10);
  f.payload_total = 600;
  EXPECT_TRUE(assembler.Add(Received(f)).ok());
  f.request_id = 2;
  EXPECT_TRUE(absl::IsResourceExhausted(assembler.Add(Received(f)).status()));
  f.payload_total = 400;
  EXPECT_TRUE(assembler.Add(Received(f)).ok());
  EXPECT_EQ(assembler.bytes_joining(), 2 * 10 * kAssemblerGrowth);

  FrameAssembler many(1 << 30);
  for (uint64_t id = 0; id < kAssemblerJoinsMax; ++id) {
    f.request_id = id;
    ASSERT_TRUE(many.Add(Received(f)).ok());
  }
  f.request_id = kAssemblerJoinsMax;
  EXPECT_TRUE(absl::IsResourceExhausted(many.Add(Received(f)).status()));
}

TEST(Address, Parses) {
  const auto both = ParseAddress("10.0.0.1:80,unix:/run/ps.sock");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->tcp, "10.0.0.1:80");
  EXPECT_EQ(both->unix_socket, "/run/ps.sock");
  EXPECT_EQ(ParseAddress("[::1]:80")->tcp, "[::1]:80");
  for (const char* bad : {"", "host", ":80", "host:", "h:1,", "h:1,unix:", "h:1,unix:relative", "h:1,tcp:/x"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseAddress(bad).status())) << bad;
  }
}

TEST(Backoff, DoublesUpToItsMaximumWithJitter) {
  const BackoffOptions options{absl::Milliseconds(100), absl::Milliseconds(450)};
  Backoff a(options, 1), b(options, 2), same(options, 1);
  bool differ = false;
  for (int base : {100, 200, 400, 450, 450, 450}) {
    const absl::Duration d = a.Next();
    EXPECT_GE(d, absl::Milliseconds(base) / 2);
    EXPECT_LE(d, absl::Milliseconds(base));
    EXPECT_EQ(d, same.Next());
    differ |= d != b.Next();
  }
  EXPECT_TRUE(differ);
  a.Reset();
  EXPECT_LE(a.Next(), absl::Milliseconds(100));
}

}  // namespace
}  // namespace cairn
