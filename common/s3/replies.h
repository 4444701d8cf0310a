// Reads the XML of S3's replies: a page of a listing, an error.
//
// Pure functions; any thread. The bytes come from a server and may be anything: documents with a type declaration,
// deeper than kXmlDepthMax, or with a text longer than kXmlTextBytesMax are refused; nothing external is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace cairn {

struct S3Object {
  std::string key;
  std::string etag;  // without quotes
  uint64_t bytes = 0;
};

struct S3Page {
  std::vector<S3Object> objects;
  std::string next;  // the token of the next page; empty: this is the last one
};

// The reply to ListObjectsV2. Errors: DATA_LOSS: it is none, or lacks something.
absl::StatusOr<S3Page> ParseListing(absl::string_view xml);

struct S3ErrorReply {
  std::string code;     // "NoSuchKey"; empty: the body says none
  std::string message;  // printable, short
};
S3ErrorReply ParseErrorReply(absl::string_view xml);

// An entity tag as it is compared: without quotes.
std::string PlainEtag(absl::string_view etag);

}  // namespace cairn
