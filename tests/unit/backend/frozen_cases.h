// The models of LayerCases with layers that are not trained (Layer.trainable): once all but the last layer with
// variables, so that the way back ends early, once all but the first one, so that it leads through the frozen ones. And
// those models with layers that are computed as in inference (Layer.training), which are trained.
#pragma once

#include <google/protobuf/text_format.h>

#include <string>
#include <vector>

#include "tests/unit/backend/layer_cases.h"

namespace cairn {

inline std::vector<LayerCase> FrozenCases() {
  std::vector<LayerCase> cases;
  for (const LayerCase& c : LayerCases()) {
    const std::shared_ptr<const Graph> graph = CaseGraph(c);
    const int first = graph->variables().front().node, last = graph->variables().back().node;
    if (first == last) continue;
    for (const auto& [name, trained] : {std::pair("FrozenBase", last), std::pair("FrozenHead", first)}) {
      LayerCase frozen = c;
      frozen.name += name;
      v1::Model model = FromText<v1::Model>(c.model);
      for (const Node& node : graph->nodes()) {
        if (node.shares < 0) model.mutable_layers(node.id)->set_trainable(node.id == trained);
      }
      google::protobuf::TextFormat::PrintToString(model, &frozen.model);
      cases.push_back(std::move(frozen));
    }
  }
  return cases;
}

// The cases in which training differs from inference.
inline std::vector<LayerCase> InferenceCases() {
  std::vector<LayerCase> cases;
  for (const LayerCase& c : LayerCases()) {
    v1::Model model = FromText<v1::Model>(c.model);
    bool differs = false;
    for (v1::Layer& layer : *model.mutable_layers()) {
      layer.set_training(false);
      differs |= layer.has_batch_normalization() || layer.has_dropout() || layer.has_spatial_dropout2d() ||
                 layer.has_gaussian_noise() || layer.multi_head_attention().dropout() > 0 ||
                 layer.attention().dropout() > 0 || layer.additive_attention().dropout() > 0;
    }
    if (!differs) continue;
    LayerCase inference = c;
    inference.name += "Inference";
    google::protobuf::TextFormat::PrintToString(model, &inference.model);
    cases.push_back(std::move(inference));
  }
  return cases;
}

}  // namespace cairn
