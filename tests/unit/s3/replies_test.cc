// Goal: listings and errors of S3 are read; documents that are none, too deep, too long or that define entities are
// refused; keys become paths only if files can be called so.
#include "common/s3/replies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/s3/limits.h"
#include "common/s3/location.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

std::string Contents(const std::string& key, const std::string& etag, const std::string& size) {
  return absl::StrCat("<Contents><Key>", key, "</Key><LastModified>2026</LastModified><ETag>", etag, "</ETag><Size>",
                      size, "</Size><Owner><ID>x</ID></Owner></Contents>");
}

std::string Listing(const std::string& inside) {
  return absl::StrCat(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://x/\"><Name>b</Name>", inside,
      "</ListBucketResult>");
}

TEST(Replies, ReadsAListing) {
  const auto page =
      ParseListing(Listing(absl::StrCat(Contents("a%2Fb+c%2B%25", "&quot;e-1&quot;", "7"), Contents("d", "\"f\"", "0"),
                                        "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>",
                                        "<NextContinuationToken>n&amp;=</NextContinuationToken>")));
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[0].key, "a/b c+%");
  EXPECT_EQ(page->objects[0].etag, "e-1");
  EXPECT_EQ(page->objects[0].bytes, 7u);
  EXPECT_EQ(page->objects[1].etag, "f");
  EXPECT_EQ(page->next, "n&=");
  const auto plain = ParseListing(Listing(Contents("a%2Fb", "e", "7") + "<IsTruncated>false</IsTruncated>"));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->objects[0].key, "a%2Fb") << "is encoded only where the reply says so";
  EXPECT_EQ(plain->next, "");
  EXPECT_TRUE(ParseListing(Listing(""))->objects.empty());
}

TEST(Replies, RefusesWhatIsNoListing) {
  std::string deep, many;
  for (int i = 0; i < 20; ++i) deep = absl::StrCat("<a>", deep, "</a>");
  for (size_t i = 0; i <= kS3PageKeysMax; ++i) absl::StrAppend(&many, Contents(absl::StrCat(i), "e", "1"));
  const struct {
    std::string xml, says;
  } bad[] = {
      {"", "no element found"},
      {"<html>", "no element found"},
      {"<html/>", "another document"},
      {Listing(deep), "nested too deeply"},
      {Listing("<Name>" + std::string(kXmlTextBytesMax + 1, 'x') + "</Name>"), "a text is too long"},
      {"<!DOCTYPE l [<!ENTITY a \"aaa\">]>" + Listing("&a;"), "it has a document type"},
      {Listing(many), "more objects than were asked for"},
      {Listing(Contents("", "e", "1")), "an object without key, ETag or size"},
      {Listing(Contents("k", "", "1")), "an object without key, ETag or size"},
      {Listing(Contents("k", "e", "-1")), "an object without key, ETag or size"},
      {Listing(Contents("k", "e", "99999999999999999999")), "an object without key, ETag or size"},
      {Listing("<EncodingType>url</EncodingType>" + Contents("a%2", "e", "1")), "not URL-encoded"},
      {Listing("<IsTruncated>true</IsTruncated>"), "there is more, but no token for it"},
  };
  for (const auto& c : bad) {
    const auto page = ParseListing(c.xml);
    EXPECT_EQ(page.status().code(), absl::StatusCode::kDataLoss) << c.says;
    EXPECT_THAT(std::string(page.status().message()), HasSubstr(c.says));
  }
}

TEST(Replies, ReadsAnError) {
  const S3ErrorReply error = ParseErrorReply(
      "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>is\nnot there</Message><Key>k</Key></Error>");
  EXPECT_EQ(error.code, "NoSuchKey");
  EXPECT_EQ(error.message, "is not there");
  EXPECT_EQ(ParseErrorReply("<html>502</html>").code, "");
  EXPECT_EQ(ParseErrorReply("not XML").code, "");
}

TEST(Location, RefusesKeysThatAreNoPaths) {
  const struct {
    std::string key, says;
  } bad[] = {
      {"../etc/passwd", "has a part \"..\""},
      {"a/../../b", "has a part \"..\""},
      {"a/./b", "has a part \".\""},
      {"/etc/passwd", "has an empty part"},
      {"a//b", "has an empty part"},
      {"a/", "has an empty part"},
      {"", "has an empty part"},
      {"a\nb", "control character"},
      {std::string("a\0b", 3), "control"},
      {"a/" + std::string(300, 'x'), "300 bytes"},
      {std::string(2000, 'x'), "2000 bytes"},
  };
  for (const auto& c : bad) {
    const absl::Status status = CheckKey("bucket", c.key);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.key;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says));
    EXPECT_THAT(std::string(status.message()), HasSubstr("s3://bucket/"));
  }
  for (const char* good : {"a", "a/b.jpg", "a b/c\xc3\xa9", "..a/b..", "a\\b", "-"})
    EXPECT_TRUE(CheckKey("b", good).ok());
}

TEST(Location, ReadsAddresses) {
  const auto at = ParseS3Address("s3://my.bucket-1/a/b/");
  ASSERT_TRUE(at.ok()) << at.status();
  EXPECT_EQ(at->bucket, "my.bucket-1");
  EXPECT_EQ(at->key, "a/b");
  EXPECT_EQ(ParseS3Address("s3://bucket/")->key, "");
  for (const char* bad : {"s3:/bucket", "s3://", "s3://b", "s3://bu cket/a", "s3://bucket/../a", "s3://bucket//a",
                          "s3://-bucket", "s3://user@bucket"})
    EXPECT_FALSE(ParseS3Address(bad).ok()) << bad;
}

TEST(Replies, ReadsUploads) {
  const auto page = ParseUploads(
      "<ListMultipartUploadsResult><Upload><Key>a%2Fb+c</Key><UploadId>1&amp;</UploadId><Initiated>x</Initiated>"
      "</Upload><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextKeyMarker>a%2Fb+c</NextKeyMarker>"
      "<NextUploadIdMarker>1&amp;</NextUploadIdMarker></ListMultipartUploadsResult>");
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->uploads.size(), 1u);
  EXPECT_EQ(page->uploads[0].key, "a/b c");
  EXPECT_EQ(page->uploads[0].id, "1&");
  EXPECT_EQ(page->next.key, "a/b c");
  EXPECT_EQ(page->next.id, "1&");
  EXPECT_TRUE(ParseUploads("<ListMultipartUploadsResult/>")->next.key.empty());
  for (const char* wrong : {"", "<ListBucketResult/>", "<ListMultipartUploadsResult><Upload><Key>a</Key></Upload>",
                            "<ListMultipartUploadsResult><Upload><Key>a</Key></Upload></ListMultipartUploadsResult>",
                            "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>"})
    EXPECT_EQ(ParseUploads(wrong).status().code(), absl::StatusCode::kDataLoss) << wrong;
}

TEST(Replies, ReadsWhatAnUploadIsAnswered) {
  EXPECT_EQ(*ParseUploadId("<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"),
            "u");
  EXPECT_FALSE(ParseUploadId("<InitiateMultipartUploadResult/>").ok());
  const std::string done = "  \n<?xml version=\"1.0\"?><R><ETag>&quot;e-2&quot;</ETag></R>";
  EXPECT_EQ(*ParseResultEtag(done, "R"), "e-2") << "what comes before it keeps the connection alive";
  EXPECT_EQ(ParseResultEtag(done, "Other").status().code(), absl::StatusCode::kDataLoss);
  const absl::Status error =
      ParseResultEtag("<Error><Code>InternalError</Code><Message>m</Message></Error>", "R").status();
  EXPECT_TRUE(absl::IsUnavailable(error));
  EXPECT_THAT(std::string(error.message()), HasSubstr("HTTP 200, but InternalError: m"));
  EXPECT_EQ(EncodeParts({"a", "b<&>"}),
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Part><PartNumber>1"
            "</PartNumber><ETag>&quot;a&quot;</ETag></Part><Part><PartNumber>2</PartNumber><ETag>&quot;b&lt;&amp;&gt;"
            "&quot;</ETag></Part></CompleteMultipartUpload>");
}

}  // namespace
}  // namespace cairn
