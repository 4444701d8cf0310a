// The codec between Frame and the bytes of an ExchangeFrame message (proto/cairn/v1/parameter.proto), without a copy of
// the tensor.
//
// Thread rule: pure functions. Invariants:
//   1. EncodeFrameHeader(f) followed by f.payload is, byte for byte,
//      what protobuf's own encoder writes for the same message.
//   2. DecodeFrame accepts whatever a protobuf encoder may write: any order of fields,
//      repeated fields (the last one counts), unknown fields (skipped), fields of
//      another wire type (skipped); it refuses groups, which proto3 does not have.
//   3. No input crashes it or makes it allocate: it reads in place and checks every length against the input.
//
// Grammar (varint and little-endian fixed32 and fixed64 as in protobuf; a field equal to its default is omitted,
// except (J)):
//
//   message := (A)? (B)? (C)? (D)? (E)? (F)? (G)? (H)? (I)? (J)? (K)? (L)? (M)? (N)? (O)? (P)? (Q)? (R)? (S)?
//              (T)? (U)? (V)? (W)? (X)? (Y)? (Z)? (AA)? (AB)?
//   (A) 0x08      varint   kind                (K) 0x58      varint   examples
//   (B) 0x10      varint   request_id          (L) 0x65      fixed32  learning_rate
//   (C) 0x18      varint   job_id              (M) 0x68      varint   dtype
//   (D) 0x20      varint   partition           (N) 0x70      varint   payload_offset
//   (E) 0x28      varint   generation          (O) 0x78      varint   payload_total
//   (F) 0x30      varint   replica_first       (P) 0x80 0x01 varint   status_code
//   (G) 0x38      varint   replica_count       (Q) 0x8a 0x01 varint n, then n bytes: status_message
//   (H) 0x40      varint   sequence            (R) 0x90 0x01 varint   reply_dtype
//   (I) 0x48      varint   version             (S) 0x98 0x01 varint   tensor
//   (J) 0x50      varint   want_version (present if set, even to 0)
//   (T) 0xa0 0x01 varint   tensors             (W) 0xb8 0x01 varint   ema_overwrite
//   (U) 0xaa 0x01 varint n, then n bytes: image
//   (V) 0xb2 0x01 varint n, then n bytes: scalars
//   (X) 0xc1 0x01 fixed64  norms_xxh3
//   (Y) 0xcd 0x01 fixed32  loss_scale          (Z) 0xd0 0x01 varint   not_finite
//   (AA) 0xda 0x01 varint n, then n bytes: figures
//   (AB) 0xa2 0x06 varint n, then n bytes: payload
//
// The header is everything up to and including the length of (AB); the payload follows as a separate slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/tensor/frame.h"

namespace cairn {

using ByteSpan = absl::Span<const uint8_t>;

// The bytes before frame.payload. frame.status is written if it is not OK; its message is cut at
// kStatusMessageBytesMax.
std::string EncodeFrameHeader(const Frame& frame);

struct DecodedFrame {
  Frame frame;  // payload is empty
  // The payload's pieces in the decoder's input, in order; no span is empty.
  absl::InlinedVector<ByteSpan, 4> payload;
  size_t payload_size = 0;
};

// The concatenation of `slices` is one message. The result points into them.
// Errors: INVALID_ARGUMENT names the bad field and its byte offset.
absl::StatusOr<DecodedFrame> DecodeFrame(absl::Span<const ByteSpan> slices);

// Copies the payload's pieces to `out`, end to end. out.size() >= decoded.payload_size.
void CopyPayload(const DecodedFrame& decoded, absl::Span<uint8_t> out);

}  // namespace cairn
