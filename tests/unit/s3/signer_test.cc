// Goal: signatures are those of the examples in the Amazon S3 API Reference ("Authenticating Requests: Using the
// Authorization Header"); what is signed is what is sent, for keys and parameters with any bytes.
#include "common/s3/signer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using ::testing::HasSubstr;

constexpr char kNoBody[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

S3Settings Example() {
  S3Settings settings;
  settings.access_key = "AKIAIOSFODNN7EXAMPLE";
  settings.secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
  settings.region = "us-east-1";
  return settings;
}

absl::Time ExampleTime() { return absl::FromCivil(absl::CivilSecond(2013, 5, 24), absl::UTCTimeZone()); }

std::string HeaderOf(const S3Request& request, const std::string& name) {
  std::string found;
  for (const auto& [key, value] : request.headers) {
    if (key == name) found = value;
  }
  return found;
}

CanonicalRequest OfExample(const std::string& path, const std::string& query) {
  return {"GET",
          path,
          query,
          {{"host", "examplebucket.s3.amazonaws.com"},
           {"x-amz-content-sha256", kNoBody},
           {"x-amz-date", "20130524T000000Z"}}};
}

TEST(Signer, GivesTheSignaturesOfTheReference) {
  CanonicalRequest range = OfExample("/test.txt", "");
  range.headers.insert(range.headers.begin() + 1, {"range", "bytes=0-9"});
  EXPECT_EQ(AuthorizationOf(range, Example(), ExampleTime()),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  EXPECT_THAT(AuthorizationOf(OfExample("/", "lifecycle="), Example(), ExampleTime()),
              HasSubstr("Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
  const std::string query = CanonicalQuery({{"prefix", "J"}, {"max-keys", "2"}});
  EXPECT_EQ(query, "max-keys=2&prefix=J");
  EXPECT_THAT(AuthorizationOf(OfExample("/", query), Example(), ExampleTime()),
              HasSubstr("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(Signer, EncodesWhatIsSent) {
  EXPECT_EQ(UriEncode("a/b c+d=e&f~-._\xc3\xa9", /*path=*/true), "a/b%20c%2Bd%3De%26f~-._%C3%A9");
  EXPECT_EQ(UriEncode("a/b", /*path=*/false), "a%2Fb");
  EXPECT_EQ(CanonicalQuery({{"b", "2"}, {"a-b", "1"}, {"a", "2"}, {"a", "1"}}), "a=1&a=2&a-b=1&b=2")
      << "by name: '-' is before '=', which is no part of a name";
}

TEST(Signer, KnowsWhereABucketIs) {
  S3Settings settings = Example();
  const auto url = [&](const std::string& bucket, const std::string& key) {
    return SignedRequest({"GET", bucket, key, {{"prefix", "a b"}}, {}}, settings, ExampleTime()).url;
  };
  EXPECT_EQ(url("photos", "a/b"), "https://photos.s3.us-east-1.amazonaws.com/a/b?prefix=a%20b");
  EXPECT_EQ(url("photos", ""), "https://photos.s3.us-east-1.amazonaws.com/?prefix=a%20b");
  EXPECT_EQ(url("my.photos", "a"), "https://s3.us-east-1.amazonaws.com/my.photos/a?prefix=a%20b")
      << "no certificate has the name my.photos.s3...";
  settings.region = "cn-north-1";
  EXPECT_EQ(url("photos", "a"), "https://photos.s3.cn-north-1.amazonaws.com.cn/a?prefix=a%20b");
  settings.endpoint = "http://127.0.0.1:9000";
  EXPECT_EQ(url("photos", "a"), "http://127.0.0.1:9000/photos/a?prefix=a%20b");
  EXPECT_EQ(url("photos", ""), "http://127.0.0.1:9000/photos?prefix=a%20b");
}

TEST(Signer, SignsEveryHeaderAndTheSessionToken) {
  S3Settings settings = Example();
  settings.session_token = "token";
  const S3Request request =
      SignedRequest({"GET", "b", "k", {}, {{"range", "bytes=0-9"}, {"if-match", "\"e\""}}}, settings, ExampleTime());
  EXPECT_EQ(HeaderOf(request, "host"), "b.s3.us-east-1.amazonaws.com");
  EXPECT_EQ(HeaderOf(request, "x-amz-security-token"), "token");
  EXPECT_THAT(HeaderOf(request, "authorization"),
              HasSubstr("SignedHeaders=host;if-match;range;x-amz-content-sha256;x-amz-date;x-amz-security-token,"));
  for (const auto& [name, value] : request.headers) {
    EXPECT_EQ(value.find(settings.secret_key), std::string::npos) << name << " has the secret";
  }
}

}  // namespace
}  // namespace cairn
