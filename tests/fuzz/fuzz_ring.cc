// A ring of shared memory whose other process does what it wants: a message is within the ring or the arena and its
// limits, or an error; and what RingWriter wrote is what RingReader reads, while nobody disturbs them.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/rpc/shared_frames.h"
#include "common/shared_memory/byte_ring.h"
#include "tests/fuzz/input.h"

namespace cairn {
namespace {

constexpr size_t kBytes = 1024, kHeaderMax = 200, kPayloadMax = 300, kInArenaMax = 500, kArenaBytes = 16384;

struct Arena {
  std::unique_ptr<SharedArena> memory = *SharedArena::Create(kArenaBytes);
  ArenaView view = *ArenaView::Open(*memory->OpenReadOnly(), kArenaBytes);
  uint8_t* data = static_cast<uint8_t*>(memory->Take(kArenaBytes));
};

ByteSpan SpanOf(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

void Check(ByteSource in) {
  std::array<uint8_t, kBytes> bytes{};
  LinkEnd ends[2] = {};
  RingWriter writer(bytes.data(), kBytes, &ends[0], &ends[1]);
  static Arena* const arena = new Arena;
  std::fill_n(arena->data, kArenaBytes, uint8_t{0});  // what an earlier input took away is there again
  RingReader reader(bytes.data(), kBytes, &ends[1], &ends[0], {kHeaderMax, kPayloadMax, kInArenaMax}, &arena->view);
  std::deque<std::pair<std::string, std::string>> written;
  bool disturbed = false;
  size_t placed = 0;  // in the arena; far more fit there than the ring holds messages
  while (!in.empty()) {
    switch (in.Below(8)) {
      case 0: {  // the other process writes to the memory, or to its counts
        disturbed = true;
        const std::string_view with = in.Bytes(in.Below(32));
        const size_t at = in.Below(kBytes - 32);
        if (!with.empty()) std::memcpy(bytes.data() + at, with.data(), with.size());
        if (in.Below(2) == 0) ends[0].written = ends[0].written + in.Below(600);
        if (in.Below(8) == 0) ends[0].written = in.Edge();
        if (in.Below(8) == 0) ends[1].read = in.Edge();
        if (in.Below(8) == 0) ends[0].closed = 1;
        if (in.Below(8) == 0) arena->memory->Discard(arena->data + 4096 * in.Below(4), 4096);
        if (in.Below(8) == 0 && writer.Room() >= RingMessageBytes(0, 8)) {
          writer.Write({}, ArenaPlace{in.Edge(), static_cast<uint32_t>(in.Below(kInArenaMax + 2))});
        }
        break;
      }
      case 4: {  // a payload in the arena
        const std::string payload(in.Bytes(in.Below(kInArenaMax + 1)));
        if (writer.Room() < RingMessageBytes(0, 8)) break;
        const size_t at = kInArenaMax * placed++ % (kArenaBytes - kInArenaMax);
        std::copy(payload.begin(), payload.end(), arena->data + at);
        writer.Write({}, ArenaPlace{at, static_cast<uint32_t>(payload.size())});
        written.emplace_back("", payload);
        break;
      }
      case 1:
      case 2:
      case 3: {
        const std::string header(in.Bytes(in.Below(kHeaderMax + 1))), payload(in.Bytes(in.Below(kPayloadMax + 1)));
        CAIRN_CHECK(writer.Room() <= kBytes, "more room than the ring has");
        if (writer.Room() < RingMessageBytes(header.size(), payload.size())) break;
        writer.Write(SpanOf(header), SpanOf(payload));
        written.emplace_back(header, payload);
        break;
      }
      default: {
        const absl::StatusOr<std::optional<RingMessage>> message = reader.Peek();
        CAIRN_CHECK(disturbed || message.ok(), "an error without a cause");
        if (!message.ok()) return;  // the link ends
        CAIRN_CHECK(disturbed || message->has_value() == !written.empty(), "a message is missing");
        if (!message->has_value()) break;
        std::string payload;
        for (const ByteSpan piece : (*message)->payload) {
          const bool inside = piece.data() >= bytes.data() && piece.end() <= bytes.data() + kBytes;
          CAIRN_CHECK(piece.empty() || inside || (*message)->closed != nullptr, "outside of the ring");
          payload.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        }
        CAIRN_CHECK((*message)->header.size() <= kHeaderMax && payload.size() <= kInArenaMax, "larger than allowed");
        if (!disturbed) {
          CAIRN_CHECK((*message)->header == written.front().first && payload == written.front().second, "altered");
        }
        if (!written.empty()) written.pop_front();
        FrameAssembler assembler(4096, 1024);
        static_cast<void>(ReceiveFrame(**message, &assembler));
        reader.Release((*message)->ring_bytes);
      }
    }
  }
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
