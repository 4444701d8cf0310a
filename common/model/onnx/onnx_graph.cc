#include "common/model/onnx/onnx_graph.h"

#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_tensor.h"

namespace cairn {
namespace {

std::string Shown(const std::string& name) { return absl::CEscape(name.substr(0, 128)); }

class Checker {
 public:
  explicit Checker(const onnx::ModelProto& model) : model_(model), graph_(model.graph()) {}

  absl::StatusOr<OnnxGraph> Check() {
    CAIRN_RETURN_IF_ERROR(CheckOpset());
    if (!model_.has_graph() || graph_.node().empty()) return Bad("it has no graph with operators");
    if (graph_.node_size() > kOnnxNodesMax)
      return Bad("it has ", graph_.node_size(), " operators; at most ", kOnnxNodesMax, " are read");
    CAIRN_RETURN_IF_ERROR(TakeInitializers());
    CAIRN_RETURN_IF_ERROR(TakeInputsAndOutputs());
    CAIRN_RETURN_IF_ERROR(TakeNodes());
    CAIRN_RETURN_IF_ERROR(CheckInputsOfNodes());
    CAIRN_RETURN_IF_ERROR(Sort());
    FindOnnxUsers(&checked_);
    return std::move(checked_);
  }

 private:
  absl::Status CheckOpset() {
    for (const onnx::OperatorSetIdProto& set : model_.opset_import()) {
      if (set.domain().empty() || set.domain() == "ai.onnx") checked_.opset = set.version();
    }
    if (checked_.opset == 0) return Bad("it names no opset; is this an ONNX model?");
    if (checked_.opset < kOnnxOpsetMin || checked_.opset > kOnnxOpsetMax) {
      return absl::UnimplementedError(absl::StrCat("opset ", checked_.opset, " is not read; export with opset ",
                                                   kOnnxOpsetMin, " to ", kOnnxOpsetMax));
    }
    return absl::OkStatus();
  }

  absl::Status TakeInitializers() {
    if (graph_.sparse_initializer_size() > 0)
      return absl::UnimplementedError("sparse initializers are not read; save them dense");
    for (const onnx::TensorProto& tensor : graph_.initializer()) {
      if (tensor.name().empty()) return Bad("an initializer has no name");
      CAIRN_RETURN_IF_ERROR(CheckOnnxTensor(tensor));
      if (!checked_.constants.emplace(tensor.name(), &tensor).second)
        return Bad("tensor \"", Shown(tensor.name()), "\": there are two of this name");
    }
    return absl::OkStatus();
  }

  absl::Status TakeInputsAndOutputs() {
    for (const onnx::ValueInfoProto& input : graph_.input()) {
      if (checked_.constants.contains(input.name())) continue;  // IR version 3 lists the weights too
      if (!inputs_.insert(input.name()).second) return Bad("input \"", Shown(input.name()), "\": there are two of it");
      checked_.inputs.push_back(&input);
    }
    if (checked_.inputs.empty()) return Bad("it has no input");
    std::set<std::string> outputs;
    for (const onnx::ValueInfoProto& output : graph_.output()) {
      if (!outputs.insert(output.name()).second) {
        return Bad("output \"", Shown(output.name()), "\": there are two of it");
      }
      checked_.outputs.push_back(&output);
    }
    if (checked_.outputs.empty()) return Bad("it has no output");
    return absl::OkStatus();
  }

  // Records which operator makes each value; Constant operators become constants.
  absl::Status TakeNodes() {
    for (const onnx::NodeProto& node : graph_.node()) {
      const std::string text = OnnxNodeText(node);
      if (!node.domain().empty() && node.domain() != "ai.onnx") {
        return absl::UnimplementedError(
            absl::StrCat(text, ": operators of \"", Shown(node.domain()), "\" are not known"));
      }
      if (node.output().empty()) return Bad(text, ": it has no output");
      for (const std::string& output : node.output()) {
        if (output.empty()) continue;
        const bool known =
            inputs_.contains(output) || checked_.constants.contains(output) || !makers_.emplace(output, &node).second;
        if (known) return Bad(text, ": its output \"", Shown(output), "\" is made elsewhere too");
      }
      if (node.op_type() != "Constant") continue;
      CAIRN_RETURN_IF_ERROR(TakeConstant(node, text));
    }
    return absl::OkStatus();
  }

  absl::Status TakeConstant(const onnx::NodeProto& node, const std::string& text) {
    const onnx::AttributeProto* value = node.attribute_size() == 1 ? &node.attribute(0) : nullptr;
    if (value == nullptr) return Bad(text, ": it has ", node.attribute_size(), " attributes; a Constant has one");
    onnx::TensorProto* tensor = &made_->emplace_back();
    if (value->name() == "value" && value->has_t()) {
      *tensor = value->t();
    } else if (value->name() == "value_float") {
      tensor->set_data_type(onnx::TensorProto::FLOAT);
      tensor->add_float_data(value->f());
    } else if (value->name() == "value_floats") {
      tensor->set_data_type(onnx::TensorProto::FLOAT);
      tensor->add_dims(value->floats_size());
      *tensor->mutable_float_data() = value->floats();
    } else if (value->name() == "value_int") {
      tensor->set_data_type(onnx::TensorProto::INT64);
      tensor->add_int64_data(value->i());
    } else if (value->name() == "value_ints") {
      tensor->set_data_type(onnx::TensorProto::INT64);
      tensor->add_dims(value->ints_size());
      *tensor->mutable_int64_data() = value->ints();
    } else {
      return absl::UnimplementedError(absl::StrCat(text, ": attribute \"", Shown(value->name()), "\" is not read"));
    }
    tensor->set_name(node.output(0));
    CAIRN_RETURN_IF_ERROR(CheckOnnxTensor(*tensor));
    makers_.erase(node.output(0));
    checked_.constants[node.output(0)] = tensor;
    return absl::OkStatus();
  }

  absl::Status CheckInputsOfNodes() {
    for (const onnx::NodeProto& node : graph_.node()) {
      for (const std::string& input : node.input()) {
        if (input.empty() || inputs_.contains(input) || checked_.constants.contains(input) || makers_.contains(input))
          continue;
        return Bad(OnnxNodeText(node), ": its input \"", Shown(input),
                   "\" is not an initializer, an input or the output of an operator");
      }
    }
    for (const onnx::ValueInfoProto* output : checked_.outputs) {
      if (!makers_.contains(output->name()))
        return Bad("output \"", Shown(output->name()), "\" is not an operator's output");
    }
    return absl::OkStatus();
  }

  // Collects operators backwards from the outputs, without recursion since a file may be deep.
  absl::Status Sort() {
    std::set<const onnx::NodeProto*> open, done;
    std::vector<const onnx::NodeProto*> stack;
    for (auto output = checked_.outputs.rbegin(); output != checked_.outputs.rend(); ++output) {
      stack.push_back(makers_.at((*output)->name()));
    }
    while (!stack.empty()) {
      const onnx::NodeProto* node = stack.back();
      if (done.contains(node)) {
        stack.pop_back();
        continue;
      }
      if (open.insert(node).second) {
        for (const std::string& input : node->input()) {
          const auto maker = makers_.find(input);
          if (maker == makers_.end() || done.contains(maker->second)) continue;
          if (open.contains(maker->second))
            return Bad(OnnxNodeText(*node), ": it depends on its own output, by \"", Shown(input), "\"");
          stack.push_back(maker->second);
        }
        continue;
      }
      stack.pop_back();
      done.insert(node);
      checked_.nodes.push_back(node);
    }
    KeepOrder(done);
    return absl::OkStatus();
  }

  // Keeps the file's order if each operator follows those whose outputs it uses, as the format demands.
  void KeepOrder(const std::set<const onnx::NodeProto*>& used) {
    std::vector<const onnx::NodeProto*> in_order;
    std::set<const onnx::NodeProto*> before;
    for (const onnx::NodeProto& node : graph_.node()) {
      if (!used.contains(&node)) continue;
      for (const std::string& input : node.input()) {
        const auto maker = makers_.find(input);
        if (maker != makers_.end() && !before.contains(maker->second)) return;
      }
      before.insert(&node);
      in_order.push_back(&node);
    }
    checked_.nodes = std::move(in_order);
  }

  const onnx::ModelProto& model_;
  const onnx::GraphProto& graph_;
  std::set<std::string> inputs_;
  std::map<std::string, const onnx::NodeProto*> makers_;
  OnnxGraph checked_;
  std::shared_ptr<std::deque<onnx::TensorProto>> made_ = checked_.made =
      std::make_shared<std::deque<onnx::TensorProto>>();
};

}  // namespace

void FindOnnxUsers(OnnxGraph* graph) {
  graph->users.clear();
  for (const onnx::NodeProto* node : graph->nodes) {
    for (const std::string& input : node->input()) {
      if (!input.empty()) graph->users[input].push_back(node);
    }
  }
  for (const onnx::ValueInfoProto* output : graph->outputs) graph->users[output->name()].push_back(nullptr);
}

std::string OnnxNodeText(const onnx::NodeProto& node) {
  const std::string& name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
  return absl::StrCat("node \"", Shown(name), "\" (", Shown(node.op_type()), ")");
}

absl::StatusOr<OnnxGraph> CheckOnnx(const onnx::ModelProto& model) { return Checker(model).Check(); }

}  // namespace cairn
