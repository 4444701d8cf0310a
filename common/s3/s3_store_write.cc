// What S3Store writes, copies and removes.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/s3/limits.h"
#include "common/s3/location.h"
#include "common/s3/s3_store.h"

namespace cairn {
namespace {

constexpr size_t kMd5Digits = 32;

bool IsMd5(absl::string_view etag) {
  return etag.size() == kMd5Digits &&
         std::all_of(etag.begin(), etag.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

// The ETag of an object of these parts, where theirs are MD5 sums: the sum of the sums. "": they are none.
std::string SumOfParts(const std::vector<std::string>& etags) {
  std::string sums;
  for (const std::string& etag : etags) {
    if (!IsMd5(etag)) return "";
    sums += absl::HexStringToBytes(etag);
  }
  return absl::StrCat(Md5Hex(sums), "-", etags.size());
}

// What is encrypted with a key of KMS or of the customer has ETags that are no sums.
bool HasSumAsEtag(const S3Reply& reply) {
  const std::string encryption = S3HeaderOf(reply, "x-amz-server-side-encryption");
  return (encryption.empty() || encryption == "AES256") &&
         S3HeaderOf(reply, "x-amz-server-side-encryption-customer-algorithm").empty();
}

// The reply names what arrived.
absl::Status CheckWritten(const S3Reply& reply, absl::string_view md5) {
  const std::string etag = PlainEtag(S3HeaderOf(reply, "etag"));
  if (etag.empty()) return absl::DataLossError("the reply has no ETag; does the endpoint lead to an S3 service?");
  if (!IsMd5(etag) || !HasSumAsEtag(reply) || absl::EqualsIgnoreCase(etag, md5)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("other bytes arrived than were sent: their ETag is ", etag, ", their MD5 sum ", md5));
}

}  // namespace

absl::StatusOr<bool> S3Store::Holds(const std::string& bucket, const std::string& key, absl::string_view bytes) {
  CAIRN_ASSIGN_OR_RETURN(const std::optional<S3Object> object, Head(bucket, key));
  if (!object || object->bytes != bytes.size() || bytes.size() > kS3PartBytesMax) return false;
  if (bytes.empty()) return true;
  CAIRN_ASSIGN_OR_RETURN(const std::string held, Get(bucket, *object, 0, object->bytes));
  return held == bytes;
}

absl::StatusOr<std::string> S3Store::Put(const std::string& bucket, const std::string& key, absl::string_view bytes,
                                         PutRule rule) {
  S3Call call{"PUT", bucket, key, {}, {}, bytes};
  if (rule == PutRule::kNew) call.headers.emplace_back("if-none-match", "*");
  return PutObject(call);
}

absl::StatusOr<std::string> S3Store::PutOver(const std::string& bucket, const S3Object& former,
                                             absl::string_view bytes) {
  return PutObject({"PUT", bucket, former.key, {}, {{"if-match", absl::StrCat("\"", former.etag, "\"")}}, bytes});
}

absl::StatusOr<std::string> S3Store::PutObject(const S3Call& call) {
  const std::string md5 = Md5Hex(call.body);
  const absl::StatusOr<S3Reply> reply =
      Repeat({call, kS3SmallReplyBytesMax, "write", [&](const S3Reply& put) { return CheckWritten(put, md5); }});
  if (absl::IsAlreadyExists(reply.status()) || absl::IsAborted(reply.status())) {
    // Perhaps an attempt of this call, whose reply was lost, has put it there.
    CAIRN_ASSIGN_OR_RETURN(const bool own, Holds(call.bucket, call.key, call.body));
    if (own) return md5;
  }
  CAIRN_RETURN_IF_ERROR(reply.status());
  return PlainEtag(S3HeaderOf(*reply, "etag"));
}

absl::StatusOr<std::string> S3Store::Copy(const std::string& bucket, const S3Object& from, const std::string& to) {
  S3Call call{"PUT", bucket, to, {}, {}};
  call.silent_max = kS3WorkMax;
  call.headers.emplace_back("x-amz-copy-source", absl::StrCat("/", bucket, "/", UriEncode(from.key, /*path=*/true)));
  call.headers.emplace_back("x-amz-copy-source-if-match", absl::StrCat("\"", from.etag, "\""));
  std::string etag;
  const auto take = [&](const S3Reply& copied) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(etag, ParseResultEtag(copied.body, "CopyObjectResult"));
    return absl::OkStatus();
  };
  CAIRN_RETURN_IF_ERROR(Repeat({call, kS3SmallReplyBytesMax, "write", take}).status());
  return etag;
}

absl::Status S3Store::Remove(const std::string& bucket, const std::string& key) {
  const absl::Status status = Repeat({{"DELETE", bucket, key, {}, {}}, kS3SmallReplyBytesMax, "remove"}).status();
  return absl::IsNotFound(status) && !absl::StrContains(status.message(), "NoSuchBucket") ? absl::OkStatus() : status;
}

absl::StatusOr<S3Upload> S3Store::BeginUpload(const std::string& bucket, const std::string& key) {
  S3Upload upload{bucket, key, ""};
  const auto take = [&](const S3Reply& begun) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(upload.id, ParseUploadId(begun.body));
    return absl::OkStatus();
  };
  CAIRN_RETURN_IF_ERROR(
      Repeat({{"POST", bucket, key, {{"uploads", ""}}, {}}, kS3SmallReplyBytesMax, "write", take}).status());
  return upload;
}

absl::StatusOr<std::string> S3Store::PutPart(const S3Upload& upload, int number, absl::string_view bytes) {
  const std::string md5 = Md5Hex(bytes);
  S3Call call{"PUT", upload.bucket, upload.key, {}, {}, bytes};
  call.parameters = {{"partNumber", absl::StrCat(number)}, {"uploadId", upload.id}};
  CAIRN_ASSIGN_OR_RETURN(const S3Reply reply, Repeat({call, kS3SmallReplyBytesMax, "write",
                                                      [&](const S3Reply& put) { return CheckWritten(put, md5); }}));
  return PlainEtag(S3HeaderOf(reply, "etag"));
}

absl::StatusOr<std::string> S3Store::CompleteUpload(const S3Upload& upload, const std::vector<std::string>& etags,
                                                    uint64_t bytes) {
  const std::string parts = EncodeParts(etags);
  S3Call call{"POST", upload.bucket, upload.key, {{"uploadId", upload.id}}, {}, parts};
  call.silent_max = kS3WorkMax;
  std::string etag;
  const auto take = [&](const S3Reply& completed) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(etag, ParseResultEtag(completed.body, "CompleteMultipartUploadResult"));
    return absl::OkStatus();
  };
  const absl::Status status = Repeat({call, kS3SmallReplyBytesMax, "write", take}).status();
  if (!status.ok() && !absl::IsAborted(status) && !absl::IsNotFound(status)) return status;
  // Also where an attempt of this call, whose reply was lost, has ended the upload: by the sum it is not another's.
  CAIRN_ASSIGN_OR_RETURN(const std::optional<S3Object> object, Head(upload.bucket, upload.key));
  const bool whole = object && object->bytes == bytes;
  if (!status.ok() && !(whole && object->etag == SumOfParts(etags))) return status;
  if (whole && (!status.ok() || object->etag == etag)) return object->etag;
  return absl::UnavailableError(absl::StrCat(
      S3Address(upload.bucket, upload.key), ": is not what was uploaded: it has ", object ? object->bytes : 0, " of ",
      bytes, " bytes; does another worker write it too? Give each job a checkpoints.dir of its own"));
}

absl::Status S3Store::AbortUpload(const S3Upload& upload) {
  const absl::Status status =
      Repeat({{"DELETE", upload.bucket, upload.key, {{"uploadId", upload.id}}, {}}, kS3SmallReplyBytesMax, "remove"})
          .status();
  return absl::IsNotFound(status) || absl::IsAborted(status) ? absl::OkStatus() : status;
}

absl::StatusOr<S3UploadsPage> S3Store::ListUploads(const std::string& bucket, const std::string& prefix,
                                                   const S3PendingUpload& from) {
  S3Call call{"GET", bucket, "", {}, {}};
  call.parameters = {
      {"uploads", ""}, {"encoding-type", "url"}, {"max-uploads", absl::StrCat(kS3PageKeysMax)}, {"prefix", prefix}};
  if (!from.key.empty()) call.parameters.emplace_back("key-marker", from.key);
  if (!from.id.empty()) call.parameters.emplace_back("upload-id-marker", from.id);
  CAIRN_ASSIGN_OR_RETURN(const S3Reply reply, Repeat({call, kS3ReplyBytesMax, "list"}));
  absl::StatusOr<S3UploadsPage> page = ParseUploads(reply.body);
  if (!page.ok()) return Annotate(page.status(), S3Address(bucket, prefix));
  for (const S3PendingUpload& upload : page->uploads) {
    if (absl::StartsWith(upload.key, prefix)) continue;
    return absl::DataLossError(absl::StrCat(S3Address(bucket, upload.key), ": an upload was listed below ",
                                            S3Address(bucket, prefix), "; does the endpoint lead to an S3 service?"));
  }
  return page;
}

}  // namespace cairn
