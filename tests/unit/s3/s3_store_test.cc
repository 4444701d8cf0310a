// Goal: requests that may succeed later are repeated, with growing pauses, for a bounded time; others are not. A reply
// that is short, of another object or of another range is found. Errors name bucket, key, status, code and a cure.
#include "common/s3/s3_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/s3/limits.h"
#include "tests/unit/s3/fake_s3.h"

namespace cairn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class S3StoreTest : public testing::Test {
 protected:
  S3StoreTest() {
    settings_.access_key = "ID";
    settings_.secret_key = "the-secret";
    settings_.session_token = "the-token";
    settings_.source = "AWS_ACCESS_KEY_ID";
    settings_.region = "eu-west-1";
    settings_.endpoint = "http://fake";
    s3_.Put("bucket", "data/one", "0123456789");
  }

  S3Store Store() {
    return S3Store(settings_, &s3_,
                   {&clock_,
                    [this](absl::Duration pause) {
                      clock_.Advance(pause);
                      pauses_.push_back(pause);
                      return !stopping_;
                    },
                    7});
  }
  S3Object One() { return **Store().Head("bucket", "data/one"); }
  void Expect(const absl::Status& status, absl::StatusCode code, std::initializer_list<const char*> says) {
    EXPECT_EQ(status.code(), code) << status;
    for (const char* text : says) EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_THAT(std::string(status.message()), AllOf(Not(HasSubstr("the-secret")), Not(HasSubstr("the-token"))));
  }
  void FailTimes(int times, absl::StatusOr<S3Reply> reply) {
    s3_.fault = [times, reply](const S3Request&) mutable -> std::optional<absl::StatusOr<S3Reply>> {
      if (times-- <= 0) return std::nullopt;
      return reply;
    };
  }

  S3Settings settings_;
  FakeS3 s3_;
  ManualClock clock_;
  std::vector<absl::Duration> pauses_;
  bool stopping_ = false;
};

TEST_F(S3StoreTest, ReadsObjectsAndParts) {
  const S3Object one = One();
  EXPECT_EQ(one.bytes, 10u);
  EXPECT_EQ(*Store().Get("bucket", one, 0, 10), "0123456789");
  EXPECT_EQ(*Store().Get("bucket", one, 3, 4), "3456");
  EXPECT_FALSE(Store().Head("bucket", "data/two")->has_value());
  const auto page = Store().List("bucket", "data/", "");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->objects[0].key, "data/one");
  EXPECT_EQ(page->objects[0].etag, one.etag);
}

TEST_F(S3StoreTest, AsksAgainWhatMaySucceedLater) {
  const S3Object one = One();
  const absl::StatusOr<S3Reply> later[] = {
      ErrorReply(500, "InternalError"),  ErrorReply(503, "SlowDown"), S3Reply{502, {}, "<html>"},
      ErrorReply(400, "RequestTimeout"), S3Reply{429, {}, ""},        absl::UnavailableError("cut")};
  for (const absl::StatusOr<S3Reply>& reply : later) {
    pauses_.clear();
    FailTimes(4, reply);
    EXPECT_EQ(*Store().Get("bucket", one, 0, 10), "0123456789");
    ASSERT_EQ(pauses_.size(), 4u);
    EXPECT_LT(pauses_[0], pauses_[3]);
  }
}

TEST_F(S3StoreTest, GivesUpAfterATime) {
  const S3Object one = One();
  FailTimes(1'000'000, ErrorReply(503, "SlowDown"));
  const absl::Time begin = clock_.Now();
  Expect(Store().Get("bucket", one, 0, 10).status(), absl::StatusCode::kUnavailable,
         {"s3://bucket/data/one: HTTP 503 SlowDown: of a test", "try again later", "attempts in 1m"});
  EXPECT_LE(clock_.Now() - begin, kS3RetryMax);
  EXPECT_GT(clock_.Now() - begin, kS3RetryMax / 2);
  stopping_ = true;
  Expect(Store().Get("bucket", one, 0, 10).status(), absl::StatusCode::kCancelled, {"stopping"});
}

TEST_F(S3StoreTest, FindsShortAndWrongReplies) {
  const S3Object one = One();
  const auto get = [&](uint64_t begin, uint64_t bytes) { return Store().Get("bucket", one, begin, bytes).status(); };
  s3_.alter = [](const S3Request&, S3Reply* reply) { reply->body.pop_back(); };
  Expect(get(0, 10), absl::StatusCode::kUnavailable, {"the server gave 9 of 10 bytes from 0 on", "attempts"});
  s3_.alter = [](const S3Request&, S3Reply* reply) { reply->body += "!"; };
  Expect(get(0, 10), absl::StatusCode::kUnavailable, {"the server gave 11 of 10 bytes"});
  s3_.alter = [](const S3Request&, S3Reply* reply) { reply->headers["etag"] = "\"other\""; };
  Expect(get(2, 3), absl::StatusCode::kFailedPrecondition,
         {"s3://bucket/data/one: was changed after it was listed", "is other now"});
  s3_.alter = [](const S3Request&, S3Reply* reply) { reply->headers.erase("etag"); };
  Expect(get(0, 10), absl::StatusCode::kFailedPrecondition, {"is missing now"});
  s3_.alter = [](const S3Request&, S3Reply* reply) { reply->headers["content-range"] = "bytes 3-5/10"; };
  Expect(get(2, 3), absl::StatusCode::kDataLoss, {"gave \"bytes 3-5/10\" in place of \"bytes 2-4/10\""});
  s3_.alter = [](const S3Request&, S3Reply* reply) { reply->headers.erase("content-range"); };
  Expect(get(2, 3), absl::StatusCode::kDataLoss, {"does not serve ranges rightly"});
  s3_.alter = nullptr;
  s3_.Put("bucket", "data/one", "changed!!!");
  Expect(get(0, 10), absl::StatusCode::kFailedPrecondition, {"HTTP 412 PreconditionFailed", "was changed after"});
}

TEST_F(S3StoreTest, SaysWhatToDo) {
  const S3Object one = One();
  S3Reply moved = ErrorReply(301, "PermanentRedirect"), skewed = ErrorReply(403, "RequestTimeTooSkewed");
  moved.headers["x-amz-bucket-region"] = "eu-west-3";
  skewed.headers["date"] = "Mon, 05 Jan 2026 09:30:00 GMT";
  const struct {
    S3Reply reply;
    absl::StatusCode code;
    std::vector<const char*> says;
  } cases[] = {
      {ErrorReply(403, "AccessDenied"),
       absl::StatusCode::kPermissionDenied,
       {"HTTP 403", "s3:GetObject", "may not read"}},
      {ErrorReply(403, "InvalidAccessKeyId"),
       absl::StatusCode::kPermissionDenied,
       {"check the keys of AWS_ACCESS_KEY_ID"}},
      {ErrorReply(403, "SignatureDoesNotMatch"), absl::StatusCode::kPermissionDenied, {"they are of http://fake"}},
      {ErrorReply(400, "ExpiredToken"), absl::StatusCode::kPermissionDenied, {"has ended"}},
      {skewed, absl::StatusCode::kPermissionDenied, {"clock differs", "05 Jan 2026 09:30:00", "NTP"}},
      {ErrorReply(404, "NoSuchBucket"), absl::StatusCode::kNotFound, {"--root"}},
      {moved, absl::StatusCode::kFailedPrecondition, {"AWS_REGION", ", eu-west-3", "it is eu-west-1 now"}},
      {ErrorReply(400, "Odd"), absl::StatusCode::kFailedPrecondition, {"HTTP 400 Odd", "does http://fake serve S3?"}},
      {S3Reply{403, {}, ""}, absl::StatusCode::kPermissionDenied, {"HTTP 403;"}},
      {S3Reply{404, {}, "<html>"}, absl::StatusCode::kNotFound, {"HTTP 404; check the path"}},
  };
  for (const auto& c : cases) {
    FailTimes(1, c.reply);
    const absl::Status status = Store().Get("bucket", one, 0, 10).status();
    Expect(status, c.code, {"s3://bucket/data/one: "});
    for (const char* text : c.says) EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  s3_.fault = nullptr;
  Expect(Store().List("other", "", "").status(), absl::StatusCode::kNotFound, {"s3://other/", "NoSuchBucket"});
  s3_.alter = [](const S3Request&, S3Reply* reply) { reply->body = "<html></html>"; };
  Expect(Store().List("bucket", "data/", "").status(), absl::StatusCode::kDataLoss,
         {"s3://bucket/data/", "no listing"});
  s3_.alter = [](const S3Request&, S3Reply* reply) {
    reply->body =
        "<ListBucketResult><Contents><Key>etc</Key><ETag>e</ETag><Size>1</Size></Contents></ListBucketResult>";
  };
  Expect(Store().List("bucket", "data/", "").status(), absl::StatusCode::kDataLoss,
         {"s3://bucket/etc: was listed below"});
}

}  // namespace
}  // namespace cairn
