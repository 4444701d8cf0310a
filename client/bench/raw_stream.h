// RawStream, the baseline: a plain gRPC stream of ByteBuffers over static memory, in messages as long as an Exchange
// frame's payload.
//
// Thread rule: a RawStream belongs to one thread; the reactor to gRPC.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

// Answers every message with one of the same size (at most kFramePayloadBytesMax); deletes itself.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* NewRawStreamReactor();

class RawStream {
 public:
  // address: of a server with v1.Bench, as in CreateChannel. Errors: INVALID_ARGUMENT: the address.
  static absl::StatusOr<std::unique_ptr<RawStream>> Open(const std::string& address);
  virtual ~RawStream() = default;

  // Sends `bytes`, waits for as many, returns the time taken. Errors: UNAVAILABLE: stream broken; DEADLINE_EXCEEDED.
  virtual absl::StatusOr<absl::Duration> Round(int64_t bytes, absl::Duration timeout) = 0;
};

}  // namespace cairn
