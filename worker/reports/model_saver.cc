#include "worker/reports/model_saver.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/files.h"
#include "common/formats/model_file.h"
#include "common/model/checkpoint_name.h"
#include "common/model/graph.h"
#include "common/tensor/buffer.h"
#include "worker/checkpoint/checkpoint_reader.h"

namespace cairn {
namespace {

// A writer of models needs a file of this machine: it is made here, and then uploaded.
absl::Status WriteRemotely(const std::string& path, RemoteFiles& remote,
                           const std::function<absl::Status(const std::string& local)>& write) {
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<StagedFile> staged, remote.Stage(path));
  if (const absl::Status status = write(staged->local()); !status.ok())
    return absl::Status(status.code(), absl::StrReplaceAll(status.message(), {{staged->local(), path}}));
  return Annotate(staged->Put(), path);
}

}  // namespace

absl::Status SaveModelFile(const v1::SaveModel& command, RemoteFiles* remote) {
  const v1::JobSpec& spec = command.spec();
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  CAIRN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(CheckpointPath(spec, command.step()), remote));
  CAIRN_RETURN_IF_ERROR(CheckWrittenBy(command.job_id(), spec, checkpoint));
  std::map<std::string, const Safetensor*> tensors;
  for (const Safetensor& tensor : checkpoint.model.tensors) tensors[tensor.name] = &tensor;
  Buffer values = Buffer::Zeros(static_cast<size_t>(graph.space_size()) * sizeof(float));
  for (const Variable& v : graph.variables()) {
    const auto tensor = tensors.find(v.name);
    if (tensor == tensors.end() || tensor->second->shape != v.shape) {
      return absl::FailedPreconditionError(absl::StrCat(checkpoint.path, ": it is not of this job's model: variable \"",
                                                        v.name, "\" is missing or has another shape"));
    }
    const auto from = tensor->second->data.floats();
    std::copy(from.begin(), from.end(), values.mutable_floats().begin() + v.offset);
  }
  const auto write = [&](const std::string& path) {
    return WriteModelFile(path, {spec.name(), command.step(), &spec.data()}, graph, values.floats());
  };
  if (remote != nullptr && remote->Has(command.path())) return WriteRemotely(command.path(), *remote, write);
  CAIRN_RETURN_IF_ERROR(MakeFolders(std::filesystem::path(command.path()).parent_path().string()));
  return write(command.path());
}

}  // namespace cairn
