// HTTP/1.1 on one connection: reads a request's head and writes an answer, with Boost.Beast.
//
// Stateless functions; one thread per connection. Invariants: 1. At most
// kHttpHeadBytesMax bytes of a head are buffered. 2. A request's body is not read.
#pragma once

#include <string>

#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/http/connection.h"
#include "common/http/server.h"

namespace cairn {

struct RequestHead {
  std::string method;  // "GET"; any word
  std::string target;
  std::string host;           // the Host header; empty: there is none
  std::string authorization;  // likewise
};

// Errors: INVALID_ARGUMENT: not an HTTP head, or two headers of these; RESOURCE_EXHAUSTED: the head is too long;
// UNAVAILABLE: the connection has ended.
absl::StatusOr<RequestHead> ReadHead(Connection& connection);

HttpRequest ParseTarget(const std::string& target);

// The connection ends after it. with_body = false: as for HEAD, with the body's length. False: not all was sent.
bool WriteAnswer(Connection& connection, HttpAnswer answer, bool with_body);

}  // namespace cairn
