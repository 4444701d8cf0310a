// The models of LayerCases with layers that are not trained (Layer.trainable): once all but the last layer with variables, so that
// the way back ends early, once all but the first one, so that it leads through the frozen ones.
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
      for (const Node& node : graph->nodes()) model.mutable_layers(node.id)->set_trainable(node.id == trained);
      google::protobuf::TextFormat::PrintToString(model, &frozen.model);
      cases.push_back(std::move(frozen));
    }
  }
  return cases;
}

}  // namespace cairn
