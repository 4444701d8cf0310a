#include "common/formats/onnx/onnx_fuse.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>

#include "common/model/onnx/onnx_attributes.h"
#include "common/model/onnx/onnx_tensor.h"

namespace cairn {
namespace {

using Node = onnx::NodeProto;

class Fuser {
 public:
  explicit Fuser(OnnxGraph* graph) : graph_(graph) {
    graph_->made_nodes = std::make_shared<std::deque<Node>>();
    for (const Node* node : graph_->nodes) {
      for (const std::string& output : node->output()) makers_[output] = node;
    }
  }

  void Fuse() {
    for (const Node* node : graph_->nodes) {
      const std::string& type = node->op_type();
      if (type == "Sigmoid") FuseSwish(node);
      if (type == "Erf") FuseGelu(node);
      if (type == "Tanh") FuseGeluTanh(node);
      if (type == "Sqrt") FuseLayerNormalization(node);
      if (type == "InstanceNormalization") FuseGroupNormalization(node);
    }
    std::vector<const Node*> nodes;
    for (const Node* node : graph_->nodes) {
      const auto it = replaced_.find(node);
      if (it == replaced_.end()) nodes.push_back(node);
      if (it != replaced_.end() && it->second != nullptr) nodes.push_back(it->second);
    }
    graph_->nodes = std::move(nodes);
    FindOnnxUsers(graph_);
  }

 private:
  using Nodes = std::vector<const Node*>;

  // The operator that makes the value, if it has this type and number of inputs; else nullptr.
  const Node* Maker(const std::string& value, const char* type, int inputs) const {
    const auto it = makers_.find(value);
    return it != makers_.end() && it->second->op_type() == type && it->second->input_size() >= inputs ? it->second
                                                                                                      : nullptr;
  }

  const Node* OnlyUser(const Node* node, const char* type) const {
    const auto it = graph_->users.find(node->output(0));
    if (it == graph_->users.end() || it->second.size() != 1 || it->second[0] == nullptr) return nullptr;
    const Node* user = it->second[0];
    return user->op_type() == type && user->input_size() == 2 ? user : nullptr;
  }

  std::optional<float> Scalar(const std::string& value) const {
    const auto it = graph_->constants.find(value);
    if (it == graph_->constants.end()) return std::nullopt;
    if (NumElements({it->second->dims().begin(), it->second->dims().end()}) != 1) return std::nullopt;
    const OnnxTensor tensor = ReadOnnxTensor(*it->second);
    return tensor.whole ? static_cast<float>(tensor.ints[0]) : tensor.floats[0];
  }

  bool IsNear(const std::string& value, double wanted) const {
    const std::optional<float> scalar = Scalar(value);
    return scalar.has_value() && std::abs(*scalar - wanted) <= 1e-3 * std::abs(wanted);
  }

  bool IsConstant(const std::string& value) const { return graph_->constants.contains(value); }

  static const std::string& Other(const Node* node, const std::string& value) {
    return node->input(0) == value ? node->input(1) : node->input(0);
  }

  // Puts `fused` in place of the pattern's last operator. The pattern's values must be used only inside it.
  void Replace(const Nodes& pattern, Node fused) {
    const Node* last = pattern.back();
    for (const Node* node : pattern) {
      if (node == last) continue;
      for (const Node* user : graph_->users[node->output(0)]) {
        if (std::find(pattern.begin(), pattern.end(), user) == pattern.end()) return;
      }
    }
    fused.set_name(last->name());
    fused.add_output(last->output(0));
    graph_->made_nodes->push_back(std::move(fused));
    const Node* made = &graph_->made_nodes->back();
    for (const Node* node : pattern) {
      for (const std::string& input : node->input()) std::erase(graph_->users[input], node);
      replaced_[node] = node == last ? made : nullptr;
    }
    for (const std::string& input : made->input()) {
      if (!input.empty()) graph_->users[input].push_back(made);
    }
    makers_[last->output(0)] = made;
  }

  static Node Make(const char* type, std::initializer_list<std::string> inputs) {
    Node node;
    node.set_op_type(type);
    for (const std::string& input : inputs) node.add_input(input);
    return node;
  }

  static void AddInts(const char* name, const std::vector<int64_t>& values, Node* node) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INTS);
    attribute->mutable_ints()->Assign(values.begin(), values.end());
  }

  static void AddInt(const char* name, int64_t value, Node* node) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(value);
  }

  static void AddEpsilon(float value, Node* node) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name("epsilon");
    attribute->set_type(onnx::AttributeProto::FLOAT);
    attribute->set_f(value);
  }

  void FuseSwish(const Node* sigmoid) {
    if (sigmoid->input_size() != 1) return;
    const Node* product = OnlyUser(sigmoid, "Mul");
    if (product == nullptr || Other(product, sigmoid->output(0)) != sigmoid->input(0)) return;
    Replace({sigmoid, product}, Make("Swish", {sigmoid->input(0)}));
  }

  // From f(x) + 1 on: multiplications by x and by 0.5 in any order, or by x * 0.5. Appends them to the pattern.
  bool FindHalfX(const Node* sum, const std::string& x, Nodes* pattern) const {
    bool half = false, by_x = false;
    const Node* at = sum;
    while (!half || !by_x) {
      const Node* product = OnlyUser(at, "Mul");
      if (product == nullptr) return false;
      const std::string& other = Other(product, at->output(0));
      const Node* half_x = Maker(other, "Mul", 2);
      if (!half && IsNear(other, 0.5)) {
        half = true;
      } else if (!by_x && other == x) {
        by_x = true;
      } else if (!half && !by_x && half_x != nullptr && (half_x->input(0) == x || half_x->input(1) == x) &&
                 IsNear(Other(half_x, x), 0.5)) {
        half = by_x = true;
        pattern->push_back(half_x);
      } else {
        return false;
      }
      pattern->push_back(product);
      at = product;
    }
    return true;
  }

  void FuseGelu(const Node* erf) {
    if (erf->input_size() != 1) return;
    const Node* div = Maker(erf->input(0), "Div", 2);
    const Node* mul = Maker(erf->input(0), "Mul", 2);
    std::string x;
    if (div != nullptr && IsNear(div->input(1), std::sqrt(2.0))) x = div->input(0);
    if (mul != nullptr && IsNear(mul->input(1), std::sqrt(0.5))) x = mul->input(0);
    if (mul != nullptr && IsNear(mul->input(0), std::sqrt(0.5))) x = mul->input(1);
    const Node* sum = OnlyUser(erf, "Add");
    if (x.empty() || sum == nullptr || !IsNear(Other(sum, erf->output(0)), 1)) return;
    Nodes pattern = {div != nullptr ? div : mul, erf, sum};
    if (FindHalfX(sum, x, &pattern)) Replace(pattern, Make("Gelu", {x}));
  }

  // sqrt(2 / pi) * (x + 0.044715 * x^3) before the Tanh.
  void FuseGeluTanh(const Node* tanh) {
    if (tanh->input_size() != 1) return;
    const Node* scaled = Maker(tanh->input(0), "Mul", 2);
    const Node* sum = OnlyUser(tanh, "Add");
    if (scaled == nullptr || sum == nullptr || !IsNear(Other(sum, tanh->output(0)), 1)) return;
    const bool second = IsNear(scaled->input(1), std::sqrt(2 / M_PI));
    if (!second && !IsNear(scaled->input(0), std::sqrt(2 / M_PI))) return;
    const Node* inner = Maker(scaled->input(second ? 0 : 1), "Add", 2);
    if (inner == nullptr) return;
    for (int i = 0; i < 2; ++i) {
      const std::string& x = inner->input(i);
      const Node* cubic = Maker(inner->input(1 - i), "Mul", 2);
      if (cubic == nullptr) continue;
      const bool last = IsNear(cubic->input(1), 0.044715);
      if (!last && !IsNear(cubic->input(0), 0.044715)) continue;
      const Node* cube = Maker(cubic->input(last ? 0 : 1), "Pow", 2);
      if (cube == nullptr || cube->input(0) != x || !IsNear(cube->input(1), 3)) continue;
      Nodes pattern = {cube, cubic, inner, scaled, tanh, sum};
      if (!FindHalfX(sum, x, &pattern)) return;
      Node gelu = Make("Gelu", {x});
      onnx::AttributeProto* approximate = gelu.add_attribute();
      approximate->set_name("approximate");
      approximate->set_type(onnx::AttributeProto::STRING);
      approximate->set_s("tanh");
      return Replace(pattern, std::move(gelu));
    }
  }

  // The only axis of a ReduceMean with keepdims.
  std::optional<int64_t> MeanAxis(const Node* mean) const {
    if (mean == nullptr) return std::nullopt;
    OnnxAttributes attributes(*mean);
    std::vector<int64_t> axes = attributes.Ints("axes");
    if (mean->input_size() > 1) {
      const auto it = graph_->constants.find(mean->input(1));
      if (it == graph_->constants.end()) return std::nullopt;
      axes = ReadOnnxTensor(*it->second).ints;
    }
    if (axes.size() != 1 || attributes.Int("keepdims", 1) != 1) return std::nullopt;
    return axes[0];
  }

  // Matches * scale + bias with constants. Appends the operators and returns the constants' names, or "" if there are
  // none.
  std::pair<std::string, std::string> TakeScaleAndBias(Nodes* pattern) const {
    std::string constants[2];
    const char* types[] = {"Mul", "Add"};
    for (int i = 0; i < 2; ++i) {
      const Node* user = OnlyUser(pattern->back(), types[i]);
      if (user == nullptr) continue;
      const std::string& other = Other(user, pattern->back()->output(0));
      if (!IsConstant(other) || Scalar(other).has_value()) continue;
      constants[i] = other;
      pattern->push_back(user);
    }
    return {constants[0], constants[1]};
  }

  void FuseLayerNormalization(const Node* sqrt) {
    if (sqrt->input_size() != 1) return;
    const Node* sum = Maker(sqrt->input(0), "Add", 2);
    const Node* quotient = OnlyUser(sqrt, "Div");
    if (sum == nullptr || quotient == nullptr || quotient->input(1) != sqrt->output(0)) return;
    const int variance_input = Scalar(sum->input(0)).has_value() ? 1 : 0;
    const std::optional<float> epsilon = Scalar(sum->input(1 - variance_input));
    const Node* variance = Maker(sum->input(variance_input), "ReduceMean", 1);
    const Node* centered = Maker(quotient->input(0), "Sub", 2);
    if (!epsilon.has_value() || variance == nullptr || centered == nullptr) return;
    const std::string& x = centered->input(0);
    const Node* mean = Maker(centered->input(1), "ReduceMean", 1);
    const Node* square = Maker(variance->input(0), "Pow", 2);
    if (square == nullptr) square = Maker(variance->input(0), "Mul", 2);
    if (square == nullptr || square->input(0) != centered->output(0)) return;
    if (square->op_type() == "Pow" ? !IsNear(square->input(1), 2) : square->input(1) != centered->output(0)) return;
    const std::optional<int64_t> axis = MeanAxis(mean);
    if (!axis.has_value() || axis != MeanAxis(variance) || mean->input(0) != x) return;
    Nodes pattern = {mean, centered, square, variance, sum, sqrt, quotient};
    const auto [scale, bias] = TakeScaleAndBias(&pattern);
    Node norm = Make("LayerNormalization", {x, scale, bias});
    AddInt("axis", *axis, &norm);
    AddEpsilon(*epsilon, &norm);
    Replace(pattern, std::move(norm));
  }

  bool AllAre(const std::string& constant, float value) const {
    const auto it = graph_->constants.find(constant);
    if (it == graph_->constants.end()) return false;
    const OnnxTensor tensor = ReadOnnxTensor(*it->second);
    return std::all_of(tensor.floats.begin(), tensor.floats.end(), [&](float f) { return f == value; });
  }

  void FuseGroupNormalization(const Node* instance) {
    if (instance->input_size() != 3 || !AllAre(instance->input(1), 1) || !AllAre(instance->input(2), 0)) return;
    const Node* cut = Maker(instance->input(0), "Reshape", 2);
    const Node* restore = OnlyUser(instance, "Reshape");
    if (cut == nullptr || restore == nullptr || !IsConstant(cut->input(1))) return;
    const std::vector<int64_t> groups = ReadOnnxTensor(*graph_->constants.at(cut->input(1))).ints;
    if (groups.size() != 3 || groups[0] != 0 || groups[1] <= 0 || groups[2] != -1) return;
    Nodes pattern = {cut, instance, restore};
    std::vector<int64_t> restored;
    if (IsConstant(restore->input(1))) {
      restored = ReadOnnxTensor(*graph_->constants.at(restore->input(1))).ints;
    } else {
      const Node* shape = Maker(restore->input(1), "Shape", 1);
      if (shape == nullptr || shape->input(0) != cut->input(0) || shape->attribute_size() > 0) return;
      pattern.insert(pattern.begin(), shape);
    }
    const auto [scale, bias] = TakeScaleAndBias(&pattern);
    Node norm = Make("GroupNormalization", {cut->input(0), scale, bias});
    AddInt("num_groups", groups[1], &norm);
    AddEpsilon(OnnxAttributes(*instance).Float("epsilon", 1e-5f), &norm);
    AddInts("restored", restored, &norm);
    Replace(pattern, std::move(norm));
  }

  OnnxGraph* const graph_;
  std::map<std::string, const Node*> makers_;
  std::map<const Node*, const Node*>
      replaced_;  // the last operator of a pattern to the fused one, the others to nullptr
};

}  // namespace

void FuseOnnx(OnnxGraph* graph) { Fuser(graph).Fuse(); }

}  // namespace cairn
