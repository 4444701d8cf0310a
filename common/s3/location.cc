#include "common/s3/location.h"

#include <algorithm>
#include <climits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/s3/limits.h"

namespace cairn {
namespace {

constexpr size_t kBucketBytesMin = 3;

bool IsBucket(absl::string_view name) {
  return name.size() >= kBucketBytesMin && name.size() <= kS3BucketBytesMax && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; });
}

// What is wrong with it; empty: nothing.
std::string WrongWith(absl::string_view key) {
  if (key.size() > kS3KeyBytesMax) return absl::StrCat("has ", key.size(), " bytes, more than ", kS3KeyBytesMax);
  if (std::any_of(key.begin(), key.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }))
    return "has a control character";
  for (const absl::string_view part : absl::StrSplit(key, '/')) {
    if (part.empty()) return "has an empty part: a slash at an end, or two in sequence";
    if (part == "." || part == "..") return absl::StrCat("has a part \"", part, "\"");
    if (part.size() > NAME_MAX) return absl::StrCat("has a part of ", part.size(), " bytes, more than ", NAME_MAX);
  }
  return "";
}

}  // namespace

absl::Status CheckKey(absl::string_view bucket, absl::string_view key) {
  const std::string wrong = WrongWith(key);
  if (wrong.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(S3Address(bucket, key), ": the key ", wrong,
                                                 ", so that no file can be called like it; rename the object"));
}

absl::StatusOr<S3Location> ParseS3Address(absl::string_view address) {
  absl::string_view rest = address;
  S3Location location;
  if (!absl::ConsumePrefix(&rest, "s3://"))
    return absl::InvalidArgumentError(absl::StrCat("\"", address, "\" is not of the form s3://BUCKET[/PREFIX]"));
  while (absl::ConsumeSuffix(&rest, "/")) continue;
  const size_t slash = rest.find('/');
  location.bucket = std::string(rest.substr(0, slash));
  if (slash != rest.npos) location.key = std::string(rest.substr(slash + 1));
  if (!IsBucket(location.bucket)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", absl::CHexEscape(address), "\": \"",
                                                   absl::CHexEscape(location.bucket),
                                                   "\" is no name of a bucket: 3 to 63 letters, digits, '.', '-'"));
  }
  if (!location.key.empty()) CAIRN_RETURN_IF_ERROR(CheckKey(location.bucket, location.key));
  return location;
}

std::string S3Address(absl::string_view bucket, absl::string_view key) {
  return absl::StrCat("s3://", bucket, "/", absl::Utf8SafeCHexEscape(key));
}

}  // namespace cairn
