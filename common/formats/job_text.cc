#include "common/formats/job_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/text.h"
#include "common/formats/limits.h"
#include "common/formats/text_hints.h"

namespace cairn {
namespace {

class Errors : public google::protobuf::io::ErrorCollector {
 public:
  Errors(std::string where, const google::protobuf::Descriptor* type) : where_(std::move(where)), type_(type) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    // Line -1: the error is about the whole text.
    const std::string hint = WithHint(message, type_);
    lines_.push_back(line < 0 ? absl::StrCat(where_, ": ", hint)
                              : absl::StrFormat("%s:%d:%d: %s", where_, line + 1, column + 1, hint));
  }

  std::string Text() const {
    std::vector<std::string> shown(lines_.begin(), lines_.begin() + std::min(lines_.size(), kTextErrorsShownMax));
    if (lines_.size() > shown.size()) shown.push_back(absl::StrFormat("and %d more", lines_.size() - shown.size()));
    return absl::StrJoin(shown, "\n");
  }

 private:
  const std::string where_;
  const google::protobuf::Descriptor* const type_;
  std::vector<std::string> lines_;
};

// An escape ("\xff") can write bytes into a text that no peer could send; a stored job with them could not be read
// again.
absl::Status CheckTexts(const v1::JobSpec& spec, const std::string& where) {
  v1::JobSpec read;
  if (read.ParseFromString(spec.SerializeAsString())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": a text in it is not UTF-8: an escape such as \\xff wrote a byte that is no character; write UTF-8"));
}

}  // namespace

absl::Status TakeUtf8(const std::string& where, std::string* text) {
  if (absl::StartsWith(*text, "\xff\xfe") || absl::StartsWith(*text, "\xfe\xff")) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: is UTF-16; save it as UTF-8", where));
  }
  if (absl::StartsWith(*text, "\xef\xbb\xbf")) text->erase(0, 3);
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++number;
    if (IsUtf8({line.data(), line.size()})) continue;
    return absl::InvalidArgumentError(absl::StrFormat("%s:%d: is not UTF-8; save the file as UTF-8", where, number));
  }
  return absl::OkStatus();
}

absl::Status ParseText(const std::string& text, const std::string& where, google::protobuf::Message* message) {
  Errors errors(where, message->GetDescriptor());
  google::protobuf::TextFormat::Parser parser;
  parser.SetRecursionLimit(kTextDepthMax);
  parser.RecordErrorsTo(&errors);
  if (parser.MergeFromString(text, message)) return absl::OkStatus();
  return absl::InvalidArgumentError(errors.Text());
}

absl::StatusOr<v1::JobSpec> ParseJobText(const std::string& text, const std::string& where) {
  v1::JobSpec spec;
  const absl::string_view begin = absl::StripLeadingAsciiWhitespace(text);
  if (absl::StartsWith(begin, "{")) {  // no text protobuf begins so
    const auto status = google::protobuf::util::JsonStringToMessage(text, &spec);
    if (!status.ok()) {
      const std::string what(absl::StripTrailingAsciiWhitespace(std::string(status.message())));
      const bool no_field = absl::StrContains(what, "Cannot find field");
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: as JSON: %s%s", where, what, no_field ? " `cairn explain` lists the fields" : ""));
    }
  } else {
    CAIRN_RETURN_IF_ERROR(ParseText(text, where, &spec));
  }
  CAIRN_RETURN_IF_ERROR(CheckTexts(spec, where));
  return spec;
}

}  // namespace cairn
