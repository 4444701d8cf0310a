#include "client/cli/job_file.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cairn {
namespace {

constexpr size_t kErrorsShownMax = 5;
constexpr size_t kJobFileBytesMax = size_t{4} << 20;  // what a control message may hold

class Errors : public google::protobuf::io::ErrorCollector {
 public:
  explicit Errors(std::string where) : where_(std::move(where)) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    // Line -1: about the whole text.
    lines_.push_back(line < 0 ? absl::StrCat(where_, ": ", message)
                              : absl::StrFormat("%s:%d:%d: %s", where_, line + 1, column + 1, message));
  }

  std::string Text() const {
    std::vector<std::string> shown(lines_.begin(), lines_.begin() + std::min(lines_.size(), kErrorsShownMax));
    if (lines_.size() > shown.size()) shown.push_back(absl::StrFormat("and %d more", lines_.size() - shown.size()));
    return absl::StrJoin(shown, "\n");
  }

 private:
  const std::string where_;
  std::vector<std::string> lines_;
};

}  // namespace

absl::Status ParseText(const std::string& text, const std::string& where, google::protobuf::Message* message) {
  Errors errors(where);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  if (parser.MergeFromString(text, message)) return absl::OkStatus();
  return absl::InvalidArgumentError(errors.Text());
}

absl::StatusOr<v1::JobSpec> ParseJobText(const std::string& text, const std::string& where) {
  v1::JobSpec spec;
  CAIRN_RETURN_IF_ERROR(ParseText(text, where, &spec));
  return spec;
}

absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: is a directory; name the job file in it", path));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrFormat("%s: cannot read the job file: %s", path, std::strerror(errno)));
  std::string text(kJobFileBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kJobFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: longer than %d MiB; is this a job file?", path, kJobFileBytesMax >> 20));
  }
  return ParseJobText(text, path);
}

absl::Status MakeDataPathAbsolute(v1::JobSpec* spec) {
  const std::filesystem::path path(spec->data().path());
  if (path.empty() || path.is_absolute()) return absl::OkStatus();
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  if (error || !std::filesystem::exists(absolute, error)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.path: %s: there is no %s here; a relative path is taken from the folder of `cairn submit`. Give the "
        "absolute path, as the workers see it: --set data.path=/...",
        path.string(), absolute));
  }
  spec->mutable_data()->set_path(absolute);
  return absl::OkStatus();
}

}  // namespace cairn
