// Goal: what of recurrent operators, and of values whose batch is not the first axis, cannot be read is refused with
// the operator's name and what to do. What can be read is computed in onnx_runtime.py (recurrent_graphs.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/formats/onnx/onnx_import.h"
#include "tests/unit/formats/onnx/onnx_cases.h"
#include "tests/unit/formats/onnx/small_model.h"

namespace cairn {
namespace {

void SetDims(const std::vector<int64_t>& dims, onnx::ValueInfoProto* value) {  // 0: of any size
  onnx::TypeProto::Tensor& tensor = *value->mutable_type()->mutable_tensor_type();
  tensor.clear_shape();
  tensor.set_elem_type(onnx::TensorProto::FLOAT);
  for (const int64_t dim : dims) {
    if (dim > 0) tensor.mutable_shape()->add_dim()->set_dim_value(dim);
    if (dim == 0) tensor.mutable_shape()->add_dim()->set_dim_param("n");
  }
}

void AddInts(const std::string& name, const std::vector<int64_t>& values, onnx::ModelProto* model) {
  onnx::TensorProto* tensor = model->mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::INT64);
  tensor->add_dims(static_cast<int64_t>(values.size()));
  for (const int64_t value : values) tensor->add_int64_data(value);
}

// x [4, n, 3] -> rnn (2 units) -> rows [4, n, 2], which is the output. h: its last state.
onnx::ModelProto Rows() {
  onnx::ModelProto model;
  model.set_ir_version(7);
  model.add_opset_import()->set_version(13);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.add_input()->set_name("x");
  SetDims({4, 0, 3}, graph.mutable_input(0));
  AddTensor("w", {1, 8, 3}, &model);
  AddTensor("r", {1, 8, 2}, &model);
  AddInts("one", {1}, &model);
  onnx::NodeProto* const rnn = AddNode("LSTM", "rnn", {"x", "w", "r"}, &model);
  rnn->add_output("h");
  rnn->add_output("c");
  SetInt("hidden_size", 2, rnn);
  AddNode("Squeeze", "rows", {"rnn_out", "one"}, &model);
  graph.add_output()->set_name("rows_out");
  return model;
}

struct Case {
  std::string name;
  std::function<void(onnx::ModelProto*)> make;
  std::string error;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

// Appends an operator, whose output becomes the model's.
onnx::NodeProto* Append(const std::string& type, const std::vector<std::string>& inputs, onnx::ModelProto* model) {
  model->mutable_graph()->mutable_output(0)->set_name("new_out");
  return AddNode(type, "new", inputs, model);
}

class RefusedRecurrent : public testing::TestWithParam<Case> {};

std::vector<Case> Cases() {
  return {
      {"BatchFirst",
       [](onnx::ModelProto* m) {
         SetDims({0, 4, 3}, m->mutable_graph()->mutable_input(0));
         AddNode("Relu", "relu", {"x"}, m);
         m->mutable_graph()->mutable_node(0)->set_input(0, "relu_out");
       },
       "node \"rnn\" (LSTM): its input [4,3] with the batch on axis 0 is not [steps,batch,features]; a Transpose has "
       "to "
       "bring the steps before the batch"},
      {"StepsOfAnySize",
       [](onnx::ModelProto* m) {
         SetDims({0, 0, 3}, m->mutable_graph()->mutable_input(0));
       },
       "input \"x\": its dimension 0 (\"n\") has no fixed size; only the batch, dimension 1, may be of any size"},
      {"FirstStatesOfExamples",
       [](onnx::ModelProto* m) {
         AddTensor("h0", {1, 3, 2}, m);
         for (const char* input : {"", "", "h0"}) m->mutable_graph()->mutable_node(0)->add_input(input);
       },
       "node \"rnn\" (LSTM): its first state is a constant that differs from example to example; give one for all of "
       "them"},
      {"FirstStateThatDoesNotFit",
       [](onnx::ModelProto* m) {
         AddTensor("h0", {1, 1, 4}, m);
         for (const char* input : {"", "", "h0"}) m->mutable_graph()->mutable_node(0)->add_input(input);
       },
       "node \"rnn\" (LSTM): its first state [1,1,4] is not [1,batch,2]"},
      {"FirstStateOfAnotherShape",
       [](onnx::ModelProto* m) {
         m->mutable_graph()->add_input()->set_name("h0");
         SetDims({1, 0, 5}, m->mutable_graph()->mutable_input(1));
         m->mutable_graph()->mutable_node(0)->add_input("");
         m->mutable_graph()->mutable_node(0)->add_input("");
         m->mutable_graph()->mutable_node(0)->add_input("h0");
       },
       "node \"rnn\" (LSTM): its first state is neither constant nor one layer's [1,batch,2], but [1,5] with the batch "
       "on "
       "axis 1"},
      {"RowsJoined",
       [](onnx::ModelProto* m) {
         AddInts("shape", {-1, 2}, m);
         Append("Reshape", {"rows_out", "shape"}, m);
       },
       "node \"new\" (Reshape): its shape joins the batch, axis 1, with other axes; transpose its input so that the "
       "batch comes first"},
      {"OverTheBatch", [](onnx::ModelProto* m) { SetInts("axes", {1}, Append("ReduceMean", {"rows_out"}, m)); },
       "node \"new\" (ReduceMean): it works along the batch, axis 1"},
      {"FlattenedSoftmax",
       [](onnx::ModelProto* m) {
         m->mutable_opset_import(0)->set_version(11);
         SetInt("axis", 0, Append("Softmax", {"h"}, m));
       },
       "node \"new\" (Softmax): over the batch, axis 1, as it takes all axes from 0 on as one"},
      {"AddedAlongTheBatch",
       [](onnx::ModelProto* m) {
         AddTensor("each", {3, 2}, m);
         Append("Add", {"rows_out", "each"}, m);
       },
       "node \"new\" (Add): its input 0 has the batch on axis 1; transpose it so that the batch comes first"},
      {"JoinedWithAnotherBatch",
       [](onnx::ModelProto* m) {
         SetInts("perm", {1, 0, 2}, AddNode("Transpose", "turned", {"rows_out"}, m));
         SetInt("axis", 2, Append("Concat", {"rows_out", "turned_out"}, m));
       },
       "node \"new\" (Concat): its inputs have the batch on axes 1 and 0; transpose one of them"},
  };
}
INSTANTIATE_TEST_SUITE_P(All, RefusedRecurrent, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(RefusedRecurrent, NamesTheOperatorAndWhatToDo) {
  onnx::ModelProto model = Rows();
  GetParam().make(&model);
  EXPECT_EQ(ImportOnnx(model).status().message(), GetParam().error);
}

TEST(Recurrent, StepsFirstAreReadAsBatchFirst) {
  const auto imported = ImportOnnx(Rows());
  ASSERT_TRUE(imported.ok()) << imported.status();
  const auto graph = Graph::Build(imported->model);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->input_shape(), (Shape{4, 3}));
  EXPECT_EQ(graph->output().output, (Shape{4, 2}));
}

// What the LSTM of Rows computes of one example, as ONNX's specification writes it down: gates i, o, f, c.
struct NaiveLstm {
  std::vector<double> h, c;
  std::vector<double> rows;  // h of each step

  NaiveLstm(std::vector<double> h0, std::vector<double> c0, const std::vector<float>& x) : h(h0), c(c0) {
    const auto number = [](int64_t i) { return static_cast<double>(0.01f * static_cast<float>(i % 7)); };
    const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
    for (int step = 0; step < 4; ++step) {
      double gates[8];
      for (int64_t g = 0; g < 8; ++g) {
        gates[g] = 0;
        for (int64_t k = 0; k < 3; ++k) gates[g] += number(g * 3 + k) * x[static_cast<size_t>(step * 3 + k)];
        for (int64_t k = 0; k < 2; ++k) gates[g] += number(g * 2 + k) * h[static_cast<size_t>(k)];
      }
      for (size_t u = 0; u < 2; ++u) {
        c[u] = sigmoid(gates[4 + u]) * c[u] + sigmoid(gates[u]) * std::tanh(gates[6 + u]);
        h[u] = sigmoid(gates[2 + u]) * std::tanh(c[u]);
      }
      rows.insert(rows.end(), h.begin(), h.end());
    }
  }
};

std::vector<float> PredictionOf(const onnx::ModelProto& model, const std::vector<float>& x) {
  const auto imported = ImportOnnx(model);
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (!imported.ok()) return {};
  const ImportedGraph read(*imported);
  Batch batch;
  batch.examples = 1;
  batch.inputs = Buffer::CopyOf(x.data(), x.size() * sizeof(float));
  return PredictWith(read.graph, read.values, batch);
}

void ExpectNumbers(const std::vector<float>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6) << i;
}

const std::vector<float> kSequence = {1, -2, 3, 0.5f, 4, -1, 2, 2, -3, 0, 1, 5};

TEST(Recurrent, CellStateIsAPartOfWhatTheLayerGives) {
  const NaiveLstm naive({0, 0}, {0, 0}, kSequence);
  onnx::ModelProto model = Rows();
  ExpectNumbers(PredictionOf(model, kSequence), naive.rows);
  Append("Squeeze", {"c", "zero"}, &model);
  AddInts("zero", {0}, &model);
  model.mutable_graph()->mutable_node()->DeleteSubrange(1, 1);  // nothing reads the rows
  ExpectNumbers(PredictionOf(model, kSequence), naive.c);
  // Beside the last state.
  model = Rows();
  AddInts("zero", {0}, &model);
  AddNode("Squeeze", "last_h", {"h", "zero"}, &model);
  AddNode("Squeeze", "last_c", {"c", "zero"}, &model);
  SetInt("axis", 1, Append("Concat", {"last_h_out", "last_c_out"}, &model));
  model.mutable_graph()->mutable_node()->DeleteSubrange(1, 1);
  ExpectNumbers(PredictionOf(model, kSequence), {naive.h[0], naive.h[1], naive.c[0], naive.c[1]});
}

// A state of zeros beside one that is none is given too.
TEST(Recurrent, ConstantFirstStates) {
  const double second = static_cast<double>(0.01f);  // AddTensor: 0, 0.01
  for (const bool cell : {false, true}) {
    onnx::ModelProto model = Rows();
    AddTensor("state", {1, 1, 2}, &model);
    for (const char* input : {"", "", "state"}) model.mutable_graph()->mutable_node(0)->add_input(input);
    if (cell) model.mutable_graph()->mutable_node(0)->add_input("state");
    const NaiveLstm naive({0, second}, {0, cell ? second : 0}, kSequence);
    ExpectNumbers(PredictionOf(model, kSequence), naive.rows);
    const auto imported = ImportOnnx(model);
    const Graph graph = Graph::Build(imported.value().model).value();
    for (const Variable& v : graph.variables()) {
      const bool state = graph.nodes()[static_cast<size_t>(v.node)].kind == LayerKind::kDense;
      EXPECT_EQ(v.kind, state ? VariableKind::kFrozen : VariableKind::kTrainable) << v.name;
    }
  }
}

}  // namespace
}  // namespace cairn
