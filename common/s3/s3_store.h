// S3Store: an ObjectStore over HTTP: signs requests, repeats them, checks replies.
//
// Thread-safe. Invariants: those of ObjectStore.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "common/base/clock.h"
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
  };
  // transport and clock outlive this.
  S3Store(S3Settings settings, S3Transport* transport, Time time);

  absl::StatusOr<S3Page> List(const std::string& bucket, const std::string& prefix, const std::string& token) override;
  absl::StatusOr<std::optional<S3Object>> Head(const std::string& bucket, const std::string& key) override;
  absl::StatusOr<std::string> Get(const std::string& bucket, const S3Object& object, uint64_t begin,
                                  uint64_t bytes) override;

 private:
  // What of a reply of 2xx is wrong; UNAVAILABLE: asks again.
  using Check = std::function<absl::Status(const S3Reply&)>;
  absl::StatusOr<S3Reply> Repeat(const S3Call& call, size_t body_bytes_max, const std::string& action,
                                 const Check& check);
  absl::StatusOr<S3Reply> Once(const S3Call& call, size_t body_bytes_max, const std::string& action,
                               const Check& check);

  const S3Settings settings_;
  S3Transport* const transport_;
  const Time time_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace cairn
