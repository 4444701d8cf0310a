// The files of a job beside its data, as its workers see these paths: what it begins with, and where its checkpoints,
// model files, logs and cached examples go. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"

namespace cairn {

struct WrittenPath {
  std::string field;       // of the job, for errors: "callbacks[0].csv_logger.filename"
  std::string path;        // of a path template what stands before its first name, cut to a directory
  bool directory = false;  // that is made where it is missing; else a file
};

// Whether a worker has to look at a file that the job begins with: resume_from, initial_weights, backup_and_restore.
bool StartsFromFile(const v1::JobSpec& spec);

// spec: a checked one. Paths that two fields share come once, with the field that the user set.
std::vector<WrittenPath> WrittenPaths(const v1::JobSpec& spec);

}  // namespace cairn
