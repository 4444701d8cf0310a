// HTTP/1.1 on one connection: a request's head is read and an answer written, by Boost.Beast.
//
// Pure functions but for the connection's bytes; one thread a connection. Invariants: 1. No more than
// kHttpHeadBytesMax bytes of a head are kept. 2. A request's body is not read.
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
};

// Errors: INVALID_ARGUMENT, bytes that are no head; RESOURCE_EXHAUSTED, a head that is too long; UNAVAILABLE, the
// connection has ended.
absl::StatusOr<RequestHead> ReadHead(Connection& connection);

HttpRequest ParseTarget(const std::string& target);

// The connection ends behind it. Without the body: as HEAD has it, with the body's length. False: not all was taken.
bool WriteAnswer(Connection& connection, HttpAnswer answer, bool with_body);

}  // namespace cairn
