// JobEndWatch: detects for a task of `cairn run` that its job has ended, and with which exit code. It stores the code
// in a file, so that a restarted container exits at once with the same code, even if the coordinator is gone.
//
// One thread.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "cairn/v1/job_status.pb.h"
#include "client/job_client.h"

namespace cairn {

// The task that submits a refused job exits a few seconds later, and the coordinator with it. The other tasks then wait
// this long for its container to be restarted.
inline constexpr absl::Duration kRefusedAfter = absl::Minutes(1);

// The exit code of a program that waited for the job's end.
int ExitCodeOf(v1::JobState end);

class JobEndWatch {
 public:
  // The newest job of this name. The file is directory/NAME.ended.
  JobEndWatch(const std::string& directory, std::string name);

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  // The exit code in the file.
  std::optional<int> Remembered() const;
  // Ask asks for the job; Consider takes the answer. Both store and return the exit code once the job has ended.
  // nullopt: it is running or not submitted yet, or the coordinator cannot be reached. kExitUsage, not stored: there
  // was no such job, and the coordinator has been gone for kRefusedAfter.
  std::optional<int> Ask(JobClient& client, absl::Time now);
  std::optional<int> Consider(const absl::StatusOr<v1::JobStatus>& job, absl::Time now);

 private:
  void Remember(int code) const;

  const std::string name_;
  const std::string path_;
  absl::Time seen_ = absl::InfiniteFuture();  // when the end was first seen
  // Whether the last answer was that there is no such job, and since when there has been no answer.
  bool missing_ = false;
  absl::Time silent_since_ = absl::InfiniteFuture();
};

}  // namespace cairn
