// Goal: messages go through a ring of shared memory whole and in order, also where they wrap; and whatever the other
// process writes there, nobody reads beyond the ring or takes a message that cannot be.
#include "common/shared_memory/byte_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace cairn {
namespace {

constexpr size_t kBytes = 4096, kHeaderMax = 100, kPayloadMax = 1500, kInArenaMax = 2000;

// Both ends of one direction. The ring's memory is exactly that: AddressSanitizer finds whoever leaves it.
struct Ring {
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kBytes);
  std::unique_ptr<LinkEnd> ends[2] = {std::make_unique<LinkEnd>(), std::make_unique<LinkEnd>()};
  RingWriter writer{bytes.data(), kBytes, ends[0].get(), ends[1].get()};
  RingReader reader{bytes.data(), kBytes, ends[1].get(), ends[0].get(), {kHeaderMax, kPayloadMax, kInArenaMax}};

  bool Write(const std::string& header, const std::string& payload) {
    if (writer.Room() < RingMessageBytes(header.size(), payload.size())) return false;
    writer.Write({reinterpret_cast<const uint8_t*>(header.data()), header.size()},
                 {reinterpret_cast<const uint8_t*>(payload.data()), payload.size()});
    return true;
  }
};

std::string PayloadOf(const RingMessage& message) {
  std::string out;
  for (const auto& piece : message.payload) out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  return out;
}

std::string RandomText(std::mt19937& random, size_t most) {
  std::string text(std::uniform_int_distribution<size_t>(0, most)(random), '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(ByteRing, IsAQueueOfMessages) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  Ring ring;
  std::deque<std::pair<std::string, std::string>> model;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 2 == 0) {
      std::string header = RandomText(random, kHeaderMax), payload = RandomText(random, kPayloadMax);
      if (ring.Write(header, payload)) {
        model.emplace_back(std::move(header), std::move(payload));
      } else {
        ++refused;
        EXPECT_FALSE(model.empty());
      }
      continue;
    }
    const auto message = ring.reader.Peek();
    ASSERT_TRUE(message.ok()) << message.status();
    ASSERT_EQ(message->has_value(), !model.empty());
    if (model.empty()) continue;
    EXPECT_EQ((*message)->header, model.front().first);
    EXPECT_EQ(PayloadOf(**message), model.front().second);
    ring.reader.Release((*message)->ring_bytes);
    model.pop_front();
    EXPECT_EQ(ring.reader.Free(), ring.writer.Room());
  }
  EXPECT_GT(refused, 100);
}

TEST(ByteRing, RefusesWhatCannotHaveBeenWritten) {
  const auto error = [](auto damage) {
    Ring ring;
    EXPECT_TRUE(ring.Write("header", "payload"));
    damage(ring);
    const auto message = ring.reader.Peek();
    EXPECT_FALSE(message.ok());
    return std::string(message.status().message());
  };
  const auto sizes = [](Ring& ring, uint32_t header, uint32_t payload) {
    std::memcpy(ring.bytes.data(), &header, 4);
    std::memcpy(ring.bytes.data() + 4, &payload, 4);
  };
  using testing::HasSubstr;
  EXPECT_THAT(error([](Ring& r) { r.ends[0]->written = kBytes + 64; }), HasSubstr("4160 bytes in a ring of 4096"));
  EXPECT_THAT(error([](Ring& r) { r.ends[0]->written = ~uint64_t{0}; }), HasSubstr("bytes in a ring of"));
  EXPECT_THAT(error([](Ring& r) { r.ends[0]->written = 8; }), HasSubstr("8 bytes in a ring"));
  EXPECT_THAT(error([&](Ring& r) { sizes(r, kHeaderMax + 1, 0); }), HasSubstr("a message of 101 and 0 bytes"));
  EXPECT_THAT(error([&](Ring& r) { sizes(r, 0, kPayloadMax + 1); }), HasSubstr("a message of 0 and 1501 bytes"));
  EXPECT_THAT(error([&](Ring& r) { sizes(r, UINT32_MAX, UINT32_MAX); }), HasSubstr("a message of"));
  EXPECT_THAT(error([&](Ring& r) { sizes(r, 10, 1000); }), HasSubstr("where 128 are written"));
}

// The reader's count of the other process may say anything: then nothing is written over what was not read.
TEST(ByteRing, ACountThatCannotBeIsNoRoom) {
  Ring ring;
  ASSERT_TRUE(ring.Write("a", std::string(1000, 'x')));
  ring.ends[1]->read = 1 << 20;
  EXPECT_EQ(ring.writer.Room(), 0u);
  ring.ends[1]->read = ~uint64_t{0};
  EXPECT_LE(ring.writer.Room(), kBytes);
}

// A payload in the writer's arena is within it, or an error.
TEST(ByteRing, RefersToAnArena) {
  const std::unique_ptr<SharedArena> arena = *SharedArena::Create(4096);
  std::memcpy(arena->Take(4096), "0123456789", 10);
  const ArenaView view = *ArenaView::Open(*arena->OpenReadOnly(), 4096);
  Ring ring;
  RingReader reader(ring.bytes.data(), kBytes, ring.ends[1].get(), ring.ends[0].get(),
                    {kHeaderMax, kPayloadMax, kInArenaMax}, &view);
  const uint8_t header[3] = {1, 2, 3};
  ring.writer.Write(header, ArenaPlace{4, 3});
  const auto message = reader.Peek();
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ((*message)->header, "\1\2\3");
  EXPECT_EQ(PayloadOf(**message), "456");
  EXPECT_TRUE((*message)->Intact());
  ring.ends[0]->closed = 1;
  EXPECT_FALSE((*message)->Intact());
  reader.Release((*message)->ring_bytes);
  EXPECT_EQ(ring.writer.Room(), kBytes);
  const auto error = [&](ArenaPlace place) {
    Ring fresh;
    RingReader of(fresh.bytes.data(), kBytes, fresh.ends[1].get(), fresh.ends[0].get(),
                  {kHeaderMax, kPayloadMax, kInArenaMax}, &view);
    fresh.writer.Write(header, place);
    return std::string(of.Peek().status().message());
  };
  EXPECT_THAT(error({4090, 7}), testing::HasSubstr("7 bytes at 4090 of an arena of 4096"));
  EXPECT_THAT(error({~uint64_t{0}, 1}), testing::HasSubstr("of an arena of 4096"));
  EXPECT_THAT(error({0, kInArenaMax + 1}), testing::HasSubstr("a message of 3 and 2001 bytes"));
  EXPECT_EQ(error({4089, 7}), "");
  ring.writer.Write(header, ArenaPlace{0, 1});
  EXPECT_THAT(std::string(ring.reader.Peek().status().message()), testing::HasSubstr("of an arena of 0"));
}

// Random damage to memory and counts: the reader gives a message within the ring, or an error.
TEST(ByteRing, HoldsUnderRandomDamage) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  int errors = 0, messages = 0;
  for (int i = 0; i < 2000; ++i) {
    Ring ring;
    for (int n = 0; n < 5; ++n) ring.Write(RandomText(random, kHeaderMax), RandomText(random, 400));
    for (int n = 0; n < 3; ++n) ring.bytes[random() % 600] = static_cast<uint8_t>(random());
    if (random() % 3 == 0) ring.ends[0]->written += random() % 300;
    for (int n = 0; n < 8; ++n) {
      const auto message = ring.reader.Peek();
      if (!message.ok()) {
        ++errors;
        break;
      }
      if (!message->has_value()) break;
      ++messages;
      EXPECT_LE((*message)->header.size(), kHeaderMax);
      EXPECT_LE(PayloadOf(**message).size(), kPayloadMax);
      ring.reader.Release((*message)->ring_bytes);
    }
  }
  EXPECT_GT(errors, 100);
  EXPECT_GT(messages, 100);
}

}  // namespace
}  // namespace cairn
