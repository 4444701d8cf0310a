#include "common/model/onnx/onnx_recurrence.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/onnx/onnx_attributes.h"
#include "common/model/recurrent.h"

namespace cairn {
namespace {

std::optional<v1::Activation> ActivationOf(const std::string& name) {
  const std::pair<const char*, v1::Activation> names[] = {
      {"Affine", v1::LINEAR},     {"Relu", v1::RELU},         {"LeakyRelu", v1::LEAKY_RELU},
      {"Sigmoid", v1::SIGMOID},   {"Tanh", v1::TANH},         {"Elu", v1::ELU},
      {"Softplus", v1::SOFTPLUS}, {"Softsign", v1::SOFTSIGN}, {"HardSigmoid", v1::HARD_SIGMOID}};
  for (const auto& [known, activation] : names) {
    if (name == known) return activation;
  }
  return std::nullopt;
}

// ONNX's default for the activation's parameter.
float DefaultOf(v1::Activation activation) {
  return activation == v1::LEAKY_RELU ? 0.01f : activation == v1::HARD_SIGMOID ? 0.2f : 1.0f;
}

// A recurrent node's activations in the order of Keras' layers: the recurrent activation, which RNN does not have, then
// the other one.
absl::StatusOr<std::vector<v1::Activation>> ActivationsOf(const onnx::NodeProto& node, int64_t directions) {
  const std::string& type = node.op_type();
  std::vector<v1::Activation> activations;
  if (type != "RNN") activations.push_back(v1::SIGMOID);
  activations.push_back(v1::TANH);
  const onnx::AttributeProto none;
  const onnx::AttributeProto *names = &none, *alphas = &none, *betas = &none;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() == "activations") names = &attribute;
    if (attribute.name() == "activation_alpha") alphas = &attribute;
    if (attribute.name() == "activation_beta") betas = &attribute;
  }
  if (names->strings().empty()) return activations;
  const int each = type == "LSTM" ? 3 : type == "GRU" ? 2 : 1;
  if (names->strings_size() != each * directions) {
    return Bad("activations: ", names->strings_size(), " names; ", each, " for each direction are needed");
  }
  int alpha = 0, beta = 0;  // index of the next number in each list; only some activations consume one
  for (int i = 0; i < names->strings_size(); ++i) {
    const std::string name = absl::CEscape(names->strings(i).substr(0, 64));
    std::optional<v1::Activation> activation = ActivationOf(names->strings(i));
    if (!activation.has_value()) return Lacks("activation ", name, "; use Tanh, say");
    const bool linear = *activation == v1::LINEAR, hard = *activation == v1::HARD_SIGMOID;
    if (linear || hard || *activation == v1::LEAKY_RELU || *activation == v1::ELU) {
      const float given = alpha < alphas->floats_size() ? alphas->floats(alpha) : DefaultOf(*activation);
      ++alpha;
      if (hard && std::abs(given - RecurrentAlpha(v1::HARD_SIGMOID_KERAS2)) <= 1e-6f) {
        activation = v1::HARD_SIGMOID_KERAS2;
      }
      const float wanted = linear ? 1.0f : RecurrentAlpha(*activation);
      if (std::abs(given - wanted) > 1e-6f) return Lacks("activation ", name, " with alpha ", given, "; use ", wanted);
    }
    if (linear || hard) {
      const float wanted = linear ? 0.0f : 0.5f;
      const float given = beta < betas->floats_size() ? betas->floats(beta) : wanted;
      ++beta;
      if (given != wanted) return Lacks("activation ", name, " with beta ", given, "; use ", wanted);
    }
    const size_t place = std::min<size_t>(static_cast<size_t>(i % each), activations.size() - 1);
    if (i < each && place == static_cast<size_t>(i % each)) activations[place] = *activation;
    if (activations[place] != *activation) return Lacks("activations that differ where Keras' layers have one");
  }
  return activations;
}

// Element i is the index in ONNX's order of Keras' gate i.
std::vector<int64_t> PartsInKerasOrder(LayerKind kind) {
  if (kind == LayerKind::kLSTM) return {0, 2, 3, 1};
  return kind == LayerKind::kGRU ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0};
}

// Converts one direction's weights [gates * units, in] to Keras' [in, gates * units].
std::vector<float> KernelOf(const float* from, const std::vector<int64_t>& parts, int64_t units, int64_t in) {
  const int64_t width = static_cast<int64_t>(parts.size()) * units;
  std::vector<float> kernel(static_cast<size_t>(in * width));
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t c = 0; c < width; ++c) {
      kernel[static_cast<size_t>(i * width + c)] =
          from[(parts[static_cast<size_t>(c / units)] * units + c % units) * in + i];
    }
  }
  return kernel;
}

std::vector<float> BiasOf(const float* from, const std::vector<int64_t>& parts, int64_t units) {
  std::vector<float> bias;
  for (const int64_t part : parts) bias.insert(bias.end(), from + part * units, from + (part + 1) * units);
  return bias;
}

// Fills in the message of one direction.
void FillLayer(const OnnxRecurrence& r, bool reverse, bool bias, v1::Layer* layer) {
  const auto common = [&](auto* m, v1::Activation activation) {
    m->set_units(static_cast<int32_t>(r.units));
    m->set_activation(activation);
    m->set_use_bias(bias);
    m->set_go_backwards(reverse);
  };
  if (r.kind == LayerKind::kSimpleRNN) return common(layer->mutable_simple_rnn(), r.activations[0]);
  if (r.kind == LayerKind::kLSTM) {
    common(layer->mutable_lstm(), r.activations[1]);
    return layer->mutable_lstm()->set_recurrent_activation(r.activations[0]);
  }
  common(layer->mutable_gru(), r.activations[1]);
  layer->mutable_gru()->set_recurrent_activation(r.activations[0]);
  layer->mutable_gru()->set_reset_after(r.reset_after);
}

void SetSequences(v1::Layer* layer) {
  if (layer->has_bidirectional()) {
    SetSequences(layer->mutable_bidirectional()->mutable_layer());
    SetSequences(layer->mutable_bidirectional()->mutable_backward_layer());
  }
  if (layer->has_simple_rnn()) layer->mutable_simple_rnn()->set_return_sequences(true);
  if (layer->has_lstm()) layer->mutable_lstm()->set_return_sequences(true);
  if (layer->has_gru()) layer->mutable_gru()->set_return_sequences(true);
}

}  // namespace

bool IsRecurrentOperator(const std::string& type) { return type == "RNN" || type == "LSTM" || type == "GRU"; }

absl::StatusOr<OnnxRecurrence> OnnxRecurrence::Of(const onnx::NodeProto& node) {
  const std::string& type = node.op_type();
  OnnxRecurrence r;
  r.kind = type == "RNN" ? LayerKind::kSimpleRNN : type == "LSTM" ? LayerKind::kLSTM : LayerKind::kGRU;
  OnnxAttributes attributes(node);
  r.units = attributes.Int("hidden_size", 0);
  const std::string direction = attributes.Text("direction", "forward");
  attributes.Only("layout", 0, "the steps come first");
  attributes.Only("input_forget", 0, "the gates are apart");
  r.reset_after = attributes.Int("linear_before_reset", 0) != 0;
  for (const char* name : {"activations", "activation_alpha", "activation_beta"}) attributes.Ignore(name);
  if (attributes.Has("clip")) return Lacks("clip; leave it out");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  r.reverse = direction == "reverse";
  r.directions = direction == "bidirectional" ? 2 : 1;
  CAIRN_ASSIGN_OR_RETURN(r.activations, ActivationsOf(node, r.directions));
  return r;
}

int64_t OnnxRecurrence::width() const {
  return units * (kind == LayerKind::kSimpleRNN ? 1 : kind == LayerKind::kLSTM ? 4 : 3);
}

void OnnxRecurrence::TakeWeights(const OnnxRecurrentWeights& weights, int64_t features) {
  const std::vector<int64_t> parts = PartsInKerasOrder(kind);
  const bool biased = !weights.biases.empty(), two_biases = kind == LayerKind::kGRU && reset_after;
  const std::string cell = kind == LayerKind::kSimpleRNN ? "simple_rnn_cell/"
                           : kind == LayerKind::kLSTM    ? "lstm_cell/"
                                                         : "gru_cell/";
  for (int64_t d = 0; d < directions; ++d) {
    v1::Layer* of_direction = &layer;
    std::string prefix = cell;
    if (directions == 2) {
      v1::Bidirectional* both = layer.mutable_bidirectional();
      of_direction = d == 0 ? both->mutable_layer() : both->mutable_backward_layer();
      of_direction->set_name(d == 0 ? "forward_layer" : "backward_layer");
      prefix = absl::StrCat(of_direction->name(), "/", cell);
    }
    FillLayer(*this, d == 1 || reverse, biased, of_direction);
    variables.push_back({prefix + "kernel",
                         {features, width()},
                         KernelOf(weights.w.floats.data() + d * width() * features, parts, units, features)});
    variables.push_back({prefix + "recurrent_kernel",
                         {units, width()},
                         KernelOf(weights.r.floats.data() + d * width() * units, parts, units, units)});
    if (!biased) continue;
    const float* const b = weights.biases.data() + d * 2 * width();
    std::vector<float> bias = BiasOf(b, parts, units);
    const std::vector<float> of_state = BiasOf(b + width(), parts, units);
    if (two_biases) {
      bias.insert(bias.end(), of_state.begin(), of_state.end());
    } else {
      for (size_t i = 0; i < bias.size(); ++i) bias[i] += of_state[i];
    }
    variables.push_back({prefix + "bias", two_biases ? Shape{2, width()} : Shape{width()}, std::move(bias)});
  }
  if (directions == 2) kind = LayerKind::kBidirectional;
}

void OnnxRecurrence::GiveSequences() {
  sequences = true;
  SetSequences(&layer);
}

void OnnxRecurrence::GiveCells() {
  cells = true;
  if (layer.has_lstm()) return layer.mutable_lstm()->set_return_cell(true);
  for (v1::Layer* inner :
       {layer.mutable_bidirectional()->mutable_layer(), layer.mutable_bidirectional()->mutable_backward_layer()}) {
    inner->mutable_lstm()->set_return_cell(true);
  }
}

}  // namespace cairn
