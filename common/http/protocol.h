// HTTP/1.1 on one connection, once a request's head is known (request_head.h): reads its body and writes an answer,
// with Boost.Beast.
//
// Stateless functions; one thread per connection. Invariant: a body has the length that the head announces.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/http/connection.h"
#include "common/http/messages.h"
#include "common/http/request_head.h"

namespace cairn {

// Of a head with body_bytes, which the caller has found small enough.
// Errors: UNAVAILABLE: the connection, or the time for the body, has ended.
absl::StatusOr<std::string> ReadBody(Connection& connection, const RequestHead& head);

// The connection ends after it. with_body = false: as for HEAD, with the body's length. False: not all was sent.
bool WriteAnswer(Connection& connection, HttpAnswer answer, bool with_body);

// An error that is plain text as {"error": TEXT, "code": CODE}, with the code of gRPC that fits the status of HTTP;
// another answer as it is.
HttpAnswer ErrorAsJson(HttpAnswer answer);

}  // namespace cairn
