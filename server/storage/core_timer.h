// CoreTimer: measures one step of a partition's core, for `cairn trace`: a gradient that is added to a sum, or an
// update that is made. LogTimer: an update that is written to the log.
//
// One thread: that of the core.
#pragma once

#include "common/base/trace.h"
#include "server/core/partition_core.h"
#include "server/core/partition_events.h"

namespace cairn {

class CoreTimer {
 public:
  // recorder: may be null. event: what the core is about to handle. core: outlives the timer.
  CoreTimer(TraceRecorder* recorder, const PartitionCore& core, const PartitionEvent& event);
  ~CoreTimer();  // right after PartitionCore::Step

 private:
  TraceTimer timer_;
  const PartitionCore& core_;
  const uint64_t version_;
  bool updates_ = false;  // the event may make an update
  bool sums_ = false;     // it brings a gradient
};

class LogTimer {
 public:
  LogTimer(TraceRecorder* recorder, const PartitionConfig& config, const Persist& persist);

 private:
  TraceTimer timer_;
};

}  // namespace cairn
