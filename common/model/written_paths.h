// The files of a job other than its data, with their paths as its workers see them: the files that it starts from, and
// where its checkpoints, model files, logs and cached examples go. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"

namespace cairn {

struct WrittenPath {
  std::string field;       // the job's field, for errors: "callbacks[0].csv_logger.filename"
  std::string path;        // for a path template: the directory part of the text before its first name
  bool directory = false;  // a directory, created if it is missing; otherwise a file
  bool whole = false;      // written as whole files, not added to: it may lie in a remote root
};

// Whether a worker has to check a file that the job starts from: resume_from, initial_weights, backup_and_restore.
bool StartsFromFile(const v1::JobSpec& spec);

// spec: must be checked. A path that two fields share is listed once, with the field that the user set.
std::vector<WrittenPath> WrittenPaths(const v1::JobSpec& spec);

}  // namespace cairn
