#include "common/formats/model_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
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
  // Written under a temporary name with the same extension, then renamed.
  const size_t slash = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  const std::string partial = absl::StrCat(path.substr(0, slash), ".partial-", ::getpid(), "-", path.substr(slash));
  absl::Status status;
  switch (ModelFileKindOf(path)) {
    case ModelFileKind::kSafetensors: status = WriteTensors(partial, origin, graph, space); break;
    case ModelFileKind::kKeras: status = WriteKerasArchive(partial, origin.job, graph, space, origin.data); break;
    case ModelFileKind::kKerasWeights: status = WriteKerasWeightsFile(partial, graph, space); break;
    case ModelFileKind::kOnnx: status = WriteOnnxFile(partial, {.model_name = origin.job}, graph, space); break;
    case ModelFileKind::kUnknown:
      return absl::InvalidArgumentError(absl::StrCat(path, ": its ending does not say which kind of file it is to be"));
  }
  if (status.ok() && std::rename(partial.c_str(), path.c_str()) != 0) {
    status = absl::UnavailableError(absl::StrCat(path, ": cannot be put in place: ", std::strerror(errno)));
  }
  if (!status.ok()) std::remove(partial.c_str());
  return status;
}

}  // namespace cairn
