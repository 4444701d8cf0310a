#include "worker/reports/model_saver.h"

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/formats/model_file.h"
#include "common/model/checkpoint_name.h"
#include "common/model/graph.h"
#include "common/tensor/buffer.h"
#include "worker/checkpoint/checkpoint_reader.h"
#include "worker/checkpoint/checkpoint_writer.h"

namespace cairn {

absl::Status SaveModelFile(const v1::SaveModel& command) {
  const v1::JobSpec& spec = command.spec();
  CAIRN_ASSIGN_OR_RETURN(const Graph graph, Graph::Build(spec.model()));
  CAIRN_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(CheckpointPath(spec, command.step())));
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
  CAIRN_RETURN_IF_ERROR(MakeFolders(std::filesystem::path(command.path()).parent_path().string()));
  return WriteModelFile(command.path(), {spec.name(), command.step(), &spec.data()}, graph, values.floats());
}

}  // namespace cairn
