#include "common/http/protocol.h"

#include <uriparser/Uri.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/limits.h"

namespace cairn {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

// Restricts what a browser may do with our responses: show them, load what they reference from this server only, and
// not embed them in frames.
const std::pair<const char*, const char*> kHeaders[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri "
     "'none'; form-action 'none'; "
     "frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
};

// Decodes escapes; a % that is not part of one is kept.
std::string Unescape(absl::string_view text, bool plus_is_space) {
  std::string out(text);
  const char* end = uriUnescapeInPlaceExA(out.data(), plus_is_space ? URI_TRUE : URI_FALSE, URI_BR_DONT_TOUCH);
  out.resize(static_cast<size_t>(end - out.data()));
  return out;
}

absl::StatusCode CodeOf(int http_status) {
  switch (http_status) {
    case 401: return absl::StatusCode::kUnauthenticated;
    case 403: return absl::StatusCode::kPermissionDenied;
    case 404:
    case 421: return absl::StatusCode::kNotFound;
    case 405: return absl::StatusCode::kUnimplemented;
    case 408: return absl::StatusCode::kDeadlineExceeded;
    case 429: return absl::StatusCode::kResourceExhausted;
    case 500: return absl::StatusCode::kInternal;
    case 503: return absl::StatusCode::kUnavailable;
    default: return absl::StatusCode::kInvalidArgument;
  }
}

// What decides who asks, or for whom: a request has each at most once.
constexpr const char* kOnce[] = {"Host", "Authorization", "Origin", "Sec-Fetch-Site", "Content-Type", kActionHeader};

}  // namespace

absl::StatusOr<RequestHead> ReadHead(Connection& connection) {
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kHttpHeadBytesMax);
  // The body is not read; Beast 1.74 cannot express "no limit" with 0.
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  std::string unread;
  while (!parser.is_header_done()) {
    char part[4096];
    const size_t got = connection.Receive(part, sizeof(part));
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

absl::StatusOr<std::string> ReadBody(Connection& connection, const RequestHead& head) {
  const size_t size = static_cast<size_t>(head.body_bytes.value_or(0));
  std::string body = head.unread.substr(0, size);
  constexpr absl::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
  if (head.expects_continue && body.size() < size && !connection.Send(kGoOn.data(), kGoOn.size()))
    return absl::UnavailableError("the connection has ended");
  char part[4096];
  while (body.size() < size) {
    const size_t got = connection.Receive(part, std::min(sizeof(part), size - body.size()));
    if (got == 0) return absl::UnavailableError("the request's body did not come in time");
    body.append(part, got);
  }
  return body;
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

bool WriteAnswer(Connection& connection, HttpAnswer answer, bool with_body) {
  http::response<http::string_body> response(static_cast<http::status>(answer.status), 11);
  response.set(http::field::content_type, answer.content_type);
  response.body() = std::move(answer.body);
  response.prepare_payload();
  response.keep_alive(false);
  for (const auto& [name, value] : kHeaders) response.set(name, value);
  for (const auto& [name, value] : answer.headers) response.set(name, value);
  http::response_serializer<http::string_body> bytes(response);
  bytes.split(!with_body);
  beast::error_code error;
  while (!error && !(with_body ? bytes.is_done() : bytes.is_header_done())) {
    size_t written = 0;
    bytes.next(error, [&](beast::error_code& failed, const auto& buffers) {
      for (const boost::asio::const_buffer part : beast::buffers_range_ref(buffers)) {
        if (!connection.Send(static_cast<const char*>(part.data()), part.size())) {
          failed = http::error::end_of_stream;
          return;
        }
        written += part.size();
      }
    });
    if (!error) bytes.consume(written);
  }
  return !error;
}

HttpAnswer ErrorAsJson(HttpAnswer answer) {
  if (answer.status < 400 || !absl::StartsWith(answer.content_type, "text/plain")) return answer;
  const nlohmann::json error = {{"error", std::string(absl::StripAsciiWhitespace(answer.body))},
                                {"code", absl::StatusCodeToString(CodeOf(answer.status))}};
  answer.content_type = "application/json";
  answer.body = error.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return answer;
}

}  // namespace cairn
