// Where objects lie: "s3://bucket/prefix", and which keys may become files.
//
// Pure functions; any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

struct S3Location {
  std::string bucket;
  std::string key;  // or a prefix; without slashes at its ends; may be empty
};

// "s3://bucket[/key]". Errors: INVALID_ARGUMENT: no such address; a bucket's name with other characters than letters,
// digits, '.', '-' and '_'; a key that CheckKey refuses.
absl::StatusOr<S3Location> ParseS3Address(absl::string_view address);

// Whether files and folders can be called so: no part of it is empty, "." or ".." or longer than a file's name may be,
// and nothing in it is a control character. Errors: INVALID_ARGUMENT with the bucket and the key.
absl::Status CheckKey(absl::string_view bucket, absl::string_view key);

// "s3://bucket/key" for errors and logs: what cannot be printed is escaped.
std::string S3Address(absl::string_view bucket, absl::string_view key);

}  // namespace cairn
