// A request as its handler sees it, and what is answered. Values.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/access.h"

namespace cairn {

// What a POST must have, with the value 1: a page of another origin cannot send it without asking first, and it is told
// no.
inline constexpr char kActionHeader[] = "X-Cairn-Action";

struct HttpRequest {
  std::string path;                          // decoded, without the query
  std::string target;                        // as received, with the query: plain characters only
  std::map<std::string, std::string> query;  // decoded; of a repeated name the first value
  Caller caller = {.unrestricted = true};    // with TLS: of the certificate, or of `identify`; none on an open path
  std::string method = "GET";                // GET, HEAD, POST
  std::string peer = "";                     // of a POST: "ipv4:10.0.0.7:4711"
  std::string body = "";                     // of a POST: JSON, as the sender says
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

}  // namespace cairn
