// Goal: models of other programs with several inputs and outputs: they are in the file's order, pictures come with the
// channels last beside rows of numbers, and the variables are the file's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/formats/onnx/onnx_export.h"
#include "common/formats/onnx/onnx_import.h"
#include "tests/unit/formats/onnx/onnx_cases.h"
#include "tests/unit/formats/onnx/small_model.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;

onnx::ValueInfoProto ValueOf(const std::string& name, const std::vector<int64_t>& dims) {
  onnx::ValueInfoProto value;
  value.set_name(name);
  onnx::TypeProto::Tensor& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(onnx::TensorProto::FLOAT);
  tensor.mutable_shape()->add_dim()->set_dim_param("batch");
  for (const int64_t dim : dims) tensor.mutable_shape()->add_dim()->set_dim_value(dim);
  return value;
}

std::vector<std::string> NamesOf(const Graph& graph, const std::vector<int>& ids) {
  std::vector<std::string> names;
  for (const int id : ids) names.push_back(graph.nodes()[static_cast<size_t>(id)].name);
  return names;
}

// Small() with a second head on the picture's features, joined with a row of numbers.
onnx::ModelProto TwoAndTwo() {
  onnx::ModelProto model = Small();
  *model.mutable_graph()->add_input() = ValueOf("row", {3});
  const std::string features = model.graph().output(0).name();
  onnx::NodeProto* const join = AddNode("Concat", "join", {features, "row"}, &model);
  SetInt("axis", 1, join);
  AddTensor("other.weight", {2, 8}, &model);
  AddTensor("other.bias", {2}, &model);
  SetInt("transB", 1, AddNode("Gemm", "other", {join->output(0), "other.weight", "other.bias"}, &model));
  *model.mutable_graph()->add_output() = ValueOf("other_out", {2});
  return model;
}

TEST(OnnxSeveral, InputsAndOutputsAreInTheFilesOrder) {
  const auto imported = ImportOnnx(TwoAndTwo());
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto graph = Graph::Build(imported->model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(NamesOf(*graph, graph->inputs()), ElementsAre("x", "row"));
  EXPECT_EQ(graph->nodes()[0].output, (Shape{8, 8, 3}));
  EXPECT_EQ(graph->nodes()[1].output, (Shape{3}));
  EXPECT_THAT(NamesOf(*graph, graph->outputs()), ElementsAre("fc_1", "other"));
  EXPECT_EQ(graph->nodes()[static_cast<size_t>(graph->outputs()[0])].output, (Shape{5}));
  EXPECT_EQ(graph->nodes()[static_cast<size_t>(graph->outputs()[1])].output, (Shape{2}));
}

// Read from what Cairn wrote, but without its own description.
TEST(OnnxSeveral, ComeBackWithTheirVariables) {
  const auto graph = Graph::Build(FromText<v1::Model>(R"(
      layers { name: "left" input { shape: [6, 6, 2] } }
      layers { name: "right" input { shape: [5] } }
      layers { name: "conv" inputs: "left" conv2d { filters: 3 kernel_size: 3 } }
      layers { name: "flat" flatten { } }
      layers { name: "wide" inputs: "right" dense { units: 4 activation: TANH } }
      layers { name: "both" inputs: ["flat", "wide"] concatenate { } }
      layers { name: "a" inputs: "both" dense { units: 2 } }
      layers { name: "b" inputs: "both" dense { units: 3 } }
      outputs: ["b", "a"])"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<float> values = CaseValues(*graph, 5);
  auto model = ExportOnnx(*graph, values, {});
  ASSERT_TRUE(model.ok()) << model.status();
  model->clear_metadata_props();
  const auto imported = ImportOnnx(*model);
  ASSERT_TRUE(imported.ok()) << imported.status();
  const ImportedGraph back(*imported);
  EXPECT_THAT(NamesOf(*back.graph, back.graph->inputs()), ElementsAre("left", "right"));
  EXPECT_EQ(back.graph->outputs().size(), 2u);
  EXPECT_EQ(back.graph->nodes()[static_cast<size_t>(back.graph->outputs()[0])].output, (Shape{3}));
  EXPECT_EQ(back.graph->nodes()[static_cast<size_t>(back.graph->outputs()[1])].output, (Shape{2}));
  EXPECT_EQ(back.graph->parameters(), graph->parameters());
}

TEST(OnnxSeveral, OutputsOfEqualNumbersAreRefused) {
  onnx::ModelProto model = TwoAndTwo();
  AddNode("Identity", "same", {"other_out"}, &model);
  *model.mutable_graph()->add_output() = ValueOf("same_out", {2});
  EXPECT_THAT(std::string(ImportOnnx(model).status().message()),
              testing::HasSubstr("\"same_out\" and another one are the same numbers"));
}

}  // namespace
}  // namespace cairn
