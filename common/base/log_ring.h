// LogRing: the last lines of a process' log, in memory, for whoever asks for them (`cairn logs`).
//
// Thread-safe. Invariants:
//   1. It holds at most kLogLinesKept lines and kLogBytesKept bytes of text; the oldest ones are dropped.
//   2. Lines are numbered from 1, in the order in which they were added; numbers have no gap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/limits.h"
#include "common/base/log.h"

namespace cairn {

struct KeptLine {
  uint64_t number = 0;
  absl::Time time;
  LogLevel level = LogLevel::kInfo;
  std::string text;
};

struct LogQuery {
  LogLevel level = LogLevel::kDebug;  // these and worse ones
  std::optional<uint64_t> job;        // only lines that begin with "job N:"
  uint64_t after = 0;                 // lines with higher numbers
  size_t lines_max = 1000;            // the newest so many of them
  size_t bytes_max = kLogAnswerBytesMax;
};

struct LogTail {
  std::vector<KeptLine> lines;  // the oldest first
  uint64_t last = 0;            // the newest line's number, whether it was asked for or not
  // Lines after LogQuery::after that are missing: those dropped from memory, of any level and job, and those beyond
  // lines_max and bytes_max.
  uint64_t dropped = 0;
};

class LogRing {
 public:
  // text: longer than kLogLineBytesMax: cut.
  void Add(absl::Time time, LogLevel level, std::string_view text);
  LogTail Read(const LogQuery& query) const;

 private:
  mutable absl::Mutex mutex_;
  std::deque<KeptLine> lines_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What this process has logged, by LogWrite.
const LogRing& ProcessLog();

}  // namespace cairn
