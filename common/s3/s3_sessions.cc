#include "common/s3/s3_sessions.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/time/clock.h"
#include "common/s3/curl_transport.h"
#include "common/s3/s3_store.h"

namespace cairn {

S3Sessions::S3Sessions(Environment environment, MakeTransport make_transport)
    : environment_(std::move(environment)), make_transport_(std::move(make_transport)) {}

absl::StatusOr<std::shared_ptr<const S3Session>> S3Sessions::New(absl::Duration retry_max, absl::Time until) const {
  auto session = std::make_shared<S3Session>();
  CAIRN_ASSIGN_OR_RETURN(session->settings, LoadS3Settings(environment_));
  const S3Settings& settings = session->settings;
  session->transport = make_transport_ ? make_transport_(settings, &stopping_)
                                       : std::make_unique<CurlTransport>(settings.ca_file, &stopping_);
  const auto pause = [this](absl::Duration wanted) {
    for (const absl::Time until = absl::Now() + wanted; absl::Now() < until && !stopping_;)
      absl::SleepFor(std::min(kS3LockPause, until - absl::Now()));
    return !stopping_.load();
  };
  session->store =
      std::make_unique<S3Store>(settings, session->transport.get(),
                                S3Store::Time{&session->clock, pause, std::random_device()(), retry_max, until});
  return session;
}

absl::StatusOr<std::shared_ptr<const S3Session>> S3Sessions::Current() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = absl::Now();
  if (current_ != nullptr && now >= made_ && now - made_ < kS3SessionMax) return current_;
  CAIRN_ASSIGN_OR_RETURN(current_, New());
  made_ = now;
  return current_;
}

}  // namespace cairn
