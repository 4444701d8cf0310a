// ObjectStore: what is asked of S3 here: lists objects, looks at one, reads a part of one, writes, copies and removes.
//
// Thread-safe. Every call ends, and repeats by itself what may succeed later (replies of 5xx, SlowDown, cut
// connections) for kS3RetryMax. Errors name the bucket, the key, the HTTP status, S3's code and what to do: NOT_FOUND,
// PERMISSION_DENIED (also a wrong key or clock), FAILED_PRECONDITION (the object is another one now, another region),
// UNAVAILABLE (after all attempts), DATA_LOSS (a reply that cannot be right), CANCELLED. Invariants:
//   1. Get gives exactly the bytes of the object with that ETag, or an error: length, range and ETag of each reply are
//      compared with what was asked.
//   2. Put and PutPart sign the bytes' SHA-256, by which the server finds what was changed on its way; an ETag that is
//      an MD5 sum is compared too.
//   3. A call that is repeated because its reply was lost has one effect. But for BeginUpload: then an upload is begun
//      that nobody knows, without parts; ListUploads finds it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/status.h"
#include "common/s3/replies.h"

namespace cairn {

// One upload in parts that was begun.
struct S3Upload {
  std::string bucket, key, id;
};

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

  enum class PutRule { kReplace, kNew };
  // Gives the object's ETag. kNew: where there is none of this key. Errors: ALREADY_EXISTS; UNIMPLEMENTED: the server
  // cannot say whether it is new.
  virtual absl::StatusOr<std::string> Put(const std::string& bucket, const std::string& key, absl::string_view bytes,
                                          PutRule rule) = 0;
  // In place of the object with this ETag. Errors: ABORTED: it is another one now, or gone; UNIMPLEMENTED as of Put.
  virtual absl::StatusOr<std::string> PutOver(const std::string& bucket, const S3Object& former,
                                              absl::string_view bytes) = 0;
  // Within the bucket, an object of at most kS3CopyBytesMax. Gives the new one's ETag.
  virtual absl::StatusOr<std::string> Copy(const std::string& bucket, const S3Object& from, const std::string& to) = 0;
  // OK if there is none.
  virtual absl::Status Remove(const std::string& bucket, const std::string& key) = 0;

  // Of a begun upload ABORTED is: somebody else has ended it.
  virtual absl::StatusOr<S3Upload> BeginUpload(const std::string& bucket, const std::string& key) = 0;
  // number: from 1 on; each but the last one has at least kS3PartBytesLeast. Gives its ETag.
  virtual absl::StatusOr<std::string> PutPart(const S3Upload& upload, int number, absl::string_view bytes) = 0;
  // The object appears, of these parts and so many bytes. Gives its ETag.
  virtual absl::StatusOr<std::string> CompleteUpload(const S3Upload& upload, const std::vector<std::string>& etags,
                                                     uint64_t bytes) = 0;
  // Nothing of it is left. OK if it is gone.
  virtual absl::Status AbortUpload(const S3Upload& upload) = 0;
  // A page of the uploads below `prefix` that were not ended; from: S3UploadsPage.next of the page before.
  virtual absl::StatusOr<S3UploadsPage> ListUploads(const std::string& bucket, const std::string& prefix,
                                                    const S3PendingUpload& from) = 0;
};

}  // namespace cairn
