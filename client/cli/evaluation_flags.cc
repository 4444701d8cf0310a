#include "client/cli/evaluation_flags.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "common/base/roots.h"

namespace cairn {
namespace {

absl::StatusOr<std::string> AbsolutePath(const std::string& text, const char* flag) {
  const std::filesystem::path path(text);
  if (path.empty() || path.is_absolute() || MayNameRoot(text)) return text;
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  if (!error && std::filesystem::exists(absolute, error)) return absolute;
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s %s: there is no %s here; give the absolute path, as the workers see it", flag, text, absolute));
}

}  // namespace

absl::StatusOr<v1::Split> ParseSplit(const std::string& text) {
  v1::Split split = v1::SPLIT_UNSPECIFIED;
  if (text.empty()) return split;
  if (v1::Split_Parse(absl::AsciiStrToUpper(text), &split) && split != v1::SPLIT_UNSPECIFIED) return split;
  return absl::InvalidArgumentError(absl::StrFormat("--split %s: is not one of train, validation, test", text));
}

absl::StatusOr<v1::EvaluateRequest> EvaluateRequestOf(const v1::JobStatus& job, v1::Split split,
                                                      const EvaluateOptions& options) {
  v1::EvaluateRequest request;
  request.mutable_job()->set_job_id(job.job_id());
  request.set_split(split);
  CAIRN_ASSIGN_OR_RETURN(const std::string weights, AbsolutePath(options.weights, "--weights"));
  request.set_weights(weights);
  if (options.data.empty()) return request;
  CAIRN_ASSIGN_OR_RETURN(const std::string path, AbsolutePath(options.data, "--data"));
  v1::Data& data = *request.mutable_data();
  data = job.spec().data();
  data.set_path(path);
  data.set_format(v1::Data::AUTO);
  data.clear_validation_split();
  data.clear_test_split();
  // A random_crop determines how larger pictures become the model's input, in evaluation too
  // (common/data/middle_crop.h). The other steps have no effect.
  auto& steps = *data.mutable_augmentation();
  steps.erase(
      std::remove_if(steps.begin(), steps.end(), [](const v1::Augmentation& a) { return !a.has_random_crop(); }),
      steps.end());
  return request;
}

v1::Split TellSplit(const EvaluateOptions& options, v1::Split answered) {
  const v1::Split asked = ParseSplit(options.split).value_or(v1::SPLIT_UNSPECIFIED);
  if (asked != v1::SPLIT_UNSPECIFIED) return asked;
  if (answered == v1::SPLIT_UNSPECIFIED || answered == v1::TEST) return v1::TEST;  // unspecified: an earlier release
  const std::string name = absl::AsciiStrToLower(v1::Split_Name(answered));
  absl::FPrintF(stderr, "cairn: %s has only a %s split: its examples were taken, as with --split %s\n", options.data,
                name, name);
  return answered;
}

}  // namespace cairn
