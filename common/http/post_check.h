// CheckPost: whether a POST may be taken before its body is read. A page of somebody else's can make a browser send
// requests here, with the user's certificate (cross-site request forgery); what such a request looks like is what is
// refused.
//
// Pure; any thread. Invariants:
//   1. A request that a browser made for another origin is refused: by Sec-Fetch-Site, which only the browser sets, and
//      by Origin, which is all that a browser sends to a plain address that is not loopback. Origin's host and port are
//      ours, and so is its scheme, but for one case: to a plain server "https" is taken where Sec-Fetch-Site says that
//      the browser compared it, since a proxy in front may end TLS.
//   2. A form of another site, which browsers send unasked, has neither kActionHeader nor the type application/json; a
//      script of another site that sets one of these is preceded by OPTIONS, which this server refuses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/http/request_head.h"

namespace cairn {

struct PostFault {
  int http_status = 0;
  std::string text;  // with what to do
};

// tls: whether the request came so. nullopt: it may be taken. Statuses: 403, 411, 413, 415.
std::optional<PostFault> CheckPost(const RequestHead& head, bool tls, uint64_t body_bytes_max);

}  // namespace cairn
