// PsStream: one Exchange stream to a ps, reopened with back-off after it breaks. It holds the requests in flight and
// those queued for sending.
//
// Thread-safe. Lock order: only mutex_; user callbacks and gRPC operations run without it. Invariants: those of
// PsConnection (parameter_client.h).
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "client/parameter_client.h"
#include "client/request_trace.h"
#include "common/base/files.h"
#include "common/rpc/backoff.h"
#include "common/rpc/byte_buffer.h"
#include "common/rpc/daemon.h"

namespace grpc {
class Channel;
}

namespace cairn {

class PsStream : public std::enable_shared_from_this<PsStream> {
 public:
  using Done = PsConnection::Done;
  using OnTensor = PsConnection::OnTensor;

  PsStream(std::string address, const PsConnectionOptions& options,
           std::shared_ptr<std::atomic<size_t>> outstanding_bytes)
      : address_(std::move(address)),
        options_(options),
        outstanding_bytes_(std::move(outstanding_bytes)),
        backoff_({}, RandomBits()) {}

  void Send(std::vector<Frame> request, OnTensor on_tensor, Done done);
  void Close();
  bool connected();

 private:
  class Call;  // ps_stream_call.h

  struct MemoryUse {
    bool tried = true;  // by the next call
    bool said = false;  // that there is none
  };

  struct Pending {
    Done done;
    size_t bytes = 0;
    OnTensor on_tensor;                   // SNAPSHOT
    uint32_t next_tensor = 0;             // the next one expected in the answer
    std::unique_ptr<RequestTrace> trace;  // null: it is not traced
  };

  // To where the ps hands memory over.
  absl::StatusOr<FileDescriptor> ConnectHandover();
  // Whether the ps answers a call that asks for memory, and it is wanted.
  bool MayAskForMemory();
  // Says it once. for_good: the stream asks no more.
  void NoteNoMemory(const absl::Status& why, bool for_good);
  void OpenOrWait() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Open();
  void Pump(Call* stream);
  // began_ns: when its first bytes came; 0: not known.
  void OnReply(Frame reply, int64_t began_ns);
  bool OnTensorReply(Frame& reply);
  void ForgetStream(Call* stream);
  void OnStreamDone(const absl::Status& status, std::shared_ptr<grpc::Channel> channel);
  bool traces() const { return options_.trace != nullptr && options_.trace->on(); }
  void NoteSent(uint64_t request_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailOne(uint64_t request_id, const absl::Status& status);
  void FailAll(const absl::Status& status);
  std::optional<Pending> Take(uint64_t request_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveCallback();

  const std::string address_;
  const PsConnectionOptions options_;
  const std::shared_ptr<std::atomic<size_t>> outstanding_bytes_;  // of all the connection's streams

  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  MemoryUse memory_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_request_id_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<uint64_t, Pending> pending_ ABSL_GUARDED_BY(mutex_);
  std::deque<FrameSplitter> queue_ ABSL_GUARDED_BY(mutex_);  // not yet handed to the stream
  Call* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;           // the open one
  bool opening_ ABSL_GUARDED_BY(mutex_) = false;             // Open is about to run
  std::chrono::steady_clock::time_point open_not_before_
      ABSL_GUARDED_BY(mutex_);  // steady: changes of the wall clock cause no delay
  Backoff backoff_ ABSL_GUARDED_BY(mutex_);
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;  // live streams, and callbacks running outside them
  // The channel of the last call that ended. gRPC joins its callback threads when the process' last channel with
  // callbacks is destroyed, so none may be destroyed on such a thread: it is released in Close, or at the next open.
  std::shared_ptr<grpc::Channel> retired_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
