// Loads a job as the user wrote it: a file of text protobuf or JSON, and settings from the command line.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// As ParseJobText (common/formats/job_text.h). Errors: those, with the file's name; NOT_FOUND names the file.
absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path);

// Replaces the job's model by that of a file: the output of model.to_json() (.json), a .keras archive, a legacy .h5
// file or an .onnx file. If the job has no initial_weights, it gets the file's weights; the workers must then see the
// file under the same path. Errors: INVALID_ARGUMENT or DATA_LOSS name the file. The model itself is validated when the
// job is submitted.
absl::Status TakeModelFile(const std::string& path, v1::JobSpec* spec);

// Resolves a relative data.path in the working directory, so that daemons started elsewhere find the
// same data. Errors: INVALID_ARGUMENT: the path does not exist.
absl::Status MakeDataPathAbsolute(v1::JobSpec* spec);

// Likewise for relative paths of checkpoints, initial weights and files of callbacks, since a worker may have any
// working directory. They need not exist here.
void MakeFilePathsAbsolute(v1::JobSpec* spec);
// Errors: INVALID_ARGUMENT: resume_from is a number, and there is no such folder: a job was meant. Before the above.
absl::Status CheckResumeFrom(const v1::JobSpec& spec);
// The payload of that error: the number.
inline constexpr char kJobGivenPayload[] = "cairn-resume-from-job";

// The checks of a cluster that do not depend on its nodes or on the data. Errors: INVALID_ARGUMENT, as from a cluster.
absl::Status CheckWithoutCluster(v1::JobSpec spec);

}  // namespace cairn
