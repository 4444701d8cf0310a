// Goal: operators of constants give what ONNX's specification says, worked out here by hand; the batch's size, which
// nobody knows, stays what it is or is refused; what is wrong or too large is refused before it is made. (Whole graphs:
// old_graphs.py.)
#include "common/model/onnx/onnx_fold.h"

#include <gtest/gtest.h>

#include "common/formats/onnx/onnx_import.h"
#include "tests/unit/formats/onnx/small_model.h"

namespace cairn {
namespace {

using onnx::NodeProto;

OnnxTensor Whole(const Shape& dims, std::vector<int64_t> ints) {
  OnnxTensor tensor;
  tensor.dims = dims;
  tensor.whole = true;
  tensor.ints = std::move(ints);
  return tensor;
}
OnnxTensor List(const std::vector<int64_t>& ints) { return Whole({static_cast<int64_t>(ints.size())}, ints); }
OnnxTensor OfBatch(const std::vector<int64_t>& ints) {
  OnnxTensor tensor = List(ints);
  tensor.of_batch = true;
  return tensor;
}
OnnxTensor Floats(const Shape& dims, std::vector<float> floats) {
  OnnxTensor tensor;
  tensor.dims = dims;
  tensor.floats = std::move(floats);
  return tensor;
}

NodeProto Op(const std::string& type) {
  NodeProto node;
  node.set_op_type(type);
  node.add_output("y");
  return node;
}
NodeProto Op(const std::string& type, const std::string& attribute, int64_t value) {
  NodeProto node = Op(type);
  SetInt(attribute, value, &node);
  return node;
}
NodeProto Op(const std::string& type, const std::string& attribute, const std::vector<int64_t>& values) {
  NodeProto node = Op(type);
  SetInts(attribute, values, &node);
  return node;
}

absl::StatusOr<OnnxTensor> Fold(const NodeProto& node, const std::vector<OnnxTensor>& inputs, int64_t opset = 13) {
  std::vector<const OnnxTensor*> pointers;
  for (const OnnxTensor& input : inputs) pointers.push_back(&input);
  return FoldOnnxNode(node, opset, pointers);
}

void Expect(const NodeProto& node, const std::vector<OnnxTensor>& inputs, const OnnxTensor& wanted) {
  SCOPED_TRACE(node.op_type());
  const absl::StatusOr<OnnxTensor> got = Fold(node, inputs);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->dims, wanted.dims);
  EXPECT_EQ(got->whole, wanted.whole);
  EXPECT_EQ(got->ints, wanted.ints);
  EXPECT_EQ(got->floats, wanted.floats);
}

std::string Error(const NodeProto& node, const std::vector<OnnxTensor>& inputs) {
  return std::string(Fold(node, inputs).status().message());
}

const OnnxTensor kTable = Whole({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(OnnxFold, Arranges) {
  Expect(Op("Transpose"), {kTable}, Whole({3, 2}, {1, 4, 2, 5, 3, 6}));
  Expect(Op("Transpose", "perm", std::vector<int64_t>{0, 1}), {kTable}, kTable);
  Expect(Op("Gather"), {kTable, Whole({}, {-1})}, Whole({3}, {4, 5, 6}));
  Expect(Op("Gather", "axis", 1), {kTable, Whole({1, 2}, {2, 0})}, Whole({2, 1, 2}, {3, 1, 6, 4}));
  Expect(Op("Slice"), {kTable, List({1}), List({INT64_MAX}), List({-1})}, Whole({2, 2}, {2, 3, 5, 6}));
  Expect(Op("Slice"), {kTable, List({-1, -1}), List({INT64_MIN, -3}), List({0, 1}), List({-1, -1})},
         Whole({2, 2}, {6, 5, 3, 2}));
  Expect(Op("Slice"), {kTable, List({0}), List({3}), List({1}), List({2})}, Whole({2, 2}, {1, 3, 4, 6}));
  Expect(Op("Slice"), {kTable, List({2}), List({1}), List({1})}, Whole({2, 0}, {}));
  Expect(Op("Concat", "axis", 1), {kTable, Whole({2, 1}, {7, 8})}, Whole({2, 4}, {1, 2, 3, 7, 4, 5, 6, 8}));
  Expect(Op("Unsqueeze"), {List({5}), List({0, -1})}, Whole({1, 1, 1}, {5}));
  Expect(Op("Squeeze"), {Whole({1, 2, 1}, {5, 6})}, List({5, 6}));
  Expect(Op("Squeeze"), {Whole({1, 2, 1}, {5, 6}), List({-1})}, Whole({1, 2}, {5, 6}));
  Expect(Op("Reshape"), {kTable, List({0, -1, 1})}, Whole({2, 3, 1}, {1, 2, 3, 4, 5, 6}));
  Expect(Op("Flatten", "axis", 0), {kTable}, Whole({1, 6}, {1, 2, 3, 4, 5, 6}));
  Expect(Op("Expand"), {List({7}), List({2, 1})}, Whole({2, 1}, {7, 7}));
  Expect(Op("Range"), {Whole({}, {7}), Whole({}, {1}), Whole({}, {-3})}, List({7, 4}));
  Expect(Op("Shape"), {kTable}, List({2, 3}));
  Expect(Op("Size"), {kTable}, Whole({}, {6}));
  Expect(Op("ConstantOfShape"), {List({2, 2})}, Floats({2, 2}, {0, 0, 0, 0}));
}

TEST(OnnxFold, Computes) {
  Expect(Op("Add"), {kTable, List({10, 20, 30})}, Whole({2, 3}, {11, 22, 33, 14, 25, 36}));
  Expect(Op("Div"), {List({7, -7, INT64_MIN}), List({2, 2, -1})}, List({3, -3, INT64_MIN}));
  Expect(Op("Mul"), {List({INT64_MAX}), List({2})}, List({-2}));  // wraps
  Expect(Op("Sub"), {Floats({2}, {1, 2}), Floats({}, {0.5f})}, Floats({2}, {0.5f, 1.5f}));
  Expect(Op("Pow"), {Floats({2}, {3, 4}), Floats({}, {2})}, Floats({2}, {9, 16}));
  Expect(Op("Max"), {List({1, 5}), List({3}), List({2, 9})}, List({3, 9}));
  Expect(Op("Equal"), {List({1, -1}), List({-1})}, List({0, 1}));
  Expect(Op("Where"), {List({1, 0}), List({7}), List({8, 9})}, List({7, 9}));
  Expect(Op("Not"), {List({1, 0})}, List({0, 1}));
  Expect(Op("Sqrt"), {Floats({2}, {4, 9})}, Floats({2}, {2, 3}));
  Expect(Op("Cast", "to", onnx::TensorProto::INT64), {Floats({2}, {-1.75f, 2.5f})}, List({-1, 2}));
  Expect(Op("Cast", "to", onnx::TensorProto::FLOAT), {List({3})}, Floats({1}, {3}));
  Expect(Op("Cast", "to", onnx::TensorProto::BOOL), {List({3, 0})}, List({1, 0}));
  Expect(Op("ReduceProd", "axes", std::vector<int64_t>{1}), {kTable}, Whole({2, 1}, {6, 120}));
  Expect(Op("ReduceSum", "keepdims", 0), {kTable, List({0})}, List({5, 7, 9}));
  Expect(Op("ReduceMax", "keepdims", 0), {kTable}, Whole({}, {6}));
}

TEST(OnnxFold, KeepsTheBatchOrRefuses) {
  const OnnxTensor shape = OfBatch({kOnnxBatch, 4, 5});
  Expect(Op("Gather"), {shape, List({0, 2})}, List({kOnnxBatch, 5}));
  Expect(Op("Mul"), {shape, List({1})}, List({kOnnxBatch, 4, 5}));
  Expect(Op("Mul"), {shape, List({2})}, List({kOnnxUnknown, 8, 10}));
  Expect(Op("Equal"), {shape, List({-1})}, List({0, 0, 0}));
  Expect(Op("ReduceProd"), {shape}, List({kOnnxUnknown}));
  Expect(Op("ConstantOfShape"), {shape}, Floats({1, 4, 5}, std::vector<float>(20, 0)));
  const auto floats = Fold(Op("Cast", "to", onnx::TensorProto::FLOAT), {shape});
  ASSERT_TRUE(floats.ok());
  Expect(Op("Cast", "to", onnx::TensorProto::INT64), {*floats}, List({kOnnxUnknown, 4, 5}));
  EXPECT_EQ(Error(Op("Reshape"), {List({1}), shape}), "it computes with the batch's size");
  EXPECT_EQ(Error(Op("Less"), {shape, List({1})}), "it compares the batch's size");
  EXPECT_EQ(Error(Op("ConstantOfShape"), {OfBatch({kOnnxUnknown})}), "its shape is computed of the batch's size");
  // The same number out of a file is a number.
  Expect(Op("Mul"), {List({kOnnxBatch}), List({0})}, List({0}));
}

// A Reshape whose rows are made of the batch would mix examples.
TEST(OnnxFold, ABatchThatIsMultipliedIsNoBatch) {
  const auto error = [](int64_t factor, int64_t opset) {
    onnx::ModelProto model = Small();
    model.mutable_opset_import(0)->set_version(opset);
    AddWhole("zero", {0}, &model);
    AddWhole("factor", {factor}, &model);
    AddWhole("rest", {-1}, &model);
    AddNode("Shape", "s", {"relu1_out"}, &model);
    SetInt("axis", 0, AddNode("Gather", "g", {"s_out", "zero"}, &model));
    AddNode("Mul", "m", {"g_out", "factor"}, &model);
    SetInt("axis", 0, AddNode("Concat", "c", {"m_out", "rest"}, &model));
    NodeProto* flat = Find("flat", &model);
    flat->set_op_type("Reshape");
    flat->add_input("c_out");
    return std::string(ImportOnnx(model).status().message());
  };
  EXPECT_EQ(error(1, 13), "");
  EXPECT_EQ(error(2, 13),
            "node \"flat\" (Reshape): its shape is computed of the batch's size, which stays where it is here");
}

TEST(OnnxFold, RefusesWhatIsWrongOrTooLarge) {
  EXPECT_EQ(Error(Op("Gather"), {kTable, List({2})}), "index 2 of 2 numbers");
  EXPECT_EQ(Error(Op("Gather", "axis", 2), {kTable, List({0})}), "axis 2 of a value of 2 dimensions");
  EXPECT_EQ(Error(Op("Gather"), {kTable}), "its input 1 is missing");
  EXPECT_EQ(Error(Op("Transpose", "perm", std::vector<int64_t>{0, 0}), {kTable}),
            "perm is not an order of its input's axes");
  EXPECT_EQ(Error(Op("Slice"), {kTable, List({0}), List({1}), List({0}), List({0})}), "steps of 0");
  EXPECT_EQ(Error(Op("Slice"), {kTable, List({0, 0}), List({1, 1}), List({0, -2})}), "it names axis -2 twice");
  EXPECT_EQ(Error(Op("Concat", "axis", 0), {kTable, List({1})}), "its inputs do not fit one another");
  EXPECT_EQ(Error(Op("Add"), {kTable, List({1, 2})}), "its inputs' shapes do not fit one another");
  EXPECT_EQ(Error(Op("Add"), {kTable, Floats({1}, {1})}), "its inputs are of two types");
  EXPECT_EQ(Error(Op("Div"), {kTable, List({0})}), "it divides by 0");
  EXPECT_EQ(Error(Op("Reshape"), {kTable, List({4, -1})}), "its shape does not fit its input");
  EXPECT_EQ(Error(Op("Reshape"), {kTable, List({-1, -1})}), "a shape of -1");
  EXPECT_EQ(Error(Op("Reshape"), {kTable, List({INT64_MAX, INT64_MAX})}), "a shape of 9223372036854775807");
  EXPECT_EQ(Error(Op("Cast", "to", onnx::TensorProto::INT64), {Floats({1}, {1e30f})}),
            "it casts 1e+30 to a whole number");
  EXPECT_EQ(Error(Op("Cast", "to", onnx::TensorProto::INT32), {List({int64_t{1} << 40})}),
            "it casts 1099511627776 to 32 bits");
  EXPECT_EQ(Error(Op("Relu"), {Floats({1}, {1})}), "a computed constant; fold constants when exporting");
  EXPECT_EQ(Error(Op("Add", "axis", 1), {kTable, kTable}),
            "attribute \"axis\" is not supported; export the model without it");
  const std::string large = "a computed constant of more than 268435456 numbers";
  EXPECT_EQ(Error(Op("ConstantOfShape"), {List({1 << 20, 1 << 20})}), large);
  EXPECT_EQ(Error(Op("Expand"), {List({1}), List({INT64_MAX, 4})}), large);
  EXPECT_EQ(Error(Op("Range"), {Whole({}, {0}), Whole({}, {INT32_MAX}), Whole({}, {1})}), large);
  EXPECT_EQ(Error(Op("ConstantOfShape"), {List(std::vector<int64_t>(17, 1))}), "a constant of 17 dimensions");
  EXPECT_EQ(Error(Op("ConstantOfShape"), {List({-1})}), "a dimension of -1");
}

}  // namespace
}  // namespace cairn
