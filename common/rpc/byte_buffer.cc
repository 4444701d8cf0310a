#include "common/rpc/byte_buffer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/tensor/frame_codec.h"

namespace cairn {

grpc::ByteBuffer ToByteBuffer(const Frame& chunk) {
  const std::string header = EncodeFrameHeader(chunk);
  if (chunk.payload.empty()) {
    const grpc::Slice slice(header);
    return grpc::ByteBuffer(&slice, 1);
  }
  auto* reference = new Buffer(chunk.payload);
  const grpc::Slice slices[2] = {grpc::Slice(header),
                                 grpc::Slice(
                                     const_cast<uint8_t*>(chunk.payload.data()), chunk.payload.size(),
                                     [](void* p) { delete static_cast<Buffer*>(p); }, reference)};
  return grpc::ByteBuffer(slices, 2);
}

absl::StatusOr<std::optional<Frame>> ReceiveFrame(const grpc::ByteBuffer& message, FrameAssembler* assembler) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return absl::InvalidArgumentError("a message that cannot be read");
  absl::InlinedVector<ByteSpan, 64> spans;
  spans.reserve(slices.size());
  for (const grpc::Slice& s : slices) spans.push_back(ByteSpan(s.begin(), s.size()));
  CAIRN_ASSIGN_OR_RETURN(DecodedFrame decoded, DecodeFrame(spans));
  return assembler->Add(std::move(decoded));
}

}  // namespace cairn
