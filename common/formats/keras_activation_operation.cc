#include "common/formats/keras_activation_operation.h"

#include <map>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

struct Row {
  v1::Activation activation;
  const char* option = nullptr;  // the function's option
  // The only supported value of the option; nullopt: it becomes the layer's argument.
  std::optional<double> only = std::nullopt;
  double keras2 = 1;  // the option's default in TensorFlow
};

const std::map<std::string, Row>& Rows() {
  static const std::map<std::string, Row> rows = {
      {"Relu", {v1::RELU}},
      {"nn.relu", {v1::RELU}},
      {"Relu6", {v1::RELU6}},
      {"nn.relu6", {v1::RELU6}},
      {"LeakyRelu", {v1::LEAKY_RELU, "negative_slope"}},
      {"nn.leaky_relu", {v1::LEAKY_RELU, "alpha", std::nullopt, 0.2}},
      {"Silu", {v1::SILU}},
      {"nn.silu", {v1::SILU}},
      {"nn.swish", {v1::SILU}},
      {"Elu", {v1::ELU, "alpha"}},
      {"nn.elu", {v1::ELU}},
      {"Selu", {v1::SELU}},
      {"nn.selu", {v1::SELU}},
      {"Celu", {v1::CELU, "alpha"}},
      {"Softplus", {v1::SOFTPLUS}},
      {"math.softplus", {v1::SOFTPLUS}},
      {"Softsign", {v1::SOFTSIGN}},
      {"nn.softsign", {v1::SOFTSIGN}},
      {"Squareplus", {v1::SQUAREPLUS, "b", 4}},
      {"HardSigmoid", {v1::HARD_SIGMOID}},
      {"HardSilu", {v1::HARD_SILU}},
      {"HardTanh", {v1::HARD_TANH}},
      {"HardShrink", {v1::HARD_SHRINK, "threshold"}},
      {"SoftShrink", {v1::SOFT_SHRINK, "threshold"}},
      {"TanhShrink", {v1::TANH_SHRINK}},
      {"LogSigmoid", {v1::LOG_SIGMOID}},
      {"math.log_sigmoid", {v1::LOG_SIGMOID}},
      {"SparsePlus", {v1::SPARSE_PLUS}},
      {"SparseSigmoid", {v1::SPARSE_SIGMOID}},
      {"LogSoftmax", {v1::LOG_SOFTMAX}},
      {"nn.log_softmax", {v1::LOG_SOFTMAX}},
      {"Sparsemax", {v1::SPARSEMAX}},
      {"Glu", {v1::GLU}},
  };
  return rows;
}

absl::Status ReadOption(const Row& row, KerasArguments& arguments, v1::ActivationLayer* layer) {
  if (row.option == nullptr) return absl::OkStatus();
  const Json* const given = arguments.Take({row.option});
  if (given != nullptr && !given->is_number()) {
    return arguments.Bad(absl::StrCat(row.option, ": ", ShownJson(*given), " is not a number; give one"));
  }
  if (given == nullptr && !arguments.keras2()) return absl::OkStatus();
  const double value = given == nullptr ? row.keras2 : given->get<double>();
  if (row.only.has_value()) {
    if (value == *row.only) return absl::OkStatus();
    return arguments.Bad(absl::StrCat(row.option, ": ", value, " is not supported; use ", *row.only));
  }
  if (row.activation == v1::LEAKY_RELU) layer->set_negative_slope(static_cast<float>(value));
  if (row.activation == v1::ELU || row.activation == v1::CELU) layer->set_alpha(static_cast<float>(value));
  if (row.activation == v1::HARD_SHRINK || row.activation == v1::SOFT_SHRINK) {
    layer->set_threshold(static_cast<float>(value));
  }
  return absl::OkStatus();
}

// keras.ops.gelu uses the tanh approximation by default; TensorFlow's does not.
v1::Activation ReadGelu(KerasArguments& arguments) {
  const Json* const approximate = arguments.TakeOrOperand({"approximate"});
  const bool exact = approximate == nullptr ? arguments.keras2() : *approximate == false;
  return exact ? v1::GELU : v1::GELU_TANH;
}

}  // namespace

bool IsKerasActivation(const std::string& function) {
  return function == "Gelu" || function == "nn.gelu" || Rows().contains(function);
}

absl::StatusOr<bool> ReadKerasActivation(KerasArguments& arguments, v1::Layer* layer) {
  const std::string function = arguments.Function();
  if (function == "Gelu" || function == "nn.gelu") {
    layer->mutable_activation()->set_activation(ReadGelu(arguments));
    return true;
  }
  const auto found = Rows().find(function);
  if (found == Rows().end()) return false;
  v1::ActivationLayer* const activation = layer->mutable_activation();
  activation->set_activation(found->second.activation);
  CAIRN_RETURN_IF_ERROR(ReadOption(found->second, arguments, activation));
  const v1::Activation kind = found->second.activation;
  if (kind != v1::LOG_SOFTMAX && kind != v1::SPARSEMAX && kind != v1::GLU) return true;
  const Json* const axis = arguments.Take({"axis"});
  if (axis == nullptr || *axis == -1) return true;
  return arguments.Bad(absl::StrCat("axis: ", ShownJson(*axis), " is not supported; only the last axis is, -1"));
}

}  // namespace cairn
