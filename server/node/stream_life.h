// StreamLife: which gRPC operations of one Exchange stream may be started: one write at a time, Finish once and last.
//
// Not thread-safe; ExchangeStream guards it. Invariants, which are gRPC's rules for a reactor:
//   1. There is at most one writer. Who has taken writing keeps it until it stops, or for ever if it finishes.
//   2. Finish is started once, by the writer, while no read is being started.
//   3. Nothing is started after Finish.
#pragma once

#include <grpcpp/grpcpp.h>

#include <optional>
#include <utility>

namespace cairn {

class StreamLife {
 public:
  // ---- reads ----
  // A StartRead is about to be called: it prevents Finish until ReadStarted. The stream begins with one.
  void BeginRead() { ++starting_reads_; }
  void ReadStarted() { --starting_reads_; }

  // ---- writes ----
  // True: the caller has become the writer.
  bool TakeWriting() { return !std::exchange(writing_, true); }
  // By the writer, which has nothing to write.
  void StopWriting() { writing_ = finishing_; }
  // Writes cannot succeed any more.
  void Break() { broken_ = true; }
  bool broken() const { return broken_; }

  // ---- the end ----
  // The stream is to end with `status` when all that is queued was sent. False: it ends already, with another one.
  bool End(grpc::Status status) {
    if (ending_.has_value()) return false;
    ending_ = std::move(status);
    return true;
  }
  bool ending() const { return ending_.has_value(); }
  // By the writer. The status to call Finish with, now; nullopt: it is not the time, or Finish was called.
  std::optional<grpc::Status> TakeFinish() {
    if (!ending_.has_value() || starting_reads_ > 0 || finishing_) return std::nullopt;
    finishing_ = true;
    return ending_;
  }
  bool finishing() const { return finishing_; }

 private:
  int starting_reads_ = 1;
  bool writing_ = false;
  bool broken_ = false;
  bool finishing_ = false;  // Finish was called, or is about to be
  std::optional<grpc::Status> ending_;
};

}  // namespace cairn
