// Bidirectional: a recurrent layer over the steps in both directions (Schuster and Paliwal 1997).
#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_inner.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/recurrent.h"
#include "common/model/layers/table.h"
#include "common/model/recurrent.h"

namespace cairn::layers {
namespace {

// Options that both layers must share, and those that belong to the outer layer.
struct Common {
  int64_t units = 0;
  bool return_sequences = false, go_backwards = false;
};

template <typename Message>
Common CommonOf(const Message& m, int64_t units) {
  return {units, m.return_sequences(), m.go_backwards()};
}

absl::StatusOr<Common> ReadCommon(const char* field, const v1::Layer& layer) {
  if (layer.inputs_size() > 0 || layer.has_trainable() || layer.has_training() || !layer.shares().empty()) {
    return Bad(field, ": it has inputs, trainable, training or shares; give them to the bidirectional itself");
  }
  if (absl::StrContains(layer.name(), '/')) return Bad(field, ": its name has a '/'; use letters, digits and '_'");
  if (const v1::ConvLSTM* const conv = ConvLstmOf(layer)) return CommonOf(*conv, conv->filters());
  switch (layer.kind_case()) {
    case v1::Layer::kSimpleRnn: return CommonOf(layer.simple_rnn(), layer.simple_rnn().units());
    case v1::Layer::kLstm: return CommonOf(layer.lstm(), layer.lstm().units());
    case v1::Layer::kGru: return CommonOf(layer.gru(), layer.gru().units());
    default: return Bad(field, ": it is not a recurrent layer; use simple_rnn, lstm, gru or conv_lstm2d, say");
  }
}

void TurnAround(v1::Layer* layer) {
  if (v1::ConvLSTM* const conv = MutableConvLstmOf(layer)) return conv->set_go_backwards(!conv->go_backwards());
  switch (layer->kind_case()) {
    case v1::Layer::kSimpleRnn:
      layer->mutable_simple_rnn()->set_go_backwards(!layer->simple_rnn().go_backwards());
      break;
    case v1::Layer::kLstm: layer->mutable_lstm()->set_go_backwards(!layer->lstm().go_backwards()); break;
    default: layer->mutable_gru()->set_go_backwards(!layer->gru().go_backwards()); break;
  }
}

// Keras' names: "forward_lstm" and "backward_lstm".
void NameLayers(v1::Bidirectional* both, bool backward_given) {
  std::string name = both->layer().name();
  if (name.empty()) name = FindLayerType(both->layer().kind_case())->name;
  both->mutable_layer()->set_name(absl::StrCat("forward_", absl::StripPrefix(name, "forward_")));
  if (backward_given && !both->backward_layer().name().empty()) return;
  both->mutable_backward_layer()->set_name(
      absl::StrCat("backward_", absl::StripPrefix(absl::StripPrefix(name, "forward_"), "backward_")));
}

absl::Status InferBidirectional(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  v1::Bidirectional* both = node->layer.mutable_bidirectional();
  if (!v1::Bidirectional::MergeMode_IsValid(both->merge_mode())) {
    return Bad("merge_mode ", static_cast<int>(both->merge_mode()), " is not known; use CONCAT, SUM, MUL or AVE");
  }
  if (both->merge_mode() == v1::Bidirectional::MERGE_MODE_UNSPECIFIED) both->set_merge_mode(v1::Bidirectional::CONCAT);
  CAIRN_ASSIGN_OR_RETURN(const Common forward, ReadCommon("layer", both->layer()));
  const bool given = both->has_backward_layer();
  if (!given) {
    *both->mutable_backward_layer() = both->layer();
    TurnAround(both->mutable_backward_layer());
  }
  NameLayers(both, given);
  CAIRN_ASSIGN_OR_RETURN(const Common backward, ReadCommon("backward_layer", both->backward_layer()));
  if (forward.go_backwards == backward.go_backwards) {
    return Bad("layer and backward_layer have the same direction; change go_backwards of one of them");
  }
  if (forward.return_sequences != backward.return_sequences) {
    return Bad("return_sequences differs between layer and backward_layer; give both the same");
  }
  if (both->layer().name() == both->backward_layer().name()) {
    return Bad("layer and backward_layer are both called \"", both->layer().name(), "\"; give each a name of its own");
  }
  const auto states = [](const v1::Layer& layer) {
    return layer.has_lstm() || ConvLstmOf(layer) != nullptr ? size_t{2} : size_t{1};
  };
  const size_t first = states(both->layer()), second = states(both->backward_layer());
  if (inputs.size() != 1 && inputs.size() != 1 + first + second) {
    return Bad("it has ", inputs.size(), " inputs; it takes a sequence, and none or all of both directions' first ",
               "states (", first + second, ")");
  }
  const auto infer = [&](v1::Layer* layer, size_t state, size_t count, Shape* output) {
    std::vector<Shape> own = {inputs[0]};
    if (inputs.size() > 1) own.insert(own.end(), inputs.begin() + state, inputs.begin() + state + count);
    return InferRecurrent(own, *node, absl::StrCat(layer->name(), "/"), layer, output, variables);
  };
  Shape outputs[2];
  CAIRN_RETURN_IF_ERROR(infer(both->mutable_layer(), 1, first, &outputs[0]));
  CAIRN_RETURN_IF_ERROR(infer(both->mutable_backward_layer(), 1 + first, second, &outputs[1]));
  node->output = outputs[0];
  if (!std::equal(outputs[0].begin(), outputs[0].end() - 1, outputs[1].begin(), outputs[1].end() - 1)) {
    return Bad("layer gives ", ToString(outputs[0]), ", backward_layer ", ToString(outputs[1]),
               "; only the last axis may differ");
  }
  const std::vector<Recurrence> all = RecurrencesOf(node->layer);
  if (both->merge_mode() == v1::Bidirectional::CONCAT) {
    node->output.back() += outputs[1].back();
  } else if (all[0].return_cell || all[1].return_cell) {
    return Bad("return_cell: states are not merged by ", v1::Bidirectional::MergeMode_Name(both->merge_mode()),
               "; use CONCAT");
  } else if (forward.units != backward.units) {
    return Bad("units ", forward.units, " and ", backward.units, " cannot be merged by ",
               v1::Bidirectional::MergeMode_Name(both->merge_mode()), "; use CONCAT, or as many in both");
  }
  return absl::OkStatus();
}

struct NamedMode {
  const char* name;
  v1::Bidirectional::MergeMode mode;
};
constexpr NamedMode kModes[] = {{"concat", v1::Bidirectional::CONCAT},
                                {"sum", v1::Bidirectional::SUM},
                                {"mul", v1::Bidirectional::MUL},
                                {"ave", v1::Bidirectional::AVE}};

void ReadBidirectional(KerasConfig& c, v1::Layer* layer) {
  v1::Bidirectional* both = layer->mutable_bidirectional();
  // merge_mode may also be null, which means two outputs.
  std::string mode;
  if (!c.Has("merge_mode"))
    c.Refuse("merge_mode: null means two outputs, which only a Functional model takes; use concat, say");
  c.Text("merge_mode", &mode);
  for (const NamedMode& named : kModes) {
    if (mode == named.name) both->set_merge_mode(named.mode);
  }
  if (both->merge_mode() == v1::Bidirectional::MERGE_MODE_UNSPECIFIED && c.ok()) {
    c.Refuse(absl::StrCat("merge_mode: \"", ShownText(mode), "\" is not supported; use concat, sum, mul or ave"));
  }
  // Bidirectional sets zero_output_for_mask itself.
  const auto read = [&](const char* key, v1::Layer* to) {
    if (!ReadInnerLayer(c, key, {"zero_output_for_mask"}, to)) return false;
    if (to->has_trainable()) layer->set_trainable(false);
    to->clear_trainable();
    return true;
  };
  if (!read("layer", both->mutable_layer())) c.Refuse("layer: missing");
  if (!read("backward_layer", both->mutable_backward_layer())) both->clear_backward_layer();
  c.Only("weights", nullptr, keras::kLeaveAway);
}

void WriteBidirectional(const Node& node, KerasWriter& c) {
  const v1::Bidirectional& both = node.layer.bidirectional();
  for (const NamedMode& named : kModes) {
    if (both.merge_mode() == named.mode) c["merge_mode"] = named.name;
  }
  // The states are outputs of the layer, and then those of the two directions too.
  const std::vector<Recurrence> all = RecurrencesOf(node.layer);
  const bool forward = all[0].return_cell, backward = all[1].return_cell;
  if (forward != backward) c.Refuse("return_cell differs between layer and backward_layer; give both the same");
  if (forward) c["merge_mode"] = nullptr;
  for (const auto& [key, layer] :
       {std::pair("layer", &both.layer()), std::pair("backward_layer", &both.backward_layer())}) {
    absl::StatusOr<OrderedJson> json = InnerLayerJson(node, *layer);
    c[key] = json.ok() ? *std::move(json) : OrderedJson(nullptr);
  }
  // This fails if Keras has no name for an activation; the writer reports it.
  for (const Recurrence& r : all) {
    for (const v1::Activation activation : {r.activation, r.recurrent_activation})
      c.Activation("layer_activation", activation);
  }
  c.Without("layer_activation");
}

constexpr KerasClass kKeras[] = {{"Bidirectional", ReadBidirectional, kRecurrentCall}};
// "*": any other name (common/formats/keras_weights.cc).
constexpr KerasSublayer kSublayers[] = {{"forward_*", "forward_layer"}, {"simple_rnn_cell", "cell"},
                                        {"lstm_cell", "cell"},          {"gru_cell", "cell"},
                                        {"conv_lstm_cell", "cell"},     {"*", "backward_layer"}};

}  // namespace

constinit const LayerType kBidirectionalLayer = {
    .kind = LayerKind::kBidirectional,
    .field = v1::Layer::kBidirectional,
    .name = "bidirectional",
    .inputs_max = 5,
    .infer = InferBidirectional,
    .keras = kKeras,
    .write_keras = WriteBidirectional,
    .sublayers = kSublayers,
    .write_onnx = WriteRecurrentOnnx,
};

}  // namespace cairn::layers
