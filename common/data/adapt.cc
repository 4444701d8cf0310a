#include "common/data/adapt.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/data/dataset.h"
#include "common/data/layer_state.h"
#include "common/data/text_dataset.h"
#include "common/data/text_store.h"
#include "common/model/adaptable.h"
#include "common/model/data_check.h"
#include "common/model/graph.h"
#include "common/model/inputs_check.h"
#include "common/model/layer_type.h"
#include "common/model/model_inputs.h"
#include "common/model/text_inputs.h"

namespace cairn {
namespace {

// A layer that is being adapted, and where its values lie in an example.
struct Adapting {
  const Node* node;
  const Node* input;
  std::unique_ptr<LayerState> state;
};

// The model's inputs and the layers to adapt alone: the rest may depend on their state. An input that no such layer
// takes goes to a layer that takes anything.
absl::StatusOr<Graph> BuildHead(const v1::Model& model, const std::set<std::string>& names) {
  v1::Model head;
  std::set<std::string> inputs, taken;
  const auto add = [&head](const v1::Layer& layer) {
    v1::Layer& added = *head.add_layers();
    added = layer;
    added.clear_submodel();  // the head has none
  };
  for (const v1::Layer& layer : model.layers()) {
    if (layer.has_input()) {
      add(layer);
      inputs.insert(layer.name());
    } else if (names.contains(layer.name())) {
      add(layer);
      for (const std::string& input : layer.inputs()) {
        taken.insert(input);
        if (inputs.contains(input)) continue;
        return Bad("layer \"", layer.name(), "\": its input \"", input,
                   "\" is a layer's; only layers that take the model's inputs are adapted: give it its state");
      }
      head.add_outputs(layer.name());
    }
  }
  for (const v1::Layer& layer : model.layers()) {
    if (!layer.has_input() || taken.contains(layer.name())) continue;
    v1::Layer& rest = *head.add_layers();
    rest.set_name(absl::StrCat("[", layer.name(), "]"));
    rest.add_inputs(layer.name());
    if (layer.input().text()) {
      rest.mutable_hashing()->set_num_bins(1);
      rest.mutable_hashing()->set_output_mode(v1::ONE_HOT);
    } else {
      rest.mutable_flatten();
    }
    head.add_outputs(rest.name());
  }
  return Graph::Build(head);
}

absl::Status TakeExample(absl::Span<const float> example, const Dataset& data, Adapting* adapting) {
  std::vector<TextOrNumber> values;
  for (int64_t i = 0; i < NumElements(adapting->input->output); ++i) {
    const float number = example[static_cast<size_t>(adapting->input->input_offset + i)];
    TextOrNumber& value = values.emplace_back();
    value.is_text = OfTexts(*adapting->input);
    if (value.is_text) value.text = data.texts()->Get(number);
    if (!value.is_text) value.number = static_cast<double>(number);
  }
  return adapting->state->Take(values);
}

absl::Status TakeAll(const Dataset& data, std::vector<Adapting>* layers) {
  std::vector<float> example(static_cast<size_t>(data.example_size())), label(static_cast<size_t>(data.label_size()));
  for (int64_t i = 0; i < data.size(v1::TRAIN); ++i) {
    CAIRN_RETURN_IF_ERROR(data.Read(v1::TRAIN, i, example.data(), label.data()));
    for (Adapting& adapting : *layers) {
      if (absl::Status status = TakeExample(example, data, &adapting); !status.ok()) {
        return Annotate(status, absl::StrCat("layer \"", adapting.node->name, "\": example ", i));
      }
    }
  }
  return absl::OkStatus();
}

// Layers take the one before them by default, which the head may lack.
void NameInputs(v1::Model* model) {
  for (int i = 1; i < model->layers_size(); ++i) {
    v1::Layer& layer = *model->mutable_layers(i);
    if (!layer.has_input() && layer.inputs().empty()) layer.add_inputs(model->layers(i - 1).name());
  }
}

}  // namespace

absl::StatusOr<std::set<std::string>> HoldPlaces(v1::Model* model) {
  std::set<std::string> names, all;
  for (const v1::Layer& layer : model->layers()) all.insert(layer.name());
  for (v1::Layer& layer : *model->mutable_layers()) {
    if (layer.name().empty()) {  // the builder's names, for what is looked up by them here
      const LayerType* const type = FindLayerType(layer.kind_case());
      if (type == nullptr) return Bad("model.layers: a layer has no type; set one, such as dense { ... }");
      for (int count = 0; layer.name().empty(); ++count) {
        const std::string name = count == 0 ? type->name : absl::StrCat(type->name, "_", count);
        if (all.insert(name).second) layer.set_name(name);
      }
    }
    if (!IsUnadapted(layer)) continue;
    SetPlaceholder(&layer);
    names.insert(layer.name());
  }
  return names;
}

absl::StatusOr<std::vector<AdaptedLayer>> AdaptModel(const std::set<std::string>& names,
                                                     const std::vector<std::string>& paths, v1::JobSpec* spec) {
  NameInputs(spec->mutable_model());
  CAIRN_ASSIGN_OR_RETURN(const Graph head, BuildHead(spec->model(), names));
  v1::JobSpec job = *spec;
  CAIRN_RETURN_IF_ERROR(CheckInputSources(&job, head));
  std::vector<Adapting> layers;
  for (const Node& node : head.nodes()) {
    if (!names.contains(node.name)) continue;
    const Node& input = head.nodes()[static_cast<size_t>(node.inputs[0])];
    layers.push_back({&node, &input, MakeLayerState(node, input.output)});
  }
  for (const std::string& path : paths) {
    job.mutable_data()->set_path(path);
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> data,
                           OpenDataset(job.data(), ExampleShape(job.data(), ModelInputShape(head))));
    CAIRN_RETURN_IF_ERROR(CheckInputSizes(head, job.data(), data->input_sizes()));
    if (const std::string why = data->no_training(); !why.empty()) return absl::InvalidArgumentError(why);
    CAIRN_RETURN_IF_ERROR(WithTexts(data, head).status());
    if (data->example_size() != ModelInputSize(head)) {
      return Bad("data.path: an example of ", path, " has ", data->example_size(), " numbers, the model's inputs have ",
                 ModelInputSize(head), "; name the columns in data.inputs, or another data.label_column");
    }
    CAIRN_RETURN_IF_ERROR(TakeAll(*data, &layers));
  }
  std::vector<AdaptedLayer> adapted;
  for (v1::Layer& layer : *spec->mutable_model()->mutable_layers()) {
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [&](const Adapting& adapting) { return adapting.node->name == layer.name(); });
    if (found == layers.end()) continue;
    if (absl::Status status = found->state->Finish(&layer); !status.ok()) {
      return Annotate(status, absl::StrCat("layer \"", layer.name(), "\""));
    }
    adapted.push_back({layer.name(), LayerTypeName(found->node->kind), found->state->Description()});
  }
  return adapted;
}

}  // namespace cairn
