// The two directions, for onnx_runtime.py, which runs the files with other programs.
//
//   onnx_driver export DIR                       NAME.onnx, NAME.folded.onnx where there is something to fold,
//                                                NAME.input, NAME.expected (raw float32) of each case, and of some
//                                                ready-made models
//   onnx_driver import FILE INPUT OUTPUT COUNT   reads FILE; predicts of the COUNT examples in INPUT (raw float32,
//                                                Cairn's order)
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/formats/onnx/onnx_export.h"
#include "common/formats/onnx/onnx_external.h"
#include "common/formats/onnx/onnx_import.h"
#include "common/formats/onnx_file.h"
#include "common/model/ready_made/ready_made.h"
#include "tests/unit/formats/onnx/onnx_cases.h"

namespace cairn {
namespace {

void WriteNumbers(const std::string& path, absl::Span<const float> numbers) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(numbers.data()),
            static_cast<std::streamsize>(numbers.size() * sizeof(float)));
}

void Write(const std::string& path, const std::shared_ptr<const Graph>& graph, int64_t examples) {
  const std::vector<float> values = CaseValues(*graph, 5);
  v1::Loss loss;
  loss.set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  const Batch batch = CaseBatch(*graph, loss, examples, 7);
  for (const bool fold : {false, true}) {
    bool something = !fold;
    for (const Node& node : graph->nodes()) something = something || node.kind == LayerKind::kBatchNormalization;
    if (!something) continue;
    const absl::Status status =
        WriteOnnxFile(absl::StrCat(path, fold ? ".folded.onnx" : ".onnx"), {"case", fold}, *graph, values);
    CAIRN_CHECK(status.ok(), status.ToString());
  }
  WriteNumbers(absl::StrCat(path, ".input"), batch.inputs.floats());
  WriteNumbers(absl::StrCat(path, ".expected"), PredictWith(graph, values, batch));
}

void ExportAll(const std::string& dir) {
  for (const LayerCase& c : OnnxCases()) {
    if (!IsLackedByOnnx(c)) Write(absl::StrCat(dir, "/", c.name), CaseGraph(c), kOnnxExamples);
  }
  for (const auto& [name, side] : {std::pair("resnet18", 32), std::pair("mobilenet_v2", 32),
                                   std::pair("tutorial_resnet", 32), std::pair("lenet", 28)}) {
    v1::ReadyMade wanted;
    wanted.set_name(name);
    for (const int32_t n : {side, side, side == 28 ? 1 : 3}) wanted.add_input_shape(n);
    wanted.set_classes(10);
    Write(absl::StrCat(dir, "/", name),
          std::make_shared<const Graph>(Graph::Build(MakeReadyMade(wanted).value()).value()), 1);
  }
}

int Import(const std::string& path, const std::string& input, const std::string& output, int64_t examples) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  absl::StatusOr<onnx::ModelProto> model = ParseOnnxMessage(bytes);
  absl::Status status = model.status();
  if (status.ok()) status = LoadOnnxExternalData(std::filesystem::path(path).parent_path().string(), &*model);
  const auto imported = status.ok() ? ImportOnnx(*model) : status;
  if (!imported.ok()) {
    std::printf("%s\n", std::string(imported.status().message()).c_str());
    return 1;
  }
  const ImportedGraph back(*imported);
  Batch batch;
  batch.examples = examples;
  batch.label_size = NumElements(back.graph->output().output);
  batch.inputs =
      Buffer::Allocate(static_cast<size_t>(examples * NumElements(back.graph->input_shape())) * sizeof(float));
  std::ifstream(input, std::ios::binary)
      .read(reinterpret_cast<char*>(batch.inputs.mutable_data()), static_cast<std::streamsize>(batch.inputs.size()));
  batch.labels = Buffer::Zeros(static_cast<size_t>(examples * batch.label_size) * sizeof(float));
  WriteNumbers(output, PredictWith(back.graph, back.values, batch));
  for (const Node& node : back.graph->nodes()) std::printf("%s:%s ", node.name.c_str(), LayerTypeName(node.kind));
  std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "export") {
    cairn::ExportAll(argv[2]);
    return 0;
  }
  if (argc == 6 && std::string(argv[1]) == "import")
    return cairn::Import(argv[2], argv[3], argv[4], std::atoll(argv[5]));
  std::fprintf(stderr, "usage: onnx_driver export DIR | import FILE INPUT OUTPUT COUNT\n");
  return 2;
}
