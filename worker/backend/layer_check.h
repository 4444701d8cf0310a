// Checks that a backend computes all layers of a graph: afterwards its table has a row for each of them.
#pragma once

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/model/external_check.h"
#include "common/model/graph.h"

namespace cairn {

// has: whether the backend's table has a row for the kind. Errors: UNIMPLEMENTED names the first layer without one.
inline absl::Status CheckLayers(const Graph& graph, const char* backend, bool (*has)(LayerKind kind)) {
  for (const Node& node : graph.nodes()) {
    if (has(node.kind)) continue;
    if (node.kind == LayerKind::kExternal) {
      const v1::External& external = node.layer.external();
      return absl::UnimplementedError(absl::StrCat(
          "layer \"", node.name, "\": it needs the program ", ProgramText(external.program(), external.version()),
          ", which the backend ", backend, " has not; start a worker with it"));
    }
    return absl::UnimplementedError(absl::StrCat("layer \"", node.name, "\": ", LayerTypeName(node.kind),
                                                 " is not computed by the backend ", backend, "; use --device=cpu"));
  }
  return absl::OkStatus();
}

}  // namespace cairn
