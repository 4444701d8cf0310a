#include "common/formats/model_file.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/formats/keras_archive.h"
#include "common/formats/onnx_file.h"
#include "common/formats/safetensors.h"
#include "common/model/model_file_name.h"

namespace cairn {
namespace {

absl::Status WriteTensors(const std::string& path, const ModelFileOrigin& origin, const Graph& graph,
                          absl::Span<const float> space) {
  std::vector<SafetensorView> tensors;
  for (const Variable& v : graph.variables()) {
    tensors.push_back({v.name, v.shape, space.subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size))});
  }
  return WriteSafetensors(path, tensors,
                          {{"format", "cairn"}, {"job", origin.job}, {"step", absl::StrCat(origin.step)}});
}

}  // namespace

absl::Status WriteModelFile(const std::string& path, const ModelFileOrigin& origin, const Graph& graph,
                            absl::Span<const float> space) {
  switch (ModelFileKindOf(path)) {
    case ModelFileKind::kSafetensors: return WriteTensors(path, origin, graph, space);
    case ModelFileKind::kKeras: return WriteKerasArchive(path, origin.job, graph, space, origin.data);
    case ModelFileKind::kKerasWeights: return WriteKerasWeightsFile(path, graph, space);
    case ModelFileKind::kOnnx: return WriteOnnxFile(path, {.model_name = origin.job}, graph, space);
    case ModelFileKind::kUnknown: break;
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": its ending does not say which kind of file it is to be"));
}

}  // namespace cairn
