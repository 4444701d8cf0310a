// The yardstick: a plain gRPC stream of ByteBuffers over static memory, in messages as long as an Exchange frame's
// payload.
//
// Thread rule: a RawStream belongs to one thread; RawStreamReactor to gRPC.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

// Answers every message with one of the same size (at most kFramePayloadBytesMax of it); deletes itself.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewRawStreamReactor();

class RawStream {
 public:
  // address: as a channel takes it; of a server with v1.Bench. Errors: INVALID_ARGUMENT the address.
  static absl::StatusOr<std::unique_ptr<RawStream>> Open(const std::string& address);
  virtual ~RawStream() = default;

  // Sends `bytes` and waits for as many; the time it took. Errors: UNAVAILABLE the stream broke, DEADLINE_EXCEEDED.
  virtual absl::StatusOr<absl::Duration> Round(int64_t bytes, absl::Duration timeout) = 0;
};

}  // namespace cairn
