#include "worker/node/weights_reader.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/roots.h"
#include "common/tensor/dtype.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/limits.h"

namespace cairn {

absl::StatusOr<ReadWeights> ReadWeightsOf(const Graph& graph, const std::string& path, RemoteFiles* remote) {
  ReadWeights read;
  read.path = path;
  SafetensorsFile file;
  CAIRN_RETURN_IF_ERROR(CheckInAnyRoot("weights", path, Access::kRead));
  CAIRN_ASSIGN_OR_RETURN(const bool folder, IsJobFolder(path, remote));
  if (folder) {
    CAIRN_ASSIGN_OR_RETURN(FoundCheckpoint found, OpenCheckpoint(path, {}, nullptr, remote));
    read.path = found.checkpoint.path;
    read.step = found.checkpoint.manifest.step;
    file = std::move(found.checkpoint.model);
  } else {
    CAIRN_ASSIGN_OR_RETURN(file, LoadJobWeights(path, graph, remote, kInspectFetchMax));
  }
  std::map<std::string, const Safetensor*> tensors;
  for (const Safetensor& tensor : file.tensors) tensors[tensor.name] = &tensor;
  read.values = Buffer::Zeros(static_cast<size_t>(graph.space_size()) * sizeof(float));
  for (const Variable& v : graph.variables()) {
    const auto it = tensors.find(v.name);
    if (it == tensors.end()) {
      return absl::FailedPreconditionError(absl::StrCat("variable \"", v.name, "\" is not in ", read.path,
                                                        ", which holds ", tensors.size(), " tensors"));
    }
    const Safetensor& tensor = *it->second;
    if (tensor.shape != v.shape) {
      return absl::FailedPreconditionError(absl::StrCat("variable \"", v.name, "\": shape ", ToString(tensor.shape),
                                                        " in ", read.path, ", ", ToString(v.shape), " in the model"));
    }
    ToFloat({tensor.data.data(), tensor.data.size()}, tensor.dtype,
            read.values.mutable_floats().subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size)));
  }
  return read;
}

}  // namespace cairn
