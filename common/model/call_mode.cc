#include "common/model/call_mode.h"

#include <array>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cairn {

absl::StatusOr<AttentionInputs> ReadAttentionInputs(const v1::Layer& layer) {
  constexpr size_t kArguments = std::size(kAttentionArguments);
  const auto bad = [](const auto&... what) { return absl::InvalidArgumentError(absl::StrCat("inputs: ", what...)); };
  AttentionInputs result;
  std::array<std::string, kArguments> given;
  size_t places = 0;
  for (const std::string& input : layer.inputs()) {
    absl::string_view name = input;
    size_t at = 0;
    while (at < kArguments && !absl::ConsumePrefix(&name, absl::StrCat(kAttentionArguments[at], "="))) ++at;
    if (at < kArguments) {
      ++result.keywords;
    } else {
      if (result.keywords > 0) return bad("\"", input, "\" follows one that is given by name; name it too");
      at = places++;
    }
    if (at >= kArguments) return bad("more than a query, a value and a key");
    if (!given[at].empty()) return bad(kAttentionArguments[at], " is given twice; give it once");
    given[at] = std::string(name);
  }
  for (size_t at = 0; at < kArguments; ++at) {
    if (!given[at].empty()) {
      result.layers.push_back(std::move(given[at]));
    } else if (at < 2) {
      return bad("no ", kAttentionArguments[at], "; name a layer for it");
    }
  }
  return result;
}

}  // namespace cairn
