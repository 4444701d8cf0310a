#include "common/model/name_pattern.h"

#include <re2/re2.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "common/base/bad.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

bool IsPlain(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '/' || c == '-' || c == ' ' || c >= 0x80;
  });
}

}  // namespace

absl::StatusOr<NamePattern> NamePattern::Make(const std::string& text) {
  if (text.empty()) return Bad("an empty text is part of every name; name the last layer, say");
  if (text.size() > kNamePatternBytesMax) {
    return Bad("an expression of ", text.size(), " bytes; at most ", kNamePatternBytesMax, " are read: give several");
  }
  NamePattern pattern(text);
  if (IsPlain(text)) return pattern;
  const auto bad = [&](absl::string_view why) {
    return Bad("\"", text, "\" is no regular expression that Cairn reads: ", why);
  };
  if (text.find("{,") != std::string::npos) return bad("write {0,n} for {,n}");
  if (text.find("[:") != std::string::npos) return bad("write the letters for [:alpha:] and the like");
  re2::RE2::Options options;
  options.set_log_errors(false);
  options.set_never_capture(true);
  options.set_max_mem(kNamePatternMemoryMax);
  auto expression = std::make_shared<const re2::RE2>(text, options);
  if (!expression->ok()) {
    return bad(expression->error() + "; look-around (?=...) and back-references are not read, and sizes are bounded");
  }
  pattern.expression_ = std::move(expression);
  return pattern;
}

bool NamePattern::IsIn(absl::string_view name) const {
  if (expression_ == nullptr) return name.find(text_) != absl::string_view::npos;
  return re2::RE2::PartialMatch(re2::StringPiece(name.data(), name.size()), *expression_);
}

int64_t NamePattern::size() const {
  return expression_ == nullptr ? static_cast<int64_t>(text_.size()) : expression_->ProgramSize();
}

}  // namespace cairn
