#include "tests/transcripts/transcript.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

constexpr char kOutputBegins[] = "----";

absl::StatusOr<int64_t> ToNumber(const std::string& word) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(word, &number))
    return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" is not a number"));
  return number;
}

}  // namespace

Command::Command(const std::string& line) : words_(absl::StrSplit(line, ' ', absl::SkipEmpty())) {
  if (words_.empty()) return;
  verb_ = words_.front();
  words_.erase(words_.begin());
  rest_ = std::string(absl::StripAsciiWhitespace(line.substr(line.find(verb_) + verb_.size())));
}

std::string Command::Word(size_t n, const std::string& otherwise) const {
  return n < words_.size() ? words_[n] : otherwise;
}

absl::StatusOr<int64_t> Command::Number(const std::string& name, int64_t otherwise) const {
  for (const std::string& word : words_) {
    if (absl::StartsWith(word, name + "=")) return ToNumber(word.substr(name.size() + 1));
  }
  return otherwise;
}

absl::StatusOr<int64_t> Command::NumberAt(size_t n) const {
  if (n >= words_.size()) return absl::InvalidArgumentError(absl::StrCat(verb_, ": a number is missing"));
  return ToNumber(words_[n]);
}

absl::StatusOr<std::string> Replay(const std::string& text, const RunCommand& run) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppend(&out, lines[i], "\n");
    if (lines[i].empty() || lines[i].front() == '#') continue;
    const absl::StatusOr<std::string> output = run(Command(lines[i]));
    if (!output.ok()) {
      return absl::Status(output.status().code(),
                          absl::StrCat("line ", i + 1, ", \"", lines[i], "\": ", output.status().message()));
    }
    absl::StrAppend(&out, kOutputBegins, "\n", *output);
    if (i + 1 < lines.size() && lines[i + 1] == kOutputBegins) {
      for (++i; i + 1 < lines.size() && !lines[i + 1].empty();) ++i;
    }
  }
  return out;
}

}  // namespace cairn
