#include "common/formats/onnx_file.h"

#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/formats/onnx/onnx_export.h"
#include "common/formats/onnx/onnx_external.h"
#include "common/formats/onnx/onnx_fuse.h"
#include "common/formats/onnx/onnx_import.h"
#include "common/formats/plain_file.h"
#include "common/model/onnx/onnx_importer.h"

namespace cairn {

absl::Status WriteOnnxFile(const std::string& path, const OnnxFileOptions& options, const Graph& graph,
                           absl::Span<const float> space) {
  CAIRN_ASSIGN_OR_RETURN(const onnx::ModelProto model,
                         ExportOnnx(graph, space, {options.model_name, options.fold_batch_norm}));
  return WriteFileWhole(path, [&](const std::string& beside) {
    const FileDescriptor file = CreateBeside(beside);
    errno = 0;
    const bool written = file.get() >= 0 && model.SerializeToFileDescriptor(file.get());
    return written ? absl::OkStatus() : FileError(path, "cannot be written");
  });
}

namespace {

absl::StatusOr<onnx::ModelProto> ReadWithWeights(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadFileBytes(path));
  absl::StatusOr<onnx::ModelProto> model =
      ParseOnnxMessage({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!model.ok()) return Annotate(model.status(), path);
  const absl::Status status = LoadOnnxExternalData(std::filesystem::path(path).parent_path().string(), &*model);
  if (!status.ok()) return Annotate(status, path);
  return model;
}

}  // namespace

absl::StatusOr<OnnxFile> ReadOnnxFile(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const onnx::ModelProto model, ReadWithWeights(path));
  absl::StatusOr<ImportedOnnx> imported = ImportOnnx(model);
  if (!imported.ok()) return Annotate(imported.status(), path);
  OnnxFile file;
  file.model = std::move(imported->model);
  for (OnnxVariable& v : imported->variables) {
    file.weights.tensors.push_back(
        {v.name, v1::FLOAT32, v.shape, Buffer::CopyOf(v.values.data(), v.values.size() * sizeof(float))});
  }
  return file;
}

absl::StatusOr<std::vector<OnnxOperatorReport>> ReportOnnxOperators(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const onnx::ModelProto model, ReadWithWeights(path));
  absl::StatusOr<OnnxGraph> graph = CheckOnnx(model);
  if (!graph.ok()) return Annotate(graph.status(), path);
  FuseOnnx(&*graph);
  std::vector<OnnxOperatorReport> report;
  for (auto& [node, status] : OnnxImporter(*graph).Report()) {
    const bool named = !node->name().empty() || node->output().empty();
    report.push_back({named ? node->name() : node->output(0), node->op_type(), std::move(status)});
  }
  return report;
}

}  // namespace cairn
