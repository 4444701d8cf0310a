// Goal: an object is written whole or not at all, whatever is lost or fails on the way; a call whose reply was lost has
// one effect; nothing is left of an upload that failed. What a server cannot do is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/s3/file_upload.h"
#include "common/s3/limits.h"
#include "common/s3/s3_store.h"
#include "tests/unit/s3/fake_s3.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
constexpr auto kNew = ObjectStore::PutRule::kNew;
constexpr auto kReplace = ObjectStore::PutRule::kReplace;

// Goes on only while somebody waits. Thread-safe.
class WaitingClock : public Clock {
 public:
  absl::Time Now() override { return absl::FromUnixSeconds(1'000'000'000) + absl::Nanoseconds(waited_.load()); }
  void Wait(absl::Duration pause) { waited_ += absl::ToInt64Nanoseconds(pause); }

 private:
  std::atomic<int64_t> waited_{0};
};

class S3WriteTest : public testing::Test {
 protected:
  S3WriteTest() {
    s3_.Put("bucket", "run/old", "as it was");
    auto session = std::make_shared<S3Session>();
    session->settings.access_key = "ID";
    session->settings.secret_key = "the-secret";
    session->settings.source = "AWS_ACCESS_KEY_ID";
    session->settings.region = "eu-west-1";
    session->settings.endpoint = "http://fake";
    const auto pause = [this](absl::Duration wanted) {
      clock_.Wait(wanted);
      ++pauses_;
      return true;
    };
    session->store = std::make_unique<S3Store>(session->settings, &s3_, S3Store::Time{&clock_, pause, 7});
    session_ = std::move(session);
  }
  ObjectStore& store() { return *session_->store; }
  // The next replies to requests of this method with this text in the URL.
  void Fault(const std::string& method, const std::string& text, absl::StatusOr<S3Reply> reply, int times = 1) {
    s3_.fault = [=, left = std::make_shared<std::atomic<int>>(times)](
                    const S3Request& request) -> std::optional<absl::StatusOr<S3Reply>> {
      if (request.method != method || !absl::StrContains(request.url, text) || (*left)-- <= 0) return std::nullopt;
      return reply;
    };
  }
  // The server does what is asked, and the first reply is lost.
  void LoseReply(const std::string& method, const std::string& text) {
    s3_.alter = [=, lost = false](const S3Request& request, S3Reply* reply) mutable {
      if (lost || request.method != method || !absl::StrContains(request.url, text)) return;
      lost = true;
      *reply = S3Reply{503, {}, "<html>"};
    };
  }
  absl::StatusOr<std::string> Upload(const std::string& bytes) {
    CAIRN_ASSIGN_OR_RETURN(const auto upload, S3FileUpload::Begin(session_, {"bucket", "run/new"}, bytes.size()));
    for (size_t at = 0; at < bytes.size(); at += 1'000'003)
      CAIRN_RETURN_IF_ERROR(upload->Add(absl::string_view(bytes).substr(at, 1'000'003)));
    return upload->Finish();
  }
  static std::string Large() {
    std::string bytes(2 * kS3PartBytesMax + 12'345, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
    return bytes;
  }

  FakeS3 s3_;
  WaitingClock clock_;
  std::atomic<int> pauses_{0};
  std::shared_ptr<const S3Session> session_;
};

TEST_F(S3WriteTest, PutsCopiesAndRemoves) {
  EXPECT_EQ(*store().Put("bucket", "run/a b+c=\u00e9", "bytes", kReplace), Md5Hex("bytes"));
  EXPECT_EQ(s3_.BytesOf("bucket", "run/a b+c=\u00e9"), "bytes");
  EXPECT_EQ(s3_.asked_for("PUT /bucket/run/a%20b%2Bc%3D%C3%A9"), 1u);
  const S3Object from = **store().Head("bucket", "run/a b+c=\u00e9");
  EXPECT_TRUE(store().Copy("bucket", from, "run/copy").ok());
  EXPECT_EQ(s3_.BytesOf("bucket", "run/copy"), "bytes");
  EXPECT_TRUE(store().Remove("bucket", "run/copy").ok());
  EXPECT_TRUE(store().Remove("bucket", "run/copy").ok()) << "it is not there any more";
  EXPECT_TRUE(absl::IsNotFound(store().Remove("other", "x"))) << "the bucket is not there";
}

TEST_F(S3WriteTest, ANewObjectReplacesNone) {
  EXPECT_TRUE(absl::IsAlreadyExists(store().Put("bucket", "run/old", "another", kNew).status()));
  EXPECT_EQ(s3_.BytesOf("bucket", "run/old"), "as it was");
  EXPECT_TRUE(store().Put("bucket", "run/new", "x", kNew).ok());
  LoseReply("PUT", "run/lost");
  EXPECT_TRUE(store().Put("bucket", "run/lost", "mine", kNew).ok()) << "the first attempt has put it there";
  EXPECT_EQ(s3_.asked_for("PUT /bucket/run/lost"), 2u);
  s3_.knows_conditions = false;
  pauses_ = 0;
  const absl::Status unknown = store().Put("bucket", "run/newer", "x", kNew).status();
  EXPECT_TRUE(absl::IsUnimplemented(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("http://fake does not serve requests of this kind"));
  EXPECT_EQ(pauses_, 0);
}

TEST_F(S3WriteTest, WhatArrivedIsCompared) {
  Fault("PUT", "run/new", S3Reply{200, {{"etag", absl::StrCat("\"", Md5Hex("other"), "\"")}}, ""});
  EXPECT_TRUE(store().Put("bucket", "run/new", "bytes", kReplace).ok());
  EXPECT_EQ(pauses_, 1) << "it was sent again";
  Fault("PUT", "run/new", S3Reply{200, {{"etag", absl::StrCat("\"", Md5Hex("other"), "\"")}}, ""}, 1'000'000);
  const absl::Status wrong = store().Put("bucket", "run/new", "bytes", kReplace).status();
  EXPECT_TRUE(absl::IsUnavailable(wrong));
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("other bytes arrived than were sent"));
  const std::string encrypted = absl::StrCat("\"", Md5Hex("no sum of the bytes"), "\"");
  Fault("PUT", "run/new", S3Reply{200, {{"etag", encrypted}, {"x-amz-server-side-encryption", "aws:kms"}}, ""});
  EXPECT_TRUE(store().Put("bucket", "run/new", "bytes", kReplace).ok());
  Fault("PUT", "run/new", S3Reply{200, {}, ""});
  EXPECT_EQ(store().Put("bucket", "run/new", "bytes", kReplace).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(S3WriteTest, UploadsInParts) {
  const std::string bytes = Large();
  const auto version = Upload(bytes);
  ASSERT_TRUE(version.ok()) << version.status();
  std::string sums;
  for (size_t at = 0; at < bytes.size(); at += kS3PartBytesMax)
    sums += absl::HexStringToBytes(Md5Hex(absl::string_view(bytes).substr(at, kS3PartBytesMax)));
  EXPECT_EQ(*version, absl::StrCat(Md5Hex(sums), "-3"));
  EXPECT_TRUE(s3_.BytesOf("bucket", "run/new") == bytes);
  EXPECT_EQ(s3_.asked_for("partNumber="), 3u);
  EXPECT_TRUE(Upload("small").ok());
  EXPECT_EQ(s3_.BytesOf("bucket", "run/new"), "small");
  EXPECT_TRUE(Upload("").ok());
  EXPECT_THAT(s3_.PendingKeys(), IsEmpty());
}

TEST_F(S3WriteTest, APartThatFailsIsSentAgain) {
  const std::string bytes = Large();
  Fault("PUT", "partNumber=2", ErrorReply(503, "SlowDown"), 2);
  EXPECT_TRUE(Upload(bytes).ok());
  EXPECT_EQ(pauses_, 2);
  Fault("PUT", "partNumber=1", absl::UnavailableError("the connection was cut"));
  EXPECT_TRUE(Upload(bytes).ok());
  EXPECT_TRUE(s3_.BytesOf("bucket", "run/new") == bytes);
}

TEST_F(S3WriteTest, AnUploadThatFailsLeavesNothing) {
  Fault("PUT", "partNumber=2", ErrorReply(403, "AccessDenied"));
  const absl::Status denied = Upload(Large()).status();
  EXPECT_TRUE(absl::IsPermissionDenied(denied));
  EXPECT_THAT(std::string(denied.message()), HasSubstr("may not write it; allow them s3:ListBucket"));
  EXPECT_THAT(std::string(denied.message()), HasSubstr("s3:PutObject, s3:DeleteObject"));
  EXPECT_THAT(s3_.PendingKeys(), IsEmpty());
  Fault("PUT", "partNumber", ErrorReply(503, "SlowDown"), 1'000'000);
  EXPECT_TRUE(absl::IsUnavailable(Upload(Large()).status())) << "after a time";
  s3_.fault = nullptr;
  {
    auto given_up = S3FileUpload::Begin(session_, {"bucket", "run/new"}, 3 * kS3PartBytesMax);
    ASSERT_TRUE(given_up.ok());
    EXPECT_TRUE((*given_up)->Add(std::string(kS3PartBytesMax + 1, 'x')).ok());
    EXPECT_FALSE((*given_up)->Finish().ok()) << "fewer bytes than were announced";
    EXPECT_THAT(s3_.PendingKeys(), ElementsAre("run/new"));
  }
  EXPECT_THAT(s3_.PendingKeys(), IsEmpty());
  EXPECT_THAT(s3_.Keys("bucket"), ElementsAre("run/old"));
  EXPECT_EQ(S3FileUpload::Begin(session_, {"bucket", "x"}, kS3PartsMax * kS3PartBytesMax + 1).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(S3WriteTest, AnUploadEndsOnce) {
  const std::string bytes = Large();
  LoseReply("POST", "uploadId=");
  EXPECT_TRUE(Upload(bytes).ok()) << "the first attempt has ended it";
  EXPECT_TRUE(s3_.BytesOf("bucket", "run/new") == bytes);
  s3_.alter = nullptr;
  Fault("POST", "uploadId=", S3Reply{200, {}, "<Error><Code>InternalError</Code><Message>m</Message></Error>"});
  EXPECT_TRUE(Upload(bytes).ok()) << "an error with the status 200 is one";
  EXPECT_GE(pauses_, 2);
  ASSERT_TRUE(store().Remove("bucket", "run/new").ok());
  Fault("POST", "uploadId=", ErrorReply(404, "NoSuchUpload"));
  const absl::Status gone = Upload(bytes).status();
  EXPECT_TRUE(absl::IsAborted(gone)) << gone;
  EXPECT_THAT(std::string(gone.message()), HasSubstr("another worker has ended this upload"));
}

TEST_F(S3WriteTest, AnothersObjectIsNotTakenForItsOwn) {
  std::string others = Large();
  others.back() ^= 1;  // as long, of as many parts
  ASSERT_TRUE(Upload(others).ok());
  Fault("POST", "uploadId=", ErrorReply(404, "NoSuchUpload"));
  EXPECT_TRUE(absl::IsAborted(Upload(Large()).status()));
  EXPECT_TRUE(s3_.BytesOf("bucket", "run/new") == others);
}

TEST_F(S3WriteTest, ReplacesOneObjectAlone) {
  const S3Object old = **store().Head("bucket", "run/old");
  LoseReply("PUT", "run/old");
  EXPECT_EQ(*store().PutOver("bucket", old, "newer"), Md5Hex("newer")) << "the first attempt has done it";
  EXPECT_TRUE(absl::IsAborted(store().PutOver("bucket", old, "late").status()));
  EXPECT_EQ(s3_.BytesOf("bucket", "run/old"), "newer");
  EXPECT_TRUE(absl::IsAborted(store().PutOver("bucket", {"run/none", old.etag, 0}, "late").status()));
}

// Attempts and pauses end by a time that was given, whatever the server does.
TEST_F(S3WriteTest, EndsByTheTimeThatIsGiven) {
  const absl::Time until = clock_.Now() + absl::Seconds(20);
  S3Store brief(session_->settings, &s3_,
                S3Store::Time{&clock_, [this](absl::Duration wanted) { return clock_.Wait(wanted), true; }, 7,
                              absl::Seconds(60), until});
  std::vector<absl::Duration> most;
  s3_.fault = [&](const S3Request& request) -> std::optional<absl::StatusOr<S3Reply>> {
    most.push_back(request.attempt_max);
    clock_.Wait(absl::Seconds(7));
    return ErrorReply(503, "SlowDown");
  };
  EXPECT_TRUE(absl::IsUnavailable(brief.Put("bucket", "run/new", "x", kReplace).status()));
  EXPECT_LE(clock_.Now(), until + absl::Seconds(7)) << "the server of this test does not end with the attempt";
  ASSERT_GE(most.size(), 2u);
  EXPECT_EQ(most.front(), absl::Seconds(20));
  EXPECT_LT(most.back(), absl::Seconds(13));
  clock_.Wait(absl::Seconds(20));
  most.clear();
  EXPECT_TRUE(absl::IsDeadlineExceeded(brief.Put("bucket", "run/new", "x", kReplace).status()));
  EXPECT_THAT(most, IsEmpty());
}

TEST_F(S3WriteTest, ListsUploadsPageByPage) {
  for (const char* key : {"run/a b", "run/c", "other/d"}) ASSERT_TRUE(store().BeginUpload("bucket", key).ok());
  std::vector<std::string> keys;
  S3PendingUpload from;
  do {
    const auto page = store().ListUploads("bucket", "run/", from);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const S3PendingUpload& upload : page->uploads) {
      keys.push_back(upload.key);
      EXPECT_TRUE(store().AbortUpload({"bucket", upload.key, upload.id}).ok());
      EXPECT_TRUE(store().AbortUpload({"bucket", upload.key, upload.id}).ok()) << "it is gone";
    }
    from = page->next;
  } while (!from.key.empty());
  EXPECT_THAT(keys, ElementsAre("run/a b", "run/c"));
  EXPECT_THAT(s3_.PendingKeys(), ElementsAre("other/d"));
}

}  // namespace
}  // namespace cairn
