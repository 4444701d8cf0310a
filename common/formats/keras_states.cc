#include "common/formats/keras_states.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/lacks.h"
#include "common/formats/keras_arguments.h"
#include "common/model/recurrent.h"
#include "common/model/slice_range.h"

namespace cairn {
namespace {

bool IsCell(const std::string& type) {
  return type == "LSTM" || type == "GRU" || type == "SimpleRNN" || absl::StartsWith(type, "ConvLSTM");
}

bool IsTrue(const Json& config, const char* key) { return config.is_object() && config.value(key, Json()) == true; }

// The config of the layer within a Bidirectional; null: there is none.
const Json* InnerConfig(const Json& config, const char* key) {
  if (!config.is_object() || !config.contains(key) || !config[key].is_object()) return nullptr;
  const Json& inner = config[key];
  return inner.contains("config") && inner["config"].is_object() ? &inner["config"] : nullptr;
}

bool MergesNothing(const Json& config) {
  return config.is_object() && config.contains("merge_mode") && config["merge_mode"].is_null();
}

// Has an LSTM or a ConvLSTM give its states. Returns false if the layer is another one.
bool GiveCells(v1::Layer* layer) {
  if (v1::ConvLSTM* const conv = MutableConvLstmOf(layer)) {
    conv->set_return_cell(true);
  } else if (layer->has_lstm()) {
    layer->mutable_lstm()->set_return_cell(true);
  } else {
    return false;
  }
  return true;
}

// A part of the output of a recurrence: numbers of its features, of all steps or of one.
struct Part {
  int64_t begin = 0, end = 0;
  bool of_state = false;
};

// What is in the output of a layer: of each recurrence its output, then its states.
struct Contents {
  std::vector<Recurrence> recurrences;
  std::vector<Part> outputs, states;  // states: of the first recurrence, then of the second
  std::vector<size_t> owners;         // of each state: its recurrence
};

Contents ContentsOf(const v1::Layer& layer) {
  Contents contents;
  contents.recurrences = RecurrencesOf(layer);
  int64_t begin = 0;
  for (size_t i = 0; i < contents.recurrences.size(); ++i) {
    const Recurrence& r = contents.recurrences[i];
    contents.outputs.push_back({begin, begin + r.units});
    const int64_t h = r.return_cell ? begin + r.units : begin;  // else the output itself
    for (int64_t s = 0; s < r.states(); ++s) {
      contents.states.push_back({h + s * r.units, h + (s + 1) * r.units, true});
      contents.owners.push_back(i);
    }
    begin += r.width();
  }
  return contents;
}

// The place of a sequence at which the state behind all steps stands.
int LastPlace(const Recurrence& r) { return r.turned ? 0 : -1; }

v1::Layer PartLayer(const Part& part, const Recurrence& r, const std::string& name) {
  v1::Layer layer;
  layer.add_inputs(name);
  v1::Slice* slice = layer.mutable_slice();
  if (r.return_sequences) {
    v1::Slice::Axis* steps = slice->add_axes();
    if (part.of_state) {
      steps->set_begin(LastPlace(r));
      steps->set_drop(true);
    }
  }
  for (int side = 0; side < r.windows.axes; ++side) slice->add_axes();
  v1::Slice::Axis* features = slice->add_axes();
  features->set_begin(static_cast<int32_t>(part.begin));
  features->set_end(static_cast<int32_t>(part.end));
  return layer;
}

v1::Layer MergeLayer(v1::Bidirectional::MergeMode mode) {
  v1::Layer layer;
  switch (mode) {
    case v1::Bidirectional::SUM: layer.mutable_add(); break;
    case v1::Bidirectional::MUL: layer.mutable_multiply(); break;
    case v1::Bidirectional::AVE: layer.mutable_average(); break;
    default: layer.mutable_concatenate(); break;
  }
  return layer;
}

}  // namespace

bool HasKerasStates(const std::string& type, const Json& config) {
  if (IsCell(type)) return IsTrue(config, "return_state");
  if (type != "Bidirectional") return false;
  const Json* inner = InnerConfig(config, "layer");
  return MergesNothing(config) || (inner != nullptr && IsTrue(*inner, "return_state"));
}

Json WithoutKerasStates(const std::string& type, const Json& config) {
  Json plain = config;
  if (IsCell(type)) plain["return_state"] = false;
  if (type != "Bidirectional") return plain;
  if (MergesNothing(plain)) plain["merge_mode"] = "concat";
  for (const char* key : {"layer", "backward_layer"}) {
    if (InnerConfig(plain, key) != nullptr) plain[key]["config"]["return_state"] = false;
  }
  return plain;
}

KerasStatePlan PlanKerasStates(const Json& config, bool takes_states, v1::Layer* layer) {
  KerasStatePlan plan;
  if (!layer->has_bidirectional()) {
    // The output of an example without any step that counts is 0, but its state is the first one.
    plan.needs_no_mask = takes_states && !GiveCells(layer) && layer->inputs_size() > 1;
    return plan;
  }
  v1::Bidirectional* both = layer->mutable_bidirectional();
  plan.merges = !MergesNothing(config);
  plan.mode = both->merge_mode();
  if (!takes_states && plan.merges) return plan;
  both->set_merge_mode(v1::Bidirectional::CONCAT);
  bool all_cells = true;
  for (v1::Layer* inner :
       {both->mutable_layer(), both->has_backward_layer() ? both->mutable_backward_layer() : nullptr}) {
    if (inner == nullptr) continue;
    all_cells = GiveCells(inner) && all_cells;
  }
  plan.needs_no_mask = !all_cells;
  return plan;
}

std::optional<std::vector<v1::Layer>> KerasStateLayers(const KerasStatePlan& plan, const v1::Layer& layer,
                                                       const std::string& name, int output) {
  const Contents contents = ContentsOf(layer);
  const int merged = plan.merges ? 1 : 2;
  std::vector<v1::Layer> layers;
  if (output >= merged) {
    const size_t state = static_cast<size_t>(output - merged);
    if (state >= contents.states.size()) return std::nullopt;
    layers.push_back(PartLayer(contents.states[state], contents.recurrences[contents.owners[state]], name));
    return layers;
  }
  const auto part = [&](size_t i) { return PartLayer(contents.outputs[i], contents.recurrences[i], name); };
  if (!plan.merges) {
    layers.push_back(part(static_cast<size_t>(output)));
    return layers;
  }
  const bool cells = std::any_of(contents.recurrences.begin(), contents.recurrences.end(),
                                 [](const Recurrence& r) { return r.return_cell; });
  const bool same = !layer.has_bidirectional() || layer.bidirectional().merge_mode() == plan.mode;
  if (same && !cells) return layers;
  for (size_t i = 0; i < contents.recurrences.size(); ++i) layers.push_back(part(i));
  if (layers.size() > 1) layers.push_back(MergeLayer(plan.mode));
  return layers;
}

int KerasOutputOfSlice(const Graph& graph, const Node& node) {
  if (node.kind != LayerKind::kSlice) return -1;
  const Node& from = graph.nodes()[static_cast<size_t>(node.inputs[0])];
  if (!GivesCells(from) || node.layer.submodel() != from.layer.submodel()) return -1;
  KerasStatePlan plan;
  plan.merges = from.kind != LayerKind::kBidirectional;
  for (int output = 0;; ++output) {
    const auto layers = KerasStateLayers(plan, from.layer, from.name, output);
    if (!layers.has_value()) return -1;
    if (layers->size() != 1) continue;
    // Compared by what they take, however it is written.
    const v1::Slice &a = node.layer.slice(), &b = (*layers)[0].slice();
    bool same = a.axes_size() == b.axes_size();
    for (int i = 0; same && i < a.axes_size(); ++i) {
      const int64_t size = from.output[static_cast<size_t>(i)];
      const SliceRange p = RangeOf(a.axes(i), size), q = RangeOf(b.axes(i), size);
      same = a.axes(i).drop() == b.axes(i).drop() && p.begin == q.begin && p.count == q.count && p.step == q.step;
    }
    if (same) return output;
  }
}

absl::Status CheckKerasStates(const Graph& graph) {
  const auto lacks = [](const Node& node) {
    return Lacks(
        "layer \"", node.name,
        "\": what takes its states takes none of the outputs that it has in Keras; slice the output, h or c, or "
        "write safetensors");
  };
  for (const Node& node : graph.nodes()) {
    for (const int input : node.inputs) {
      const Node& from = graph.nodes()[static_cast<size_t>(input)];
      if (GivesCells(from) && KerasOutputOfSlice(graph, node) < 0) return lacks(from);
    }
  }
  for (const int output : graph.outputs()) {
    const Node& node = graph.nodes()[static_cast<size_t>(output)];
    if (GivesCells(node)) return lacks(node);
  }
  return absl::OkStatus();
}

}  // namespace cairn
