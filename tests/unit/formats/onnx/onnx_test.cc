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
#include "common/formats/onnx/onnx_constants.h"
#include "common/formats/onnx/onnx_export.h"
#include "common/formats/weights.h"
#include "common/model/inner_node.h"
#include "common/model/job_outputs.h"
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
    EXPECT_THAT(
        std::string(model.status().message()),
        testing::AnyOf(testing::HasSubstr("ONNX's recurrent operators have no"),
                       testing::HasSubstr("is not written as ONNX"), testing::HasSubstr("ONNX has no operator for")));
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
    const char* const refused = node.kind == LayerKind::kMultiHeadAttention ? "a product of two layers' outputs"
                                : adds_pairs                                ? "(Add): its inputs have different shapes"
                                : FoldsSteps(node)                          ? "(Reshape)"
                                // Behind it may stand OneHot or Mod, which Cairn has no layers for.
                                : node.kind == LayerKind::kDiscretization && !imported.ok()
                                    ? "Cairn has no layer for this operator"
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

// ---- several outputs ----

// Batch normalizations behind: a layer with one reader (fc), an output, one that is an output itself, a second call,
// a layer that two read. "same" gives what "head" gives.
constexpr char kOutputsModel[] = R"(
  layers { name: "x" input { shape: 4 } }
  layers { name: "fc" dense { units: 5 } }
  layers { name: "fc_bn" batch_normalization {} }
  layers { name: "head" inputs: "fc_bn" dense { units: 3 } }
  layers { name: "head_bn" batch_normalization {} }
  layers { name: "last" inputs: "fc_bn" dense { units: 2 } }
  layers { name: "last_bn" batch_normalization {} }
  layers { name: "twice" inputs: "fc_bn" dense { units: 5 } }
  layers { name: "again" shares: "twice" inputs: "twice" }
  layers { name: "again_bn" batch_normalization {} }
  layers { name: "read" inputs: "fc_bn" dense { units: 2 } }
  layers { name: "read_bn" batch_normalization {} }
  layers { name: "all" inputs: ["head_bn", "again_bn", "read_bn", "read"] concatenate {} }
  layers { name: "same" inputs: "head" dropout { rate: 0.5 } }
  outputs: ["last_bn", "same", "all", "head"])";

// All outputs side by side.
std::vector<float> PredictAll(const v1::Model& model, const std::vector<float>& values) {
  const Graph graph = Graph::Build(model).value();
  const auto joined = std::make_shared<const Graph>(BuildJoined(model, JoinedOutputsOf(graph, v1::JobSpec())).value());
  return PredictWith(joined, values, BatchOf(graph));
}

TEST(OnnxOutputs, ComeBackAndAreFoldedWhereThatChangesNothing) {
  const v1::Model model = FromText<v1::Model>(kOutputsModel);
  const Graph graph = Graph::Build(model).value();
  const std::vector<float> values = CaseValues(graph, 5), expected = PredictAll(model, values);
  for (const bool fold : {false, true}) {
    SCOPED_TRACE(fold);
    const auto file = ExportOnnx(graph, values, {.model_name = "m", .fold_batch_norm = fold});
    ASSERT_TRUE(file.ok()) << file.status();
    std::vector<std::string> made, outputs;
    for (const onnx::NodeProto& node : file->graph().node()) made.push_back(node.output(0));
    for (const onnx::ValueInfoProto& output : file->graph().output()) {
      outputs.push_back(output.name());
      EXPECT_THAT(made, testing::Contains(output.name())) << "an operator gives it";
    }
    EXPECT_THAT(outputs, testing::ElementsAre("last_bn", "same", "all", "head"));
    const auto imported = ParseOnnx(file->SerializeAsString());
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_THAT(imported->model.outputs(), testing::ElementsAre("last_bn", "same", "all", "head"));
    const ImportedGraph back(*imported);
    ExpectNear(expected, PredictAll(imported->model, back.values), fold ? 2e-6 : 0);
    std::vector<std::string> left;
    for (const Node& node : back.graph->nodes()) {
      if (node.kind == LayerKind::kBatchNormalization) left.push_back(node.name);
    }
    if (fold) {
      EXPECT_THAT(left, testing::ElementsAre("head_bn", "last_bn", "again_bn", "read_bn"));
    } else {
      EXPECT_EQ(left.size(), 5u);
      EXPECT_EQ(back.values, values);
    }
  }
}

// A shared normalization is one for all its calls.
TEST(FoldBatchNorm, LeavesCallsOfOneLayerAlone) {
  const auto graph = CaseGraph({"", R"(layers { input { shape: 4 } } layers { name: "a" dense { units: 3 } }
    layers { name: "n" trainable: false batch_normalization {} } layers { name: "b" dense { units: 3 } }
    layers { name: "m" shares: "n" })"});
  const std::vector<float> values = CaseValues(*graph, 5);
  const auto folded = FoldBatchNormalizations(*graph, values);
  ASSERT_TRUE(folded.ok()) << folded.status();
  EXPECT_EQ(folded->graph.nodes().size(), graph->nodes().size());
  EXPECT_EQ(folded->space, values);
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

// A description that is as deep as no model is, or whose constants are larger than the file, is passed over.
TEST(OnnxImport, ADescriptionOfAnythingIsNotMade) {
  const auto graph = CaseGraph({"", "layers { input { shape: 5 } } layers { name: 'a' dense { units: 3 } }"});
  const auto model = ExportOnnx(*graph, CaseValues(*graph, 5), {}).value();
  std::string deep = "layers { input { shape: [2, 5] } } ", end;
  for (int i = 0; i < 100'000; ++i) {
    deep += i == 0 ? "layers { time_distributed { layer { " : "time_distributed { layer { ";
    end += "} } ";
  }
  const std::string sequence = "layers { input { shape: [1000000, 2] } } layers { name: 'l' ";
  const std::string picture = "layers { input { shape: [1000000, 1, 1] } } layers { name: 'l' ";
  for (const std::string& text :
       {deep + end + "}", sequence + "inputs: ['input_layer', 'input_layer'] attention { use_causal_mask: true } }",
        sequence + "lstm { units: 1 go_backwards: true return_sequences: true } }",
        picture + "resizing { height: 1000001 width: 1 } }",
        picture + "resizing { height: 1000 width: 1000 pad_to_aspect_ratio: true fill_value: 1 } }",
        picture + "adaptive_max_pooling2d { output_size: [1000000, 1] } }",
        picture + "adaptive_average_pooling2d { output_size: [999999, 1] } }",
        std::string("layers { input { shape: 1 } } layers { name: 'l' integer_lookup { vocabulary: [1, 2] idf_weights: "
                    "[1, 2] output_mode: TF_IDF max_tokens: 16777216 pad_to_max_tokens: true } }")}) {
    onnx::ModelProto other = model;
    other.mutable_metadata_props(0)->set_value(text);
    const auto imported = ImportOnnx(other);
    ASSERT_TRUE(imported.ok()) << imported.status();
    EXPECT_EQ(imported->model.layers_size(), 2) << "it is read as the graph that it is";
    if (text[0] != 'l' || text.size() > 10'000) continue;
    const absl::StatusOr<Graph> described = Graph::Build(FromText<v1::Model>(text));
    ASSERT_TRUE(described.ok()) << text << described.status();
    EXPECT_FALSE(ConstantsFit(*described, 10'000)) << text;
  }
}

// The estimate is that of what is written.
TEST(OnnxImport, TheConstantsOfAFileFit) {
  for (const LayerCase& c : OnnxCases()) {
    const auto graph = CaseGraph(c);
    const auto model = ExportOnnx(*graph, CaseValues(*graph, 5), {});
    if (!model.ok()) continue;
    EXPECT_TRUE(ConstantsFit(*graph, static_cast<int64_t>(model->ByteSizeLong()))) << c.name;
  }
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
