#include "common/http/protocol.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

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

}  // namespace

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
