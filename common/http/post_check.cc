#include "common/http/post_check.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/http/messages.h"

namespace cairn {
namespace {

constexpr absl::string_view kForeign =
    "a page of another site sent this request; what changes something here is taken from this server's own pages, and "
    "from programs";

bool IsForeign(const RequestHead& head, bool tls) {
  if (!head.fetch_site.empty() && head.fetch_site != "same-origin") return true;
  if (head.origin.empty()) return false;
  absl::string_view rest = head.origin;
  const bool https = absl::ConsumePrefix(&rest, "https://");
  if (!https && !absl::ConsumePrefix(&rest, "http://")) return true;
  // A proxy that ends TLS in front of a plain server changes the scheme; only a browser, which has compared schemes
  // itself, can vouch for it.
  if (https != tls && (tls || head.fetch_site.empty())) return true;
  return !absl::EqualsIgnoreCase(rest, head.host);
}

// "application/json", with or without parameters.
bool IsJson(absl::string_view content_type) {
  const absl::string_view type = content_type.substr(0, content_type.find(';'));
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(type), "application/json");
}

}  // namespace

std::optional<PostFault> CheckPost(const RequestHead& head, bool tls, uint64_t body_bytes_max) {
  if (IsForeign(head, tls)) return PostFault{403, std::string(kForeign)};
  if (head.action != "1") return PostFault{403, absl::StrCat("the header \"", kActionHeader, ": 1\" is missing")};
  if (!IsJson(head.content_type))
    return PostFault{415, "a body of JSON is expected, with the header \"Content-Type: application/json\""};
  if (!head.body_bytes)
    return PostFault{411, "the header Content-Length is missing; a body in pieces (Transfer-Encoding) is not taken"};
  if (*head.body_bytes > body_bytes_max) {
    return PostFault{
        413, absl::StrCat("the body has ", *head.body_bytes, " bytes; at most ", body_bytes_max, " are possible")};
  }
  return std::nullopt;
}

}  // namespace cairn
