#include "common/s3/signer.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace cairn {
namespace {

constexpr char kAlgorithm[] = "AWS4-HMAC-SHA256";

std::string Hmac(absl::string_view key, absl::string_view text) {
  std::string mac(EVP_MAX_MD_SIZE, '\0');
  unsigned bytes = 0;
  CAIRN_CHECK(
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), reinterpret_cast<unsigned char*>(mac.data()), &bytes) != nullptr,
      "HMAC-SHA256");
  mac.resize(bytes);
  return mac;
}

std::string TimeText(absl::Time time) { return absl::FormatTime("%Y%m%dT%H%M%SZ", time, absl::UTCTimeZone()); }

}  // namespace

std::string UriEncode(absl::string_view text, bool path) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '.' || c == '_' || c == '~' || (path && c == '/')) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kDigits[byte >> 4]);
      out.push_back(kDigits[byte & 15]);
    }
  }
  return out;
}

std::string Sha256Hex(absl::string_view text) {
  std::string hash(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return absl::BytesToHexString(hash);
}

std::string Md5Hex(absl::string_view text) {
  std::string hash(EVP_MAX_MD_SIZE, '\0');
  unsigned bytes = 0;
  CAIRN_CHECK(EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(hash.data()), &bytes, EVP_md5(),
                         nullptr) == 1,
              "MD5");
  return absl::BytesToHexString(hash.substr(0, bytes));
}

std::string CanonicalQuery(const std::vector<std::pair<std::string, std::string>>& parameters) {
  std::vector<std::pair<std::string, std::string>> encoded;
  for (const auto& [name, value] : parameters)
    encoded.emplace_back(UriEncode(name, /*path=*/false), UriEncode(value, /*path=*/false));
  std::sort(encoded.begin(), encoded.end());  // by name, then by value: not by "name=value"
  return absl::StrJoin(encoded, "&", absl::PairFormatter("="));
}

std::string AuthorizationOf(const CanonicalRequest& request, const S3Settings& settings, absl::Time now) {
  const std::string time = TimeText(now), day = time.substr(0, 8);
  std::string names, lines;
  for (const auto& [name, value] : request.headers) {
    absl::StrAppend(&names, names.empty() ? "" : ";", name);
    absl::StrAppend(&lines, name, ":", value, "\n");
  }
  const std::string canonical = absl::StrCat(request.method, "\n", request.path, "\n", request.query, "\n", lines, "\n",
                                             names, "\n", request.body_sha256);
  const std::string scope = absl::StrCat(day, "/", settings.region, "/s3/aws4_request");
  const std::string to_sign = absl::StrCat(kAlgorithm, "\n", time, "\n", scope, "\n", Sha256Hex(canonical));
  std::string key = Hmac("AWS4" + settings.secret_key, day);
  for (const std::string& part : {settings.region, std::string("s3"), std::string("aws4_request")})
    key = Hmac(key, part);
  return absl::StrCat(kAlgorithm, " Credential=", settings.access_key, "/", scope, ",SignedHeaders=", names,
                      ",Signature=", absl::BytesToHexString(Hmac(key, to_sign)));
}

S3Request SignedRequest(const S3Call& call, const S3Settings& settings, absl::Time now) {
  const S3Host host = HostOf(settings, call.bucket);
  CanonicalRequest canonical{call.method, "", CanonicalQuery(call.parameters), call.headers};
  if (!call.body.empty()) canonical.body_sha256 = Sha256Hex(call.body);
  canonical.path = UriEncode(host.path, /*path=*/true) + "/" + UriEncode(call.key, /*path=*/true);
  if (call.key.empty() && !host.path.empty()) canonical.path = UriEncode(host.path, /*path=*/true);  // the bucket
  canonical.headers.emplace_back("host", host.host);
  canonical.headers.emplace_back("x-amz-content-sha256", canonical.body_sha256);
  canonical.headers.emplace_back("x-amz-date", TimeText(now));
  if (!settings.session_token.empty()) canonical.headers.emplace_back("x-amz-security-token", settings.session_token);
  std::sort(canonical.headers.begin(), canonical.headers.end());

  S3Request request;
  request.method = call.method;
  request.body = call.body;
  request.silent_max = call.silent_max;
  request.url =
      absl::StrCat(host.scheme, "://", host.host, canonical.path, canonical.query.empty() ? "" : "?", canonical.query);
  request.headers = canonical.headers;
  request.headers.emplace_back("authorization", AuthorizationOf(canonical, settings, now));
  return request;
}

}  // namespace cairn
