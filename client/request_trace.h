// RequestTrace: the times of one request to a ps that belongs to a step, as spans for `cairn trace`: of a worker push,
// wait and pull; of a primary that sends an update to a backup, replicate.
//
// Not thread-safe; it belongs to one request of a PsStream.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/status.h"
#include "common/base/trace.h"
#include "common/tensor/frame.h"

namespace cairn {

class RequestTrace {
 public:
  // Null: the request's job is not traced, or the request belongs to no step. recorder: may be null; outlives it.
  static std::unique_ptr<RequestTrace> Of(TraceRecorder* recorder, const Frame& request);

  // gRPC has the last bytes of the request.
  void Sent() { sent_ns_ = recorder_.now(); }
  // The answer has arrived; its first bytes at `began_ns`.
  void Answered(const Frame& answer, int64_t began_ns);
  // Whoever waited for the answer has it.
  void TakenIn();

 private:
  RequestTrace(TraceRecorder& recorder, const Frame& request, int64_t step);
  void Tell(TraceKind kind, int64_t begin_ns, int64_t end_ns, uint64_t bytes);

  TraceRecorder& recorder_;
  const v1::ExchangeFrame::Kind kind_;
  const JobId job_;
  TraceSpan like_;
  const uint64_t bytes_;
  const int64_t begin_ns_;
  int64_t sent_ns_ = 0, answered_ns_ = 0;
  uint64_t values_bytes_ = 0;  // of the answer; 0: it has none
};

}  // namespace cairn
