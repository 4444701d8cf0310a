// S3Sessions: connections to S3 with the settings of the environment, which are read again for a new one, so that new
// keys are taken.
//
// Thread-safe. A session may be used by several threads; those that are out stay valid after Stop, whose effect is that
// what they do ends with CANCELLED. Outlives its sessions.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/s3/limits.h"
#include "common/s3/object_store.h"
#include "common/s3/settings.h"
#include "common/s3/transport.h"

namespace cairn {

struct S3Session {
  S3Settings settings;
  RealClock clock;  // a new one: signatures need the time of day, which may have been set since the worker began
  std::unique_ptr<S3Transport> transport;
  std::unique_ptr<ObjectStore> store;
};

class S3Sessions {
 public:
  using MakeTransport = std::function<std::unique_ptr<S3Transport>(const S3Settings&, const std::atomic<bool>*)>;
  // make_transport: null: libcurl.
  explicit S3Sessions(Environment environment, MakeTransport make_transport = nullptr);

  // retry_max and until: of S3Store::Time. Errors: those of LoadS3Settings.
  absl::StatusOr<std::shared_ptr<const S3Session>> New(absl::Duration retry_max = kS3RetryMax,
                                                       absl::Time until = absl::InfiniteFuture()) const;
  // One that is at most kS3SessionMax old.
  absl::StatusOr<std::shared_ptr<const S3Session>> Current();

  void Stop() { stopping_ = true; }
  bool stopping() const { return stopping_; }

 private:
  const Environment environment_;
  const MakeTransport make_transport_;
  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  std::shared_ptr<const S3Session> current_ ABSL_GUARDED_BY(mutex_);
  absl::Time made_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cairn
