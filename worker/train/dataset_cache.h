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

namespace cairn {

inline constexpr absl::Duration kDatasetKeep = absl::Seconds(60);

class DatasetCache {
 public:
  explicit DatasetCache(Clock& clock) : clock_(clock) {}

  // fresh: reads the files again even if the data set is open. Blocks while it opens. Errors: those of OpenDataset.
  absl::StatusOr<std::shared_ptr<const Dataset>> Open(const v1::Data& data, const Shape& input_shape, bool fresh);
  void DropIdle();

 private:
  struct Entry {
    std::string key;
    std::weak_ptr<const Dataset> dataset;
    std::shared_ptr<const Dataset> kept;
    absl::Time keep_until;
  };
  Clock& clock_;
  absl::Mutex opening_;  // held while a data set opens: one at a time; taken before mutex_
  absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
