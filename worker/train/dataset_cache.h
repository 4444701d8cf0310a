// DatasetCache: the data sets that are open in this worker. Jobs on the same data share one, with its decoded examples.
//
// Thread-safe. Invariant: a data set stays open while someone uses it, and for kDatasetKeep after it was opened (the
// inspection at submission opens it, and the job that follows uses it).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cairn/v1/data.pb.h"
#include "common/base/clock.h"
#include "common/data/dataset.h"
#include "common/data/remote_data.h"

namespace cairn {

inline constexpr absl::Duration kDatasetKeep = absl::Seconds(60);

class DatasetCache {
 public:
  enum class How {
    kShared,  // as it is open, if it is
    kAnew,    // the files are read again
  };
  // remote: for data sets that do not lie on this machine; null: every one does. Outlives this.
  explicit DatasetCache(Clock& clock, RemoteData* remote = nullptr) : clock_(clock), remote_(remote) {}

  // Blocks while it is fetched, for fetch_max, and opens. Errors: those of FetchData and OpenDataset.
  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const v1::Data& data, const Shape& input_shape, How how,
                                                      absl::Duration fetch_max);
  // Whether it is fetched first.
  bool IsRemote(const v1::Data& data) const { return remote_ != nullptr && HasRemote(data, *remote_); }
  void DropIdle();

 private:
  struct Entry {
    std::string key;
    std::weak_ptr<const Dataset> dataset;
    std::shared_ptr<const Dataset> kept;
    absl::Time keep_until;
  };
  std::shared_ptr<const Dataset> Find(const std::string& key);

  Clock& clock_;
  RemoteData* const remote_;
  absl::Mutex opening_;  // held while a data set opens: one at a time; taken before mutex_
  absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
