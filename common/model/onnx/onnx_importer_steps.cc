// RNN, LSTM and GRU, and the operators around them, in which the step axis precedes the batch axis (onnx_steps.h).
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/layer_type.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/recurrent.h"

namespace cairn {
namespace {

bool IsRecurrentOperator(const std::string& type) { return type == "RNN" || type == "LSTM" || type == "GRU"; }

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
    const std::optional<v1::Activation> activation = ActivationOf(names->strings(i));
    if (!activation.has_value()) return Lacks("activation ", name, "; use Tanh, say");
    const bool linear = *activation == v1::LINEAR, hard = *activation == v1::HARD_SIGMOID;
    if (linear || hard || *activation == v1::LEAKY_RELU || *activation == v1::ELU) {
      const float given = alpha < alphas->floats_size() ? alphas->floats(alpha) : DefaultOf(*activation);
      ++alpha;
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
std::vector<int64_t> PartsInKerasOrder(const std::string& type) {
  if (type == "LSTM") return {0, 2, 3, 1};
  return type == "GRU" ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0};
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
void FillLayer(const std::string& type, int64_t units, bool reverse, bool bias, bool reset_after,
               const std::vector<v1::Activation>& activations, v1::Layer* layer) {
  const auto common = [&](auto* m, v1::Activation activation) {
    m->set_units(static_cast<int32_t>(units));
    m->set_activation(activation);
    m->set_use_bias(bias);
    m->set_go_backwards(reverse);
  };
  if (type == "RNN") return common(layer->mutable_simple_rnn(), activations[0]);
  if (type == "LSTM") {
    common(layer->mutable_lstm(), activations[1]);
    return layer->mutable_lstm()->set_recurrent_activation(activations[0]);
  }
  common(layer->mutable_gru(), activations[1]);
  layer->mutable_gru()->set_recurrent_activation(activations[0]);
  layer->mutable_gru()->set_reset_after(reset_after);
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

bool OnnxImporter::TakesSteps() const {
  if (IsRecurrentOperator(node_->op_type())) return true;
  if (!HasInput(0)) return false;
  if (steps_.contains(node_->input(0))) return true;
  const auto x = views_.find(node_->input(0));
  if (x == views_.end()) return false;
  OnnxAttributes attributes(*node_);
  if (node_->op_type() == "Transpose") {
    return x->second.dims.size() == 2 && attributes.Ints("perm") == std::vector<int64_t>{1, 0, 2};
  }
  if (node_->op_type() != "Unsqueeze" || x->second.dims.size() != 1) return false;
  const absl::StatusOr<std::vector<int64_t>> axes = AxesGiven();
  return axes.ok() && *axes == std::vector<int64_t>{0};
}

absl::Status OnnxImporter::BeginSteps(const OnnxView& x, OnnxSteps::Form form) {
  OnnxSteps steps;
  steps.form = form;
  steps.view = x;
  steps_[node_->output(0)] = std::move(steps);
  return absl::OkStatus();
}

// Creates the layer. It returns either the sequence or the last state, not both.
absl::StatusOr<OnnxView> OnnxImporter::MakeRecurrent(OnnxRecurrence* r, bool sequences) {
  if (r->made >= 0 && r->sequences != sequences) {
    return Lacks("both its sequence and its last state are used; a layer has one output");
  }
  if (r->made < 0) {
    if (sequences) SetSequences(&r->layer);
    r->sequences = sequences;
    CAIRN_ASSIGN_OR_RETURN(r->made, AddLayer(r->kind, r->layer, r->inputs, std::move(r->variables)));
  }
  return OnnxView::Of(r->made, layers_.ShapeOf(r->made));
}

absl::Status OnnxImporter::TakeSteps() {
  const std::string& type = node_->op_type();
  if (IsRecurrentOperator(type)) return TakeRecurrent();
  const auto found = steps_.find(node_->input(0));
  if (found == steps_.end()) {  // an operator with batch-first input
    CAIRN_ASSIGN_OR_RETURN(const OnnxView x, ViewOf(0));
    return BeginSteps(x, type == "Transpose" ? OnnxSteps::kSequence : OnnxSteps::kState);
  }
  OnnxSteps x = found->second;
  const auto becomes = [&](OnnxSteps::Form form) {
    x.form = form;
    steps_[node_->output(0)] = std::move(x);
    return absl::OkStatus();
  };
  OnnxRecurrence* const r = x.recurrence.get();
  const auto lacks = [&] {
    return Lacks(
        "it rearranges a value with the steps before the batch in a way that is not supported; transpose it to "
        "[batch,steps,features] first");
  };
  if (type == "Identity") return becomes(x.form);
  if (type == "Transpose") {
    OnnxAttributes attributes(*node_);
    const std::vector<int64_t> perm = attributes.Ints("perm");
    CAIRN_RETURN_IF_ERROR(attributes.Finish());
    const bool swap = perm == std::vector<int64_t>{1, 0, 2};
    if (x.form == OnnxSteps::kOutput && perm == std::vector<int64_t>{0, 2, 1, 3})
      return becomes(OnnxSteps::kOutputBatch);
    if (x.form == OnnxSteps::kLast && swap) return becomes(OnnxSteps::kLastBatch);
    if (x.form == OnnxSteps::kSequence && swap) {
      SetView(x.view);
      return absl::OkStatus();
    }
    const bool turned = x.form == OnnxSteps::kOutputTurned, rows = x.form == OnnxSteps::kOutputRows;
    if (!swap || !(turned || rows)) return lacks();
    if (r->reverse != turned && r->directions == 1) {
      return Lacks(
          "a sequence that is computed backwards keeps its own order there; Cairn's are in the order of "
          "computation, except those of a bidirectional operator");
    }
    CAIRN_ASSIGN_OR_RETURN(OnnxView view, MakeRecurrent(r, true));
    SetView(std::move(view));
    return absl::OkStatus();
  }
  if (type == "Squeeze") {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, AxesGiven());
    if (r == nullptr || r->directions != 1) return lacks();
    if (x.form == OnnxSteps::kOutput && axes == std::vector<int64_t>{1}) return becomes(OnnxSteps::kOutputRows);
    const int64_t axis = x.form == OnnxSteps::kLast ? 0 : 1;
    if ((x.form != OnnxSteps::kLast && x.form != OnnxSteps::kLastBatch) || axes != std::vector<int64_t>{axis})
      return lacks();
    CAIRN_ASSIGN_OR_RETURN(OnnxView view, MakeRecurrent(r, false));
    SetView(std::move(view));
    return absl::OkStatus();
  }
  if (type == "Gather" && x.form == OnnxSteps::kOutputRows && r->directions == 1) {
    OnnxAttributes attributes(*node_);
    attributes.Only("axis", 0, "of steps alone");
    CAIRN_RETURN_IF_ERROR(attributes.Finish());
    CAIRN_ASSIGN_OR_RETURN(std::vector<int64_t> places, IntsOf(1, "indices"));
    for (int64_t& place : places) place += place < 0 ? r->steps : 0;
    if (places == std::vector<int64_t>{r->reverse ? 0 : r->steps - 1}) return becomes(OnnxSteps::kLast);
    std::vector<int64_t> backwards;
    for (int64_t step = r->steps; step-- > 0;) backwards.push_back(step);
    return places == backwards ? becomes(OnnxSteps::kOutputTurned) : lacks();
  }
  if (type == "Reshape" || type == "Flatten") {
    std::vector<int64_t> target;
    if (type == "Reshape") {
      CAIRN_ASSIGN_OR_RETURN(target, IntsOf(1, "shape"));
    }
    const int64_t joined = r == nullptr ? 0 : r->directions * r->units;
    if (x.form == OnnxSteps::kOutputBatch && target.size() == 3 && (target[2] == -1 || target[2] == joined)) {
      return becomes(OnnxSteps::kOutputRows);
    }
    const bool row = type == "Flatten" || (target.size() == 2 && (target[1] == -1 || target[1] == joined));
    if (x.form != OnnxSteps::kLastBatch || !row) return lacks();
    CAIRN_ASSIGN_OR_RETURN(OnnxView view, MakeRecurrent(r, false));
    SetView(std::move(view));
    return absl::OkStatus();
  }
  return lacks();
}

absl::Status OnnxImporter::TakeRecurrent() {
  const std::string& type = node_->op_type();
  auto r = std::make_shared<OnnxRecurrence>();
  r->kind = type == "RNN" ? LayerKind::kSimpleRNN : type == "LSTM" ? LayerKind::kLSTM : LayerKind::kGRU;
  OnnxAttributes attributes(*node_);
  r->units = attributes.Int("hidden_size", 0);
  const std::string direction = attributes.Text("direction", "forward");
  attributes.Only("layout", 0, "the steps come first");
  attributes.Only("input_forget", 0, "the gates are apart");
  const bool reset_after = attributes.Int("linear_before_reset", 0) != 0;
  for (const char* name : {"activations", "activation_alpha", "activation_beta"}) attributes.Ignore(name);
  if (attributes.Has("clip")) return Lacks("clip; leave it out");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  r->reverse = direction == "reverse";
  r->directions = direction == "bidirectional" ? 2 : 1;
  const std::vector<int64_t> parts = PartsInKerasOrder(type);
  const int64_t width = static_cast<int64_t>(parts.size()) * r->units;

  CAIRN_ASSIGN_OR_RETURN(const std::vector<v1::Activation> activations, ActivationsOf(*node_, r->directions));

  const auto sequence = steps_.find(node_->input(0));
  if (sequence == steps_.end() || sequence->second.form != OnnxSteps::kSequence) {
    return Lacks("its input is not a sequence whose steps a Transpose brought before the batch");
  }
  const OnnxView x = sequence->second.view;
  r->steps = x.dims[0];
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor w, ConstantOf(1, "W"));
  CAIRN_ASSIGN_OR_RETURN(const OnnxTensor u, ConstantOf(2, "R"));
  if (r->units < 1 || w.whole || u.whole || w.dims != Shape{r->directions, width, x.dims[1]} ||
      u.dims != Shape{r->directions, width, r->units}) {
    return Bad("W ", ToString(w.dims), " and R ", ToString(u.dims), " do not fit hidden_size ", r->units, " on ",
               ToString(x.dims));
  }
  std::vector<float> biases;
  if (HasInput(3)) {
    CAIRN_ASSIGN_OR_RETURN(biases, FloatsOf(3, "B", r->directions * 2 * width));
  }
  if (HasInput(4)) return Lacks("sequence_lens; give sequences of one length");
  if (HasInput(7)) return Lacks("P, weights of peepholes");
  CAIRN_ASSIGN_OR_RETURN(const int from, layers_.Place(x));
  r->inputs = {from};
  for (int i = 5; i <= 6; ++i) {
    if (!HasInput(i)) continue;
    if (IsConstant(i)) {
      CAIRN_ASSIGN_OR_RETURN(const OnnxTensor state, ConstantOf(i, "initial state"));
      if (std::all_of(state.floats.begin(), state.floats.end(), [](float f) { return f == 0; })) continue;
    }
    const auto state = steps_.find(node_->input(i));
    if (state == steps_.end() || state->second.form != OnnxSteps::kState || r->directions != 1)
      return Lacks("its first state is neither zeros nor a layer's output");
    CAIRN_ASSIGN_OR_RETURN(const int placed, layers_.Place(state->second.view));
    r->inputs.push_back(placed);
  }

  const bool gru_after = type == "GRU" && reset_after;
  const std::string cell = type == "RNN" ? "simple_rnn_cell/" : type == "LSTM" ? "lstm_cell/" : "gru_cell/";
  for (int64_t d = 0; d < r->directions; ++d) {
    v1::Layer* layer = &r->layer;
    std::string prefix = cell;
    if (r->directions == 2) {
      v1::Bidirectional* both = r->layer.mutable_bidirectional();
      layer = d == 0 ? both->mutable_layer() : both->mutable_backward_layer();
      layer->set_name(d == 0 ? "forward_layer" : "backward_layer");
      prefix = absl::StrCat(layer->name(), "/", cell);
    }
    FillLayer(type, r->units, d == 1 || r->reverse, !biases.empty(), reset_after, activations, layer);
    const int64_t features = x.dims[1];
    r->variables.push_back({prefix + "kernel",
                            {features, width},
                            KernelOf(w.floats.data() + d * width * features, parts, r->units, features)});
    r->variables.push_back({prefix + "recurrent_kernel",
                            {r->units, width},
                            KernelOf(u.floats.data() + d * width * r->units, parts, r->units, r->units)});
    if (biases.empty()) continue;
    const float* const b = biases.data() + d * 2 * width;
    std::vector<float> bias = BiasOf(b, parts, r->units);
    const std::vector<float> of_state = BiasOf(b + width, parts, r->units);
    if (gru_after) {
      bias.insert(bias.end(), of_state.begin(), of_state.end());
    } else {
      for (size_t i = 0; i < bias.size(); ++i) bias[i] += of_state[i];
    }
    r->variables.push_back({prefix + "bias", gru_after ? Shape{2, width} : Shape{width}, std::move(bias)});
  }
  if (r->directions == 2) r->kind = LayerKind::kBidirectional;
  for (int i = 0; i < node_->output_size(); ++i) {
    if (node_->output(i).empty() || !graph_.users.contains(node_->output(i))) continue;
    if (i == 2) return Lacks("its last cell state is used; a layer has one output");
    OnnxSteps output;
    output.form = i == 0 ? OnnxSteps::kOutput : OnnxSteps::kLast;
    output.recurrence = r;
    steps_[node_->output(i)] = std::move(output);
  }
  return absl::OkStatus();
}

}  // namespace cairn
