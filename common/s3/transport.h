// S3Transport: sends one HTTP request and waits for the reply. The seam between the S3 client and the network:
// libcurl in programs, a server in memory in tests.
//
// Thread-safe. Invariants:
//   1. A reply that Send returns is whole: as many bytes as its Content-Length says, none lost.
//   2. Every call ends: with the reply, an error, or at the limits of the request and of common/s3/limits.h.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status.h"
#include "common/s3/limits.h"

namespace cairn {

struct S3Request {
  std::string method;  // GET, HEAD, PUT, POST or DELETE
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers;
  size_t body_bytes_max = 0;  // of the reply
  absl::string_view body;     // of PUT and POST; outlives Send
  absl::Duration silent_max = kS3SilentMax;
  absl::Duration attempt_max = kS3AttemptMax;
};

struct S3Reply {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

// "": it has none. name: in lower case.
inline std::string S3HeaderOf(const S3Reply& reply, const std::string& name) {
  const auto it = reply.headers.find(name);
  return it == reply.headers.end() ? "" : it->second;
}

class S3Transport {
 public:
  virtual ~S3Transport() = default;
  // Errors: UNAVAILABLE: no connection, a reply that was cut or took too long: another attempt may do better;
  // FAILED_PRECONDITION: TLS; INVALID_ARGUMENT: the URL; RESOURCE_EXHAUSTED: a reply beyond the limits; CANCELLED.
  virtual absl::StatusOr<S3Reply> Send(const S3Request& request) = 0;
};

}  // namespace cairn
