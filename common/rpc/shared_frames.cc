#include "common/rpc/shared_frames.h"

#include <memory>
#include <utility>

#include "common/tensor/frame_codec.h"

namespace cairn {

bool TryWriteFrame(SharedLink* link, const Frame& chunk) {
  Frame without = chunk;
  without.payload = {};
  const std::string header = EncodeFrameHeader(without);
  std::shared_ptr<const void> owner;
  if (chunk.payload.size() >= kReferenceBytesMin) owner = std::make_shared<const Buffer>(chunk.payload);
  return link->TryWrite(ByteSpan(reinterpret_cast<const uint8_t*>(header.data()), header.size()),
                        ByteSpan(chunk.payload.data(), chunk.payload.size()), std::move(owner));
}

// The decoder sees the copied header alone, never the payload, which the other process may change meanwhile.
absl::StatusOr<std::optional<Frame>> ReceiveFrame(const RingMessage& message, FrameAssembler* assembler) {
  const ByteSpan header(reinterpret_cast<const uint8_t*>(message.header.data()), message.header.size());
  CAIRN_ASSIGN_OR_RETURN(DecodedFrame decoded, DecodeFrame({header}));
  if (decoded.payload_size != 0) return absl::InvalidArgumentError("a frame's header with a payload in it");
  for (const ByteSpan piece : message.payload) {
    if (piece.empty()) continue;
    decoded.payload.push_back(piece);
    decoded.payload_size += piece.size();
  }
  absl::StatusOr<std::optional<Frame>> whole = assembler->Add(std::move(decoded));
  if (!message.Intact()) return absl::UnavailableError("the other process has taken back what it sent");
  return whole;
}

}  // namespace cairn
