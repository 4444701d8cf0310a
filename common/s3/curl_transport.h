// S3Transport over libcurl. Connections are kept and used again, each by one thread at a time.
//
// Thread-safe. Invariants:
//   1. http and https alone; no redirection is followed, no cookie kept, no file of the user read (.netrc).
//   2. A server's certificate is verified.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/s3/transport.h"

namespace cairn {

class CurlTransport : public S3Transport {
 public:
  // ca_file: empty: the system's. stopping: Send ends with CANCELLED within a second after it is set (libcurl looks
  // that often where nothing comes), and later ones at once; outlives this.
  CurlTransport(std::string ca_file, const std::atomic<bool>* stopping);
  ~CurlTransport() override;
  absl::StatusOr<S3Reply> Send(const S3Request& request) override;

 private:
  struct Connection;
  std::unique_ptr<Connection> Take();

  const std::string ca_file_;
  const std::atomic<bool>* const stopping_;
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
