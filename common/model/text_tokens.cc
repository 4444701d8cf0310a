#include "common/model/text_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"

namespace cairn {
namespace {

using Text = v1::TextVectorization;

// The bytes of the character that begins with `first`; 1 where none does.
size_t CharacterBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
}

}  // namespace

std::string StandardizeText(absl::string_view text, Text::Standardize how) {
  const bool lower = how == Text::LOWER || how == Text::LOWER_AND_STRIP_PUNCTUATION;
  const bool strip = how == Text::STRIP_PUNCTUATION || how == Text::LOWER_AND_STRIP_PUNCTUATION;
  std::string standard;
  standard.reserve(text.size());
  for (const char c : text) {
    if (strip && absl::ascii_ispunct(static_cast<unsigned char>(c))) continue;
    standard.push_back(lower ? absl::ascii_tolower(static_cast<unsigned char>(c)) : c);
  }
  return standard;
}

std::vector<std::string> SplitText(absl::string_view text, Text::SplitBy how) {
  if (how == Text::NO_SPLIT) return {std::string(text)};
  std::vector<std::string> tokens;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    if (how == Text::CHARACTER) {
      end = std::min(text.size(), at + CharacterBytes(text[at]));
    } else {
      while (end < text.size() && !absl::ascii_isspace(static_cast<unsigned char>(text[end]))) ++end;
    }
    if (end > at) tokens.emplace_back(text.substr(at, end - at));
    at = end == at ? at + 1 : end;
  }
  return tokens;
}

std::vector<std::string> JoinTokens(std::vector<std::string> tokens, absl::Span<const int32_t> sizes) {
  if (sizes.empty()) return tokens;
  std::vector<std::string> joined;
  for (const int32_t size : sizes) {
    const auto length = static_cast<size_t>(size);
    for (size_t i = 0; i + length <= tokens.size(); ++i) {
      joined.push_back(absl::StrJoin(absl::MakeConstSpan(tokens).subspan(i, length), " "));
    }
  }
  return joined;
}

std::vector<std::string> TokensOf(const Text& layer, absl::Span<const absl::string_view> texts) {
  std::vector<std::string> tokens;
  for (const absl::string_view text : texts) {
    for (std::string& token : SplitText(StandardizeText(text, layer.standardize()), layer.split())) {
      tokens.push_back(std::move(token));
    }
  }
  return JoinTokens(std::move(tokens), layer.ngrams());
}

}  // namespace cairn
