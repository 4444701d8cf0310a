#include "common/data/csv_parser.h"

#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace cairn {

CsvParser::CsvParser(absl::string_view text) : text_(text) { absl::ConsumePrefix(&text_, "\xEF\xBB\xBF"); }

// at_ is after the opening quote, and then after the closing one.
absl::Status CsvParser::Quoted(std::string* field) {
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '\n') ++next_line_;
    if (c != '"') {
      field->push_back(c);
    } else if (at_ < text_.size() && text_[at_] == '"') {
      field->push_back('"');
      ++at_;
    } else {
      return absl::OkStatus();
    }
  }
  return absl::DataLossError("a quote (\") is not closed");
}

absl::StatusOr<bool> CsvParser::Next(std::vector<std::string>* fields) {
  const auto skip_blanks = [&] {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  };
  const auto at_line_end = [&] { return at_ >= text_.size() || text_[at_] == '\n' || text_[at_] == '\r'; };
  for (skip_blanks(); at_ < text_.size() && at_line_end(); skip_blanks()) {
    if (text_[at_] == '\n') ++next_line_;
    ++at_;
  }
  if (at_ >= text_.size()) return false;
  line_ = next_line_;
  fields->clear();
  while (true) {
    skip_blanks();
    std::string& field = fields->emplace_back();
    if (at_ < text_.size() && text_[at_] == '"') {
      ++at_;
      CAIRN_RETURN_IF_ERROR(Quoted(&field));
      skip_blanks();
      if (!at_line_end() && text_[at_] != ',') return absl::DataLossError("text after a closing quote (\")");
    } else {
      const size_t begin = at_;
      while (!at_line_end() && text_[at_] != ',') {
        if (text_[at_] == '\0') return absl::DataLossError("not a text file: it holds a zero byte");
        ++at_;
      }
      field = std::string(absl::StripTrailingAsciiWhitespace(text_.substr(begin, at_ - begin)));
    }
    if (at_line_end()) return true;
    ++at_;  // the comma
  }
}

bool ParseNumber(absl::string_view text, double* value) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(static_cast<float>(*value));
}

}  // namespace cairn
