// The family of attention_layers.cc.
#pragma once

#include "worker/backend/reference/reference_layer.h"

namespace cairn::reference {

absl::Span<const Layer> AttentionLayers();

}  // namespace cairn::reference
