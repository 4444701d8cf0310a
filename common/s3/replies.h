// Reads the XML of S3's replies: a page of a listing, what a multipart upload is answered, an error; and writes what
// one is ended with.
//
// Pure functions; any thread. The bytes come from a server and may be anything: documents with a type declaration,
// deeper than kXmlDepthMax, or with a text longer than kXmlTextBytesMax are refused; nothing external is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/status.h"

namespace cairn {

struct S3Object {
  std::string key;
  std::string etag;  // without quotes
  uint64_t bytes = 0;
  absl::Time modified = absl::InfinitePast();  // of Head
};

struct S3Page {
  std::vector<S3Object> objects;
  std::string next;  // the token of the next page; empty: this is the last one
};

// The reply to ListObjectsV2. Errors: DATA_LOSS: it is none, or lacks something.
absl::StatusOr<S3Page> ParseListing(absl::string_view xml);

// An upload in parts that was begun and not ended.
struct S3PendingUpload {
  std::string key, id;
};
struct S3UploadsPage {
  std::vector<S3PendingUpload> uploads;
  S3PendingUpload next;  // where the next page begins; an empty key: this is the last one
};
// The reply to ListMultipartUploads. Errors: DATA_LOSS: it is none, or lacks something.
absl::StatusOr<S3UploadsPage> ParseUploads(absl::string_view xml);

// The id of an upload that was begun. Errors: DATA_LOSS.
absl::StatusOr<std::string> ParseUploadId(absl::string_view xml);
// The ETag of what was put together, or copied: `root` is the document's element, "CopyObjectResult". A reply of 200
// may be an error all the same: then UNAVAILABLE. Errors: DATA_LOSS.
absl::StatusOr<std::string> ParseResultEtag(absl::string_view xml, absl::string_view root);
// The body of CompleteMultipartUpload: the parts' ETags, from number 1 on.
std::string EncodeParts(const std::vector<std::string>& etags);

struct S3ErrorReply {
  std::string code;     // "NoSuchKey"; empty: the body says none
  std::string message;  // printable, short
};
S3ErrorReply ParseErrorReply(absl::string_view xml);

// An entity tag as it is compared: without quotes.
std::string PlainEtag(absl::string_view etag);

}  // namespace cairn
