// S3Store: an ObjectStore over HTTP: signs requests, repeats them, checks replies.
//
// Thread-safe. Invariants: those of ObjectStore.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/s3/limits.h"
#include "common/s3/object_store.h"
#include "common/s3/settings.h"
#include "common/s3/signer.h"
#include "common/s3/transport.h"

namespace cairn {

class S3Store : public ObjectStore {
 public:
  struct Time {
    Clock* clock = nullptr;
    std::function<bool(absl::Duration)> pause;  // waits before another attempt; false: the process stops
    uint64_t seed = 0;                          // of the jitter
    absl::Duration retry_max = kS3RetryMax;     // how long a request is repeated after its first failure
    absl::Time until = absl::InfiniteFuture();  // every request has ended by then
  };
  // transport and clock outlive this.
  S3Store(S3Settings settings, S3Transport* transport, Time time);

  absl::StatusOr<S3Page> List(const std::string& bucket, const std::string& prefix, const std::string& token) override;
  absl::StatusOr<std::optional<S3Object>> Head(const std::string& bucket, const std::string& key) override;
  absl::StatusOr<std::string> Get(const std::string& bucket, const S3Object& object, uint64_t begin,
                                  uint64_t bytes) override;
  absl::StatusOr<std::string> Put(const std::string& bucket, const std::string& key, absl::string_view bytes,
                                  PutRule rule) override;
  absl::StatusOr<std::string> PutOver(const std::string& bucket, const S3Object& former,
                                      absl::string_view bytes) override;
  absl::StatusOr<std::string> Copy(const std::string& bucket, const S3Object& from, const std::string& to) override;
  absl::Status Remove(const std::string& bucket, const std::string& key) override;
  absl::StatusOr<S3Upload> BeginUpload(const std::string& bucket, const std::string& key) override;
  absl::StatusOr<std::string> PutPart(const S3Upload& upload, int number, absl::string_view bytes) override;
  absl::StatusOr<std::string> CompleteUpload(const S3Upload& upload, const std::vector<std::string>& etags,
                                             uint64_t bytes) override;
  absl::Status AbortUpload(const S3Upload& upload) override;
  absl::StatusOr<S3UploadsPage> ListUploads(const std::string& bucket, const std::string& prefix,
                                            const S3PendingUpload& from) override;

 private:
  // What of a reply of 2xx is wrong; UNAVAILABLE: asks again.
  using Check = std::function<absl::Status(const S3Reply&)>;
  struct Question {
    S3Call call;
    size_t reply_bytes_max = 0;
    std::string action;     // for errors: ErrorOfReply
    Check check = nullptr;  // null: every reply of 2xx will do
  };
  absl::StatusOr<S3Reply> Repeat(const Question& question);
  absl::StatusOr<S3Reply> Once(const Question& question);
  // call: a PUT of an object.
  absl::StatusOr<std::string> PutObject(const S3Call& call);
  // Whether the object has exactly these bytes.
  absl::StatusOr<bool> Holds(const std::string& bucket, const std::string& key, absl::string_view bytes);

  const S3Settings settings_;
  S3Transport* const transport_;
  const Time time_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace cairn
