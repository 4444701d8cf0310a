#include "common/base/log_ring.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/base/text.h"

namespace cairn {

void LogRing::Add(absl::Time time, LogLevel level, std::string_view text) {
  const std::string_view cut = CutUtf8(text, kLogLineBytesMax);
  absl::MutexLock lock(&mutex_);
  lines_.push_back({++last_, time, level, std::string(cut)});
  bytes_ += cut.size();
  while (lines_.size() > kLogLinesKept || bytes_ > kLogBytesKept) {
    bytes_ -= lines_.front().text.size();
    lines_.pop_front();
  }
}

LogTail LogRing::Read(const LogQuery& query) const {
  const std::string prefix = query.job ? absl::StrCat("job ", *query.job, ":") : "";
  LogTail tail;
  size_t bytes = 0;
  bool full = false;  // older lines are left out too, however short
  absl::MutexLock lock(&mutex_);
  tail.last = last_;
  const uint64_t first_kept = last_ - lines_.size() + 1;
  if (query.after < first_kept - 1) tail.dropped = first_kept - 1 - query.after;
  for (auto line = lines_.rbegin(); line != lines_.rend() && line->number > query.after; ++line) {
    if (line->level < query.level || !absl::StartsWith(line->text, prefix)) continue;
    full = full || tail.lines.size() == query.lines_max || bytes + line->text.size() > query.bytes_max;
    if (full) {
      ++tail.dropped;
      continue;
    }
    bytes += line->text.size();
    tail.lines.push_back(*line);
  }
  std::reverse(tail.lines.begin(), tail.lines.end());
  return tail;
}

}  // namespace cairn
