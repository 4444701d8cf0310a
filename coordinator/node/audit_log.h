// AuditLog: who asked the coordinator to change something, from where, and what came of it: a JSON object a line, in a
// file that is rotated (audit.log, audit.1.log, ...). docs/security.md#audit-log
//
// Thread-safe. Invariant: a line is in the file before Write returns, so before the caller gets its reply. A line that
// cannot be written is said in the daemon's log, once until one is written again.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/rpc/access.h"
#include "coordinator/core/limits.h"

namespace spdlog {
class logger;
}

namespace cairn {

struct AuditRecord {
  std::string call;  // "CancelJob"
  Caller who;
  std::string from;  // as gRPC names the peer, "ipv4:10.0.0.7:4711"
  std::string what;  // the job or node, as the request names it
};

class AuditLog {
 public:
  // Errors: INVALID_ARGUMENT names the file and why it cannot be written to.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path,
                                                        size_t file_bytes_max = kAuditFileBytesMax);
  ~AuditLog();

  // outcome: of the call. job_id: of a job that it submitted; 0: none.
  void Write(const AuditRecord& record, const absl::Status& outcome, uint64_t job_id = 0);
  // Of a call that a role forbids. Those of one caller and method within kAuditRefusalsEvery are one line, which says
  // how many were left out before it.
  void WriteRefusal(const std::string& method, const Caller& who, const absl::Status& why);

 private:
  struct Refused {
    absl::Time written = absl::InfinitePast();
    uint64_t repeats = 0;
  };

  explicit AuditLog(std::shared_ptr<spdlog::logger> file);
  void WriteLine(const AuditRecord& record, const absl::Status& outcome, uint64_t job_id, uint64_t repeats);

  const std::shared_ptr<spdlog::logger> file_;
  absl::Mutex mutex_;
  std::map<std::string, Refused> refused_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> fails_{false}, said_{false};  // the last line could not be written; the log says so
};

}  // namespace cairn
