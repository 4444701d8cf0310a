// Chunks for a FrameAssembler: its frames are whole, what it holds stays within the bound, and a frame that was split
// is put together as it was.
#include <cstring>
#include <optional>

#include "common/base/check.h"
#include "common/rpc/assembler.h"
#include "tests/fuzz/input.h"

namespace cairn {
namespace {

constexpr size_t kJoiningBytesMax = 4096;
constexpr size_t kTensorBytesMax = 1024;

std::optional<Frame> Add(FrameAssembler& assembler, const Frame& header, std::string_view payload) {
  DecodedFrame chunk;
  chunk.frame = header;
  if (!payload.empty()) chunk.payload.push_back({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()});
  chunk.payload_size = payload.size();
  absl::StatusOr<std::optional<Frame>> whole = assembler.Add(std::move(chunk));
  CAIRN_CHECK(assembler.bytes_joining() <= kJoiningBytesMax, "more is held than allowed");
  if (!whole.ok()) return std::nullopt;
  if (whole->has_value()) {
    CAIRN_CHECK((*whole)->payload_offset == 0 && (*whole)->payload_total == (*whole)->payload.size(), "not whole");
  }
  return *std::move(whole);
}

Frame Header(ByteSource& in) {
  Frame f;
  f.kind = static_cast<Frame::Kind>(in.Below(9));
  f.request_id = in.Below(4);
  f.replica_count = in.Below(2);
  f.want_version = in.Below(4) == 0 ? std::optional<uint64_t>(1) : std::nullopt;
  return f;
}

void Split(ByteSource& in) {
  Frame whole = Header(in);
  const size_t chunk_bytes = in.Below(64) + 1;
  const std::string_view payload = in.Bytes(in.Byte());
  whole.payload = Buffer::CopyOf(payload.data(), payload.size());
  whole.payload_total = payload.size();
  FrameAssembler assembler(kJoiningBytesMax, kTensorBytesMax);
  FrameSplitter splitter(whole, chunk_bytes);
  std::optional<Frame> joined;
  while (!splitter.done()) {
    CAIRN_CHECK(!joined, "whole before its last chunk");
    const Frame chunk = splitter.Next();
    joined = Add(assembler, chunk, {reinterpret_cast<const char*>(chunk.payload.data()), chunk.payload.size()});
  }
  CAIRN_CHECK(joined && joined->payload.size() == payload.size(), "not joined");
  CAIRN_CHECK(payload.empty() || std::memcmp(joined->payload.data(), payload.data(), payload.size()) == 0, "altered");
  CAIRN_CHECK(assembler.bytes_joining() == 0, "held after the last chunk");
}

void Check(ByteSource in) {
  FrameAssembler assembler(kJoiningBytesMax, kTensorBytesMax);
  while (!in.empty()) {
    if (in.Below(8) == 0) {
      Split(in);
      continue;
    }
    Frame header = Header(in);
    header.payload_offset = in.Edge();
    header.payload_total = in.Edge();
    const std::string_view payload = in.Bytes(in.Byte());
    Add(assembler, header, payload);
  }
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
