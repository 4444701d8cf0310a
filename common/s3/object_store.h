// ObjectStore: what is asked of S3 here: lists objects, looks at one, reads a part of one.
//
// Thread-safe. Every call ends, and repeats by itself what may succeed later (replies of 5xx, SlowDown, cut
// connections) for kS3RetryMax. Errors name the bucket, the key, the HTTP status, S3's code and what to do: NOT_FOUND,
// PERMISSION_DENIED (also a wrong key or clock), FAILED_PRECONDITION (the object is another one now, another region),
// UNAVAILABLE (after all attempts), DATA_LOSS (a reply that cannot be right), CANCELLED. Invariants:
//   1. Get gives exactly the bytes of the object with that ETag, or an error: length, range and ETag of each reply are
//      compared with what was asked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "common/s3/replies.h"

namespace cairn {

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  // A page of the objects whose keys begin with `prefix`; token: S3Page.next of the page before, empty: the first.
  virtual absl::StatusOr<S3Page> List(const std::string& bucket, const std::string& prefix,
                                      const std::string& token) = 0;
  // nullopt: there is no such object.
  virtual absl::StatusOr<std::optional<S3Object>> Head(const std::string& bucket, const std::string& key) = 0;
  // Bytes begin .. begin + bytes - 1, bytes > 0; at most kS3PartBytesMax.
  virtual absl::StatusOr<std::string> Get(const std::string& bucket, const S3Object& object, uint64_t begin,
                                          uint64_t bytes) = 0;
};

}  // namespace cairn
