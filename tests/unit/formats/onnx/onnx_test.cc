// Goal: what goes out as ONNX comes in again: by the model's own description with every bit, operator by operator with
// the same outputs; folding batch normalizations changes nothing but rounding. That other programs compute the same of
// these files is onnx_runtime.py's.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "common/formats/model_file.h"
#include "common/formats/onnx/fold_batch_norm.h"
#include "common/formats/onnx/onnx_export.h"
#include "common/formats/weights.h"
#include "common/model/ready_made/ready_made.h"
#include "tests/unit/formats/onnx/onnx_cases.h"

namespace cairn {
namespace {

class OnnxModels : public testing::TestWithParam<LayerCase> {};
INSTANTIATE_TEST_SUITE_P(All, OnnxModels, testing::ValuesIn(OnnxCases()),
                         [](const auto& info) { return info.param.name; });

Batch BatchOf(const Graph& graph) {
  v1::Loss loss;
  loss.set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  return CaseBatch(graph, loss, kOnnxExamples, 7);
}

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(a[i]), 2);
  }
  EXPECT_LE(std::sqrt(difference), tolerance * (std::sqrt(norm) + 1e-3));
}

TEST_P(OnnxModels, ComeBackAsTheyWere) {
  const auto graph = CaseGraph(GetParam());
  const std::vector<float> values = CaseValues(*graph, 5);
  const auto model = ExportOnnx(*graph, values, {.model_name = "m"});
  if (IsLackedByOnnx(GetParam())) {
    EXPECT_THAT(std::string(model.status().message()), testing::HasSubstr("ONNX's recurrent operators have no"));
    return;
  }
  ASSERT_TRUE(model.ok()) << model.status();
  const auto imported = ParseOnnx(model->SerializeAsString());
  ASSERT_TRUE(imported.ok()) << imported.status();
  const ImportedGraph back(*imported);
  ASSERT_EQ(back.graph->nodes().size(), graph->nodes().size());
  for (const Node& node : graph->nodes()) {
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(
        node.layer, back.graph->nodes()[static_cast<size_t>(node.id)].layer))
        << node.name;
  }
  EXPECT_EQ(back.values, values);
  EXPECT_EQ(imported->model.name(), "m");
}

TEST_P(OnnxModels, AreReadOperatorByOperator) {
  const auto graph = CaseGraph(GetParam());
  const std::vector<float> values = CaseValues(*graph, 5);
  auto model = ExportOnnx(*graph, values, {});
  if (IsLackedByOnnx(GetParam())) return;  // ComeBackAsTheyWere looks at the refusal
  ASSERT_TRUE(model.ok()) << model.status();
  model->clear_metadata_props();
  const auto imported = ImportOnnx(*model);
  for (const Node& node : graph->nodes()) {
    const bool adds_pairs =
        node.kind == LayerKind::kAdditiveAttention ||
        (node.kind == LayerKind::kAttention && node.layer.attention().score_mode() == v1::Attention::CONCAT);
    const bool both_ways = node.kind == LayerKind::kBidirectional && node.output.size() > 1;
    const char* const refused = node.kind == LayerKind::kMultiHeadAttention ? "a product of two layers' outputs"
                                : adds_pairs                                ? "(Add): its inputs have different shapes"
                                : both_ways                                 ? "keeps its own order there"
                                : node.kind == LayerKind::kDiscretization   ? "only to floats, or to ids for a Gather"
                                                                            : nullptr;
    if (refused == nullptr) continue;
    EXPECT_THAT(std::string(imported.status().message()), testing::HasSubstr(refused));
    return;
  }
  if (graph->nodes().size() == 2 && graph->output().kind == LayerKind::kDropout) {
    EXPECT_EQ(imported.status().message(), "its output is its input");
    return;
  }
  ASSERT_TRUE(imported.ok()) << imported.status();
  const ImportedGraph back(*imported);
  EXPECT_EQ(back.graph->input_shape(), graph->input_shape());
  const Batch batch = BatchOf(*graph);
  ExpectNear(PredictWith(graph, values, batch), PredictWith(back.graph, back.values, batch), 2e-6);
}

TEST_P(OnnxModels, KeepTheirOutputsWhenBatchNormalizationsAreFolded) {
  const auto graph = CaseGraph(GetParam());
  const std::vector<float> values = CaseValues(*graph, 5);
  const auto folded = FoldBatchNormalizations(*graph, values);
  ASSERT_TRUE(folded.ok()) << folded.status();
  const Batch batch = BatchOf(*graph);
  ExpectNear(PredictWith(graph, values, batch),
             PredictWith(std::make_shared<const Graph>(folded->graph), folded->space, batch), 2e-6);
}

int CountOf(const Graph& graph, LayerKind kind) {
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.kind == kind;
  return count;
}

TEST(FoldBatchNorm, LeavesNoneBehindALayerThatCanTakeIt) {
  for (const LayerCase& c : MoreOnnxCases()) {
    const auto graph = CaseGraph(c);
    const auto folded = FoldBatchNormalizations(*graph, CaseValues(*graph, 5)).value();
    EXPECT_EQ(CountOf(folded.graph, LayerKind::kBatchNormalization),
              c.name == "BatchNormalizationBeforeConvolution" ? 1 : 0)
        << c.name;
  }
}

int OperatorsOf(const onnx::ModelProto& model, const std::string& type) {
  int count = 0;
  for (const onnx::NodeProto& node : model.graph().node()) count += node.op_type() == type;
  return count;
}

// One at the entry, one where a dense layer needs the channels last: none between.
TEST(OnnxExport, TransposesOnlyAtTheEnds) {
  v1::ReadyMade wanted;
  wanted.set_name("mnist_cnn");
  const Graph graph = Graph::Build(MakeReadyMade(wanted).value()).value();
  const auto model = ExportOnnx(graph, std::vector<float>(static_cast<size_t>(graph.space_size()), 0.1f), {}).value();
  EXPECT_EQ(OperatorsOf(model, "Transpose"), 2);
  EXPECT_EQ(model.producer_name(), "cairn");
  EXPECT_EQ(model.opset_import(0).version(), 13);
  EXPECT_EQ(model.graph().input(0).type().tensor_type().shape().dim(0).dim_param(), "batch");
  EXPECT_EQ(model.graph().input(0).name(), graph.nodes().front().name);
  EXPECT_EQ(model.graph().output(0).name(), graph.output().name);
}

// A file whose graph somebody changed is read as it is now, not as its description says.
TEST(OnnxImport, TheDescriptionHasToMatchTheGraph) {
  const auto graph =
      CaseGraph({"", "layers { input { shape: 5 } } layers { name: 'a' dense { units: 3 activation: RELU } }"});
  auto model = ExportOnnx(*graph, CaseValues(*graph, 5), {}).value();
  for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
    if (node.op_type() == "Relu") node.set_op_type("Tanh");
  }
  const auto imported = ImportOnnx(model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->model.layers(imported->model.layers_size() - 1).activation().activation(), v1::TANH);
}

// What a ModelCheckpoint writes is what initial_weights and evaluations read.
TEST(OnnxFile, HoldsEveryBitOfAModelsVariables) {
  const auto graph = CaseGraph(MoreOnnxCases().back());
  const std::vector<float> values = CaseValues(*graph, 5);
  const std::string path = testing::TempDir() + "/onnx_test_model.onnx";
  ASSERT_EQ(WriteModelFile(path, {"job", 7}, *graph, values), absl::OkStatus());
  const auto file = LoadWeights(path, *graph);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors.size(), graph->variables().size());
  for (const Variable& v : graph->variables()) {
    const auto tensor =
        std::find_if(file->tensors.begin(), file->tensors.end(), [&](const Safetensor& t) { return t.name == v.name; });
    ASSERT_NE(tensor, file->tensors.end()) << v.name;
    EXPECT_EQ(tensor->shape, v.shape);
    EXPECT_TRUE(std::equal(tensor->data.floats().begin(), tensor->data.floats().end(), values.begin() + v.offset))
        << v.name;
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_EQ(std::string(LoadWeights(path, *graph).status().message()), path + ": not an ONNX file, or a damaged one");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace cairn
