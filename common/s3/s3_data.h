// S3Data: the data sets of S3 roots (common/base/roots.h). Fetch lists what lies at a path, fetches what the cache
// lacks, and gives the files of an open set of the cache.
//
// Thread-safe. Invariants:
//   1. A set has the objects as they were listed: one that changes meanwhile is an error that names it.
//   2. A data set that is asked for twice at the same time is fetched once; between processes too.
//   3. Keys are read from the environment and files again for each data set, so that new ones are taken.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/data/remote_data.h"
#include "common/s3/location.h"
#include "common/s3/object_cache.h"
#include "common/s3/object_store.h"
#include "common/s3/s3_sessions.h"

namespace cairn {

class S3Data : public RemoteData {
 public:
  using MakeTransport = S3Sessions::MakeTransport;
  // make_transport: null: libcurl.
  S3Data(std::shared_ptr<ObjectCache> cache, Environment environment, MakeTransport make_transport = nullptr);
  ~S3Data() override;

  bool Has(absl::string_view path) const override;
  absl::StatusOr<std::shared_ptr<const LocalCopy>> Fetch(const std::string& path, absl::Duration wait_max) override;
  void Stop() override;

 private:
  struct Found;
  struct Lister;
  struct Running;
  using Result = absl::StatusOr<std::shared_ptr<const LocalCopy>>;

  struct Thread {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };

  absl::StatusOr<std::shared_ptr<Running>> Start(const std::string& path);
  void Run(const std::string& path, std::shared_ptr<Running> running);
  Result FetchNow(const std::string& path, Running* running);
  absl::StatusOr<Found> Find(const Lister& lister, const S3Location& at) const;
  absl::Status ListAll(const Lister& lister, const S3Location& at, Found* found) const;

  const std::shared_ptr<ObjectCache> cache_;
  S3Sessions sessions_;
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Running>> running_ ABSL_GUARDED_BY(mutex_);  // by path
  std::vector<Thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
