// Reads the files of checkpoints, and of weights, from where they lie: a folder of this machine, or a remote root.
//
// Free functions, blocking; any thread. remote: null: every path is of this machine. Paths are the job's, and errors
// name them. Errors of a remote root: those of RemoteFiles.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/remote_files.h"
#include "common/base/status.h"
#include "common/formats/safetensors.h"
#include "common/model/graph.h"
#include "common/tensor/buffer.h"

namespace cairn {

// The whole file. Errors: NOT_FOUND; INVALID_ARGUMENT: it has more than bytes_max.
absl::StatusOr<Buffer> ReadJobFile(const std::string& path, size_t bytes_max, RemoteFiles* remote);

// The header of a safetensors file of a remote root, of which nothing else is read. file: as it was looked at. Errors:
// those of ReadSafetensorsHeader.
absl::StatusOr<SafetensorsFile> ReadRemoteHeader(const std::string& path, const RemoteFiles::File& file,
                                                 SafetensorsIntegers integers, RemoteFiles& remote);

// Whether there is a file of this path.
absl::StatusOr<bool> HasJobFile(const std::string& path, RemoteFiles* remote);

// Whether it is a folder: a path of S3 is one where a checkpoint lies at it or directly below it.
absl::StatusOr<bool> IsJobFolder(const std::string& path, RemoteFiles* remote);

// The names that begin with kStepPrefix in a folder; of S3 of those alone that have a manifest: others are being
// written, or left by a writer that died. Errors: NOT_FOUND: there is nothing.
absl::StatusOr<std::vector<std::string>> StepsIn(const std::string& folder, RemoteFiles* remote);

// LoadWeights (common/formats/weights.h) of a file; a remote one is fetched first, and waited for at most fetch_max.
absl::StatusOr<SafetensorsFile> LoadJobWeights(const std::string& path, const Graph& graph, RemoteFiles* remote,
                                               absl::Duration fetch_max);
// The same for who looks at names and shapes alone: of a remote .safetensors file with Keras' names the header is read,
// and `data` is empty.
absl::StatusOr<SafetensorsFile> LoadJobWeightShapes(const std::string& path, const Graph& graph, RemoteFiles* remote,
                                                    absl::Duration fetch_max);

}  // namespace cairn
