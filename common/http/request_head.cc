#include "common/http/request_head.h"

#include <uriparser/Uri.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http.hpp>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

// What decides who asks, or for whom: a request has each at most once.
constexpr const char* kOnce[] = {"Host", "Authorization", "Origin", "Sec-Fetch-Site", "Content-Type", kActionHeader};

// Decodes escapes; a % that is not part of one is kept.
std::string Unescape(absl::string_view text, bool plus_is_space) {
  std::string out(text);
  const char* end = uriUnescapeInPlaceExA(out.data(), plus_is_space ? URI_TRUE : URI_FALSE, URI_BR_DONT_TOUCH);
  out.resize(static_cast<size_t>(end - out.data()));
  return out;
}

}  // namespace

absl::StatusOr<RequestHead> ReadHead(Receiver receive) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kHttpHeadBytesMax);
  // The body is not read; Beast 1.74 cannot express "no limit" with 0.
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  std::string unread;
  while (!parser.is_header_done()) {
    char part[4096];
    const size_t got = receive(part, sizeof(part));
    if (got == 0) return absl::UnavailableError("the connection has ended");
    unread.append(part, got);
    beast::error_code error;
    unread.erase(0, parser.put(boost::asio::buffer(unread), error));
    if (error == http::error::header_limit) return absl::ResourceExhaustedError("the request's head is too long");
    if (error && error != http::error::need_more)
      return absl::InvalidArgumentError(absl::StrCat("no HTTP request: ", error.message()));
  }
  const auto& head = parser.get();
  for (const char* name : kOnce) {
    if (head.count(name) > 1)
      return absl::InvalidArgumentError(absl::StrCat("no HTTP request: it has two headers ", name));
  }
  RequestHead out;
  out.method = std::string(head.method_string());
  out.target = std::string(head.target());
  out.host = std::string(head[http::field::host]);
  out.authorization = std::string(head[http::field::authorization]);
  out.origin = std::string(head[http::field::origin]);
  out.fetch_site = std::string(head["Sec-Fetch-Site"]);
  out.content_type = std::string(head[http::field::content_type]);
  out.action = std::string(head[kActionHeader]);
  if (const auto length = parser.content_length(); length && !parser.chunked()) out.body_bytes = *length;
  out.expects_continue = absl::EqualsIgnoreCase(std::string(head[http::field::expect]), "100-continue");
  out.unread = std::move(unread);
  return out;
}

HttpRequest ParseTarget(const std::string& target) {
  HttpRequest out;
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(target, absl::MaxSplits('?', 1));
  out.path = Unescape(parts.first, false);
  const bool plain = std::all_of(target.begin(), target.end(), [](unsigned char c) { return absl::ascii_isgraph(c); });
  out.target = plain ? target : "/";
  for (const absl::string_view pair : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> words = absl::StrSplit(pair, absl::MaxSplits('=', 1));
    if (!words.first.empty()) out.query.emplace(Unescape(words.first, true), Unescape(words.second, true));
  }
  return out;
}

}  // namespace cairn
