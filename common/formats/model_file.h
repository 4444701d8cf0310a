// Writes a trained model to a file, in the format of the file extension (common/model/model_file_name.h).
//
// A free function, blocking; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

struct ModelFileOrigin {
  std::string job;  // its name
  int64_t step = 0;
  const v1::Data* data = nullptr;  // of the job: its augmentation becomes layers of a .keras file
};

// `space`: the parameter space. The file is complete or unchanged. Errors: INVALID_ARGUMENT: unknown file extension;
// those of the format's writer.
absl::Status WriteModelFile(const std::string& path, const ModelFileOrigin& origin, const Graph& graph,
                            absl::Span<const float> space);

}  // namespace cairn
