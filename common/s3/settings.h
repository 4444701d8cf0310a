// How S3 is reached and as whom: what AWS' own programs take from the environment and from files in ~/.aws.
//
//   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN     before the files
//   AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE, AWS_PROFILE       [~/.aws/credentials, ~/.aws/config, default]
//   AWS_REGION, AWS_DEFAULT_REGION, or `region` of the profile
//   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or `endpoint_url` of the profile
//   AWS_CA_BUNDLE                                                   certificates of authorities [the system's]
//
// Free functions; any thread. Invariant: no error has a secret or a token in it.
#pragma once

#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

struct S3Settings {
  std::string access_key, secret_key;
  std::string session_token;  // empty: none
  std::string source;         // where the keys stand, for errors: "AWS_ACCESS_KEY_ID", "profile default of FILE"
  std::string region;
  std::string endpoint;  // "http[s]://host[:port]"; empty: AWS
  std::string ca_file;   // empty: the system's
};

// What a variable is set to; "": nothing.
using Environment = std::function<std::string(const char* name)>;

// Errors: FAILED_PRECONDITION: no keys, or no region; INVALID_ARGUMENT: half of the keys, a profile that is not there,
// or that takes its keys from something else; a file that cannot be read; an endpoint that is none.
absl::StatusOr<S3Settings> LoadS3Settings(const Environment& environment);

// The host, and the path of the bucket before the key: in the host's name on AWS, and in the path where an endpoint is
// given or the name has a dot, which no certificate covers.
struct S3Host {
  std::string scheme, host;  // "https", "host[:port]"
  std::string path;          // "/bucket" or ""
};
S3Host HostOf(const S3Settings& settings, absl::string_view bucket);

}  // namespace cairn
