// What a client of a daemon's pages sends before a body, in pieces of any size: the same head however it is cut, and
// what is decided by it: the name that the server is called by, whether a POST may be taken, the path and its query.
//
//   input := piece:u8 (bytes that come at once, less 1) tls:u8 (modulo 2) Rest(bytes)
#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/base/limits.h"
#include "common/http/host_check.h"
#include "common/http/post_check.h"
#include "common/http/request_head.h"
#include "tests/fuzz/input.h"

namespace cairn {
namespace {

constexpr uint64_t kBodyBytes = 1000;

struct Read {
  absl::StatusOr<RequestHead> head;
  size_t taken = 0;  // bytes
};

Read ReadInPieces(std::string_view bytes, size_t piece) {
  size_t at = 0;
  const auto receive = [&](char* to, size_t size) {
    const size_t n = std::min({size, piece, bytes.size() - at});
    std::memcpy(to, bytes.data() + at, n);
    at += n;
    return n;
  };
  absl::StatusOr<RequestHead> head = ReadHead(receive);
  return {std::move(head), at};
}

// All that the head says, but what came with it.
std::string TextOf(const RequestHead& h) {
  std::string text = h.body_bytes ? std::to_string(*h.body_bytes) : "none";
  for (const std::string* part :
       {&h.method, &h.target, &h.host, &h.authorization, &h.origin, &h.fetch_site, &h.content_type, &h.action})
    text.append("\n").append(*part);
  return text.append(h.expects_continue ? "\n100" : "\n");
}

// host: in small letters, without a port.
bool IsOurs(absl::string_view host) {
  absl::ConsumeSuffix(&host, ".");
  const bool in_pods = absl::EndsWith(host, ".pods.example") && host.find('.') == host.size() - 13;
  return host == "cairn.example" || in_pods || absl::EndsWith(host, ".localhost") || host.front() == '[';
}

void Check(ByteSource in) {
  const size_t piece = size_t{in.Byte()} + 1;
  const bool tls = in.Below(2) == 1;
  const std::string_view bytes = in.Rest();
  const Read whole = ReadInPieces(bytes, bytes.size()), cut = ReadInPieces(bytes, piece);
  CAIRN_CHECK(whole.head.ok() == cut.head.ok(), "pieces decide");  // the error may be seen earlier, or never
  CAIRN_CHECK(whole.taken <= kHttpHeadBytesMax + 4096 && cut.taken <= kHttpHeadBytesMax + 4096, "too much is read");
  if (!whole.head.ok()) {
    CAIRN_CHECK(!whole.head.status().message().empty(), "an error without a text");
    return;
  }
  const RequestHead& head = *whole.head;
  CAIRN_CHECK(TextOf(head) == TextOf(*cut.head), "pieces decide");
  CAIRN_CHECK(whole.taken - head.unread.size() == cut.taken - cut.head->unread.size(), "the head's end is elsewhere");
  CAIRN_CHECK(bytes.substr(0, whole.taken).ends_with(head.unread), "other bytes of the body");

  static const HostCheck names({"cairn.example", "*.pods.example"});
  const std::string host = absl::AsciiStrToLower(head.host);
  if (names.Check(head.host, {}).ok() && absl::StrContains(host, "example"))
    CAIRN_CHECK(IsOurs(host.substr(0, host.rfind(':'))), "another's name");
  if (!CheckPost(head, tls, kBodyBytes)) {
    CAIRN_CHECK(head.action == "1" && head.body_bytes.value_or(kBodyBytes + 1) <= kBodyBytes, "a POST that may not be");
    CAIRN_CHECK(head.fetch_site.empty() || head.fetch_site == "same-origin", "another site's");
    CAIRN_CHECK(head.origin.empty() || absl::EndsWithIgnoreCase(head.origin, "://" + head.host), "another origin");
    CAIRN_CHECK(!tls || head.origin.empty() || absl::StartsWith(head.origin, "https://"), "another scheme");
  }
  const HttpRequest request = ParseTarget(head.target);
  CAIRN_CHECK(request.path.size() <= head.target.size(), "a path from nowhere");
  for (const unsigned char c : request.target) CAIRN_CHECK(c > ' ' && c < 0x7f, "a target that is not plain");
  for (const auto& [name, value] : request.query)
    CAIRN_CHECK(!name.empty() && name.size() + value.size() < head.target.size(), "a query from nowhere");
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
