// A small ONNX model, and what tests change of it.
#pragma once

#include <string>
#include <vector>

#include "onnx/onnx.pb.h"

namespace cairn {

inline void AddTensor(const std::string& name, const std::vector<int64_t>& dims, onnx::ModelProto* model) {
  onnx::TensorProto* tensor = model->mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  int64_t count = 1;
  for (const int64_t dim : dims) {
    tensor->add_dims(dim);
    count *= dim;
  }
  for (int64_t i = 0; i < count; ++i) tensor->add_float_data(0.01f * static_cast<float>(i % 7));
}

inline onnx::NodeProto* AddNode(const std::string& type, const std::string& name,
                                const std::vector<std::string>& inputs, onnx::ModelProto* model) {
  onnx::NodeProto* node = model->mutable_graph()->add_node();
  node->set_op_type(type);
  node->set_name(name);
  for (const std::string& input : inputs) node->add_input(input);
  node->add_output(name + "_out");
  return node;
}

inline void SetInts(const std::string& name, const std::vector<int64_t>& values, onnx::NodeProto* node) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INTS);
  for (const int64_t value : values) attribute->add_ints(value);
}

inline void SetInt(const std::string& name, int64_t value, onnx::NodeProto* node) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

inline void SetText(const std::string& name, const std::string& value, onnx::NodeProto* node) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::STRING);
  attribute->set_s(value);
}

// [batch, 3, 8, 8] -> conv1 (4 filters, 3x3) -> relu1 -> flat -> fc (5).
inline onnx::ModelProto Small() {
  onnx::ModelProto model;
  model.set_ir_version(7);
  model.add_opset_import()->set_version(13);
  onnx::ValueInfoProto* input = model.mutable_graph()->add_input();
  input->set_name("x");
  input->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  onnx::TensorShapeProto* shape = input->mutable_type()->mutable_tensor_type()->mutable_shape();
  shape->add_dim()->set_dim_param("batch");
  for (const int64_t dim : {3, 8, 8}) shape->add_dim()->set_dim_value(dim);
  AddTensor("w1", {4, 3, 3, 3}, &model);
  AddTensor("b1", {4}, &model);
  AddTensor("w2", {5, 144}, &model);
  AddTensor("b2", {5}, &model);
  AddNode("Conv", "conv1", {"x", "w1", "b1"}, &model);
  AddNode("Relu", "relu1", {"conv1_out"}, &model);
  AddNode("Flatten", "flat", {"relu1_out"}, &model);
  SetInt("transB", 1, AddNode("Gemm", "fc", {"flat_out", "w2", "b2"}, &model));
  model.mutable_graph()->add_output()->set_name("fc_out");
  return model;
}

inline onnx::NodeProto* Find(const std::string& name, onnx::ModelProto* model) {
  for (onnx::NodeProto& node : *model->mutable_graph()->mutable_node()) {
    if (node.name() == name) return &node;
  }
  return nullptr;
}

inline onnx::TensorProto* Tensor(int i, onnx::ModelProto* model) {
  return model->mutable_graph()->mutable_initializer(i);
}

inline void AddWhole(const std::string& name, const std::vector<int64_t>& numbers, onnx::ModelProto* model) {
  onnx::TensorProto* tensor = model->mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::INT64);
  tensor->add_dims(static_cast<int64_t>(numbers.size()));
  for (const int64_t number : numbers) tensor->add_int64_data(number);
}

// Puts an operator between relu1 and flat.
inline onnx::NodeProto* Insert(const std::string& type, const std::vector<std::string>& more, onnx::ModelProto* model) {
  std::vector<std::string> inputs = {"relu1_out"};
  inputs.insert(inputs.end(), more.begin(), more.end());
  onnx::NodeProto* node = AddNode(type, "new", inputs, model);
  Find("flat", model)->set_input(0, "new_out");
  return node;
}

inline void Slice(const std::vector<std::vector<int64_t>>& numbers, onnx::ModelProto* model) {
  const char* names[] = {"starts", "ends", "axes", "steps"};
  std::vector<std::string> inputs;
  for (size_t i = 0; i < numbers.size(); ++i) {
    AddWhole(names[i], numbers[i], model);
    inputs.push_back(names[i]);
  }
  Insert("Slice", inputs, model);
}

}  // namespace cairn
