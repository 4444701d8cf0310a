// The rows of the table of layers (common/model/layer_type.h), each in a file of this folder.
#pragma once

#include "common/model/layer_kind.h"
#include "common/model/layer_type.h"

namespace cairn::layers {

#define CAIRN_LAYER_DECLARATION(name) extern const LayerType k##name##Layer;
CAIRN_LAYERS(CAIRN_LAYER_DECLARATION)
#undef CAIRN_LAYER_DECLARATION

// The `infer` of a layer that keeps the shape of its only input and has nothing to check.
inline absl::Status InferNothing(absl::Span<const Shape>, Node*, std::vector<Variable>*) { return absl::OkStatus(); }

}  // namespace cairn::layers
