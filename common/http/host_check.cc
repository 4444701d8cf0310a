#include "common/http/host_check.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

constexpr size_t kShownBytes = 100;

// "Name.:80" -> "Name"; "[::1]:80" -> "[::1]".
absl::string_view NameOf(absl::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon != host.npos && (bracket == host.npos || colon > bracket)) host = host.substr(0, colon);
  absl::ConsumeSuffix(&host, ".");
  return host;
}

bool IsAddress(absl::string_view name) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, std::string(name).c_str(), &v4) == 1) return true;
  if (!absl::ConsumePrefix(&name, "[") || !absl::ConsumeSuffix(&name, "]")) return false;
  name = name.substr(0, name.find('%'));  // a zone
  return inet_pton(AF_INET6, std::string(name).c_str(), &v6) == 1;
}

bool Matches(absl::string_view name, absl::string_view known) {
  if (!absl::ConsumePrefix(&known, "*")) return absl::EqualsIgnoreCase(name, known);
  const size_t dot = name.find('.');  // of "*.example.org" the first label is any
  return dot != name.npos && dot > 0 && absl::EqualsIgnoreCase(name.substr(dot), known);
}

}  // namespace

HostCheck::HostCheck(std::vector<std::string> names) : names_(std::move(names)) {
  for (std::string& name : names_) name = std::string(NameOf(name));
  std::erase_if(names_, [](const std::string& name) { return name.empty() || IsAddress(name); });
}

absl::Status HostCheck::Check(absl::string_view host, absl::Span<const std::string> more) const {
  const absl::string_view name = NameOf(host);
  if (host.empty() || IsAddress(name) || absl::EqualsIgnoreCase(name, "localhost") ||
      absl::EndsWithIgnoreCase(name, ".localhost"))
    return absl::OkStatus();
  const auto is = [&](const std::string& known) { return Matches(name, known); };
  if (std::any_of(names_.begin(), names_.end(), is) || std::any_of(more.begin(), more.end(), is))
    return absl::OkStatus();
  const std::string shown = absl::CHexEscape(name.substr(0, kShownBytes));
  return absl::NotFoundError(absl::StrCat(
      "this server is not called \"", shown, "\". It answers to its addresses, localhost", names_.empty() ? "" : ", ",
      absl::StrJoin(names_, ", "), "; if that is its name too, start the daemon with ", "--http-name ", shown));
}

}  // namespace cairn
