// JobEnd: how a task of `cairn run` learns that its job has ended, with which exit code, and remembers it in a file, so
// that a container that is started again ends at once, with the same code, even though the coordinator is gone.
//
// One thread.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "cairn/v1/job_status.pb.h"
#include "client/job_client.h"

namespace cairn {

// Whoever submits a job that is refused ends a few seconds later, and the coordinator beside it: then the others wait
// so long for its container to be started again.
inline constexpr absl::Duration kRefusedAfter = absl::Minutes(1);

// Of a program that waited for the job's end.
int ExitCodeOf(v1::JobState end);

class JobEnd {
 public:
  // The newest job of this name. The file is directory/NAME.ended.
  JobEnd(const std::string& directory, std::string name);

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  // The exit code that is in the file.
  std::optional<int> Remembered() const;
  // Of the job as it is now; remembered. Nothing: it goes on, is not submitted yet, or the coordinator is not reached.
  // kExitUsage, not remembered: the coordinator had no such job, and is gone for kRefusedAfter.
  std::optional<int> Ask(JobClient& client, absl::Time now);
  // The same, where the coordinator answered so.
  std::optional<int> Consider(const absl::StatusOr<v1::JobStatus>& job, absl::Time now);

 private:
  void Remember(int code) const;

  const std::string name_;
  const std::string path_;
  absl::Time seen_ = absl::InfiniteFuture();  // the end, first
  // The newest answer was that there is no such job; and since when there is no answer.
  bool missing_ = false;
  absl::Time silent_since_ = absl::InfiniteFuture();
};

}  // namespace cairn
