// HTTP/1.1 on one connection: reads a request's head, then perhaps its body, and writes an answer, with Boost.Beast.
//
// Stateless functions; one thread per connection. Invariants: 1. At most kHttpHeadBytesMax bytes of a head are
// buffered. 2. A body is read only by ReadBody, and has the length that the head announces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/limits.h"
#include "common/base/status.h"
#include "common/http/connection.h"
#include "common/http/server.h"

namespace cairn {

struct RequestHead {
  std::string method;  // "GET"; any word
  std::string target;
  std::string host;                    // the Host header; empty: there is none
  std::string authorization;           // likewise, as all below
  std::string origin, fetch_site;      // Origin, Sec-Fetch-Site: what a browser says of the page that asks
  std::string content_type, action;    // Content-Type, kActionHeader
  std::optional<uint64_t> body_bytes;  // Content-Length; nullopt: none, or a body in pieces (Transfer-Encoding)
  bool expects_continue = false;       // sends its body when it is told to
  std::string unread;                  // of the body, what came with the head
};

// Errors: INVALID_ARGUMENT: not an HTTP head, or two headers of these; RESOURCE_EXHAUSTED: the head is too long;
// UNAVAILABLE: the connection has ended.
absl::StatusOr<RequestHead> ReadHead(Connection& connection);

// Of a head with body_bytes, which the caller has found small enough.
// Errors: UNAVAILABLE: the connection, or the time for the body, has ended.
absl::StatusOr<std::string> ReadBody(Connection& connection, const RequestHead& head);

// Path and query; the rest is as for a GET.
HttpRequest ParseTarget(const std::string& target);

// The connection ends after it. with_body = false: as for HEAD, with the body's length. False: not all was sent.
bool WriteAnswer(Connection& connection, HttpAnswer answer, bool with_body);

// An error that is plain text as {"error": TEXT, "code": CODE}, with the code of gRPC that fits the status of HTTP;
// another answer as it is.
HttpAnswer ErrorAsJson(HttpAnswer answer);

}  // namespace cairn
