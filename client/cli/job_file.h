// A job as the user wrote it: a text-protobuf file and the settings of the command line.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// Errors: INVALID_ARGUMENT, one line for each mistake, "FILE:LINE:COLUMN: what" (lines and columns from 1); NOT_FOUND
// names the file.
absl::StatusOr<v1::JobSpec> LoadJobFile(const std::string& path);
// The same for text in memory, and for any message (what is in it is merged).
absl::StatusOr<v1::JobSpec> ParseJobText(const std::string& text, const std::string& where);
absl::Status ParseText(const std::string& text, const std::string& where, google::protobuf::Message* message);

// The job's model is that of a file: what model.to_json() gave (.json), a .keras archive, a legacy .h5 file or an .onnx
// file, whose weights become initial_weights where the job names none; then the workers must see the file under the
// same path. Errors: INVALID_ARGUMENT or DATA_LOSS name the file. Whether the model itself is valid is checked when the
// job is submitted.
absl::Status TakeModelFile(const std::string& path, v1::JobSpec* spec);

// A relative path is taken from this process' folder, as every program does, so that daemons started elsewhere find the
// same data. Errors: INVALID_ARGUMENT there is nothing.
absl::Status MakeDataPathAbsolute(v1::JobSpec* spec);

// Checkpoints, initial weights and files of callbacks with relative paths are taken from this folder, as data.path is:
// a worker's own is anywhere. They need not exist here.
void MakeFilePathsAbsolute(v1::JobSpec* spec);

// What a cluster would refuse of the job whatever its nodes and its data are. Errors: INVALID_ARGUMENT, as there.
absl::Status CheckWithoutCluster(v1::JobSpec spec);

}  // namespace cairn
