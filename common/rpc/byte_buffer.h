// Converts between grpc::ByteBuffer and Frame: without a copy when sending, with one when receiving (from gRPC's read
// slices into the tensor).
//
// Thread rule: stateless functions; the assembler is the caller's.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <optional>

#include "common/base/status.h"
#include "common/rpc/assembler.h"
#include "common/tensor/frame.h"

namespace cairn {

// A header slice and a slice that holds a reference to chunk.payload until the transport has sent it.
grpc::ByteBuffer ToByteBuffer(const Frame& chunk);

// Decodes one message and adds it to the assembler. Returns the whole frame that it completes, or nothing yet.
// Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED; the caller ends the stream with them.
absl::StatusOr<std::optional<Frame>> ReceiveFrame(const grpc::ByteBuffer& message, FrameAssembler* assembler);

// Conversions between the two status types, which share their codes.
inline absl::Status FromGrpcStatus(const grpc::Status& s) {
  return absl::Status(static_cast<absl::StatusCode>(s.error_code()), s.error_message());
}
inline grpc::Status ToGrpcStatus(const absl::Status& s) {
  return grpc::Status(static_cast<grpc::StatusCode>(s.code()), std::string(s.message()));
}

}  // namespace cairn
