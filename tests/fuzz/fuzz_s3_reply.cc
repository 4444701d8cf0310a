// Replies of an S3 server: listings, answers to uploads and an error of any bytes; and every key that may become a file
// stays below the folder that it is put into.
//
//   input := Rest(reply)
#include <filesystem>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/s3/limits.h"
#include "common/s3/location.h"
#include "common/s3/replies.h"
#include "tests/fuzz/input.h"

namespace cairn {
namespace {

void CheckAsPath(const std::string& key) {
  if (!CheckKey("bucket", key).ok()) return;
  const std::string path = (std::filesystem::path("/set/files") / key).lexically_normal().string();
  CAIRN_CHECK(path == "/set/files/" + key, key);
  CAIRN_CHECK(key.find('\0') == std::string::npos, key);
}

void CheckUploads(const std::string& reply) {
  const absl::StatusOr<S3UploadsPage> page = ParseUploads(reply);
  if (page.ok()) {
    CAIRN_CHECK(page->uploads.size() <= kS3PageKeysMax, "more than a page");
    for (const S3PendingUpload& upload : page->uploads)
      CAIRN_CHECK(!upload.key.empty() && !upload.id.empty(), upload.key);
  } else {
    CAIRN_CHECK(absl::IsDataLoss(page.status()), page.status().ToString());
  }
  const absl::StatusOr<std::string> id = ParseUploadId(reply);
  CAIRN_CHECK(id.ok() ? !id->empty() : absl::IsDataLoss(id.status()), id.status().ToString());
  const absl::StatusOr<std::string> etag = ParseResultEtag(reply, "CopyObjectResult");
  CAIRN_CHECK(etag.ok() ? !etag->empty() : absl::IsDataLoss(etag.status()) || absl::IsUnavailable(etag.status()),
              etag.status().ToString());
}

void Check(ByteSource in) {
  const std::string reply(in.Rest());
  CheckAsPath(reply);
  const S3ErrorReply error = ParseErrorReply(reply);
  CAIRN_CHECK(error.message.size() <= kS3ErrorTextBytesMax && !absl::StrContains(error.message, "\n"), error.message);
  CheckUploads(reply);
  const absl::StatusOr<S3Page> page = ParseListing(reply);
  if (!page.ok()) return CAIRN_CHECK(absl::IsDataLoss(page.status()), page.status().ToString());
  CAIRN_CHECK(page->objects.size() <= kS3PageKeysMax, "more than a page");
  for (const S3Object& object : page->objects) {
    CAIRN_CHECK(!object.key.empty() && !object.etag.empty(), object.key);
    CheckAsPath(object.key);
  }
}

}  // namespace
}  // namespace cairn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cairn::Check({data, size});
  return 0;
}
