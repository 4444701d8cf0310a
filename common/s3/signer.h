// AWS Signature Version 4 for S3: which request is sent, and the header that proves who sends it ("Authenticating
// Requests: Using the Authorization Header", Amazon S3 API Reference).
//
// It is computed here, not by libcurl: in 7.88 that signs queries as they are given, neither sorted nor encoded as the
// signature wants it, and later versions changed the rules for paths several times. What is signed here is, byte for
// byte, what is sent.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/s3/limits.h"
#include "common/s3/settings.h"
#include "common/s3/transport.h"

namespace cairn {

// Of a request without a body.
inline constexpr char kEmptySha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

struct S3Call {
  std::string method;                                           // GET, HEAD, PUT, POST or DELETE
  std::string bucket, key;                                      // key: "" for the bucket itself
  std::vector<std::pair<std::string, std::string>> parameters;  // of the query; in any order, not encoded
  std::vector<std::pair<std::string, std::string>> headers;     // names in lower case; all are signed
  absl::string_view body;                                       // outlives the request that is made of it
  absl::Duration silent_max = kS3SilentMax;                     // of the server
};

// The request with its URL, its headers and its signature, valid for 15 minutes from `now`.
S3Request SignedRequest(const S3Call& call, const S3Settings& settings, absl::Time now);

// The parts of SignedRequest. Headers: sorted; host, x-amz-date and x-amz-content-sha256 among them; path and query as
// they are sent.
struct CanonicalRequest {
  std::string method, path, query;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body_sha256 = kEmptySha256;
};
// The value of the header Authorization.
std::string AuthorizationOf(const CanonicalRequest& request, const S3Settings& settings, absl::Time now);
// Encoded, sorted by name and then by value.
std::string CanonicalQuery(const std::vector<std::pair<std::string, std::string>>& parameters);

// What stands in URLs: letters, digits and "-._~" as they are, other bytes as %XX; '/' too unless `path`.
std::string UriEncode(absl::string_view text, bool path);

// SHA-256 and MD5 in lower-case hexadecimal digits.
std::string Sha256Hex(absl::string_view text);
std::string Md5Hex(absl::string_view text);

}  // namespace cairn
