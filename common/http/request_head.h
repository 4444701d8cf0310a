// What stands before a request's body: its line and headers, read and checked with Boost.Beast.
//
// Stateless functions, without sockets. Invariant: at most kHttpHeadBytesMax bytes of a head are buffered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "common/base/status.h"
#include "common/http/messages.h"

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

// Reads the next bytes, at least one, at most `size`. 0: the connection has ended.
using Receiver = absl::FunctionRef<size_t(char* to, size_t size)>;

// Errors: INVALID_ARGUMENT: not an HTTP head, or two headers of these; RESOURCE_EXHAUSTED: the head is too long;
// UNAVAILABLE: the connection has ended.
absl::StatusOr<RequestHead> ReadHead(Receiver receive);

// Path and query; the rest is as for a GET.
HttpRequest ParseTarget(const std::string& target);

}  // namespace cairn
