#include "common/formats/weights.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_h5.h"
#include "common/formats/onnx_file.h"
#include "common/formats/torch_layout.h"

namespace cairn {
namespace {

absl::StatusOr<SafetensorsFile> LoadSafetensors(const std::string& path, const Graph& graph) {
  CAIRN_ASSIGN_OR_RETURN(SafetensorsFile file, ReadSafetensors(path, SafetensorsIntegers::kLeave));
  if (!IsTorchLayout(file, graph)) return file;
  absl::StatusOr<SafetensorsFile> converted = FromTorchLayout(file, graph);
  if (!converted.ok()) return Annotate(converted.status(), path);
  return converted;
}

}  // namespace

absl::StatusOr<SafetensorsFile> LoadWeights(const std::string& path, const Graph& graph) {
  if (absl::EndsWithIgnoreCase(path, ".safetensors")) return LoadSafetensors(path, graph);
  if (graph.output().kind == LayerKind::kExternal) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": a program computes the model, and its variables are read from a checkpoint or a .safetensors file"));
  }
  if (absl::EndsWithIgnoreCase(path, ".keras")) {
    const absl::StatusOr<bool> legacy = IsHdf5File(path);
    if (legacy.ok() && *legacy) return ReadKerasWeightsFile(path, graph);
    return ReadKerasArchiveWeights(path, &graph);
  }
  for (const char* ending : {".h5", ".hdf5"}) {
    if (absl::EndsWithIgnoreCase(path, ending)) return ReadKerasWeightsFile(path, graph);
  }
  if (absl::EndsWithIgnoreCase(path, ".onnx")) {
    CAIRN_ASSIGN_OR_RETURN(OnnxFile file, ReadOnnxFile(path));
    return std::move(file.weights);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": is neither a checkpoint's directory nor a .safetensors, .keras, .h5 or .onnx file"));
}

}  // namespace cairn
