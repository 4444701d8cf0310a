// Layers whose state Keras' adapt() computes of data: a Normalization without mean and variance, a Discretization with
// num_bins alone, a lookup or a TextVectorization without a vocabulary.
//
// Pure functions; any thread.
#pragma once

#include "cairn/v1/model.pb.h"

namespace cairn {

bool IsUnadapted(const v1::Layer& layer);

// Gives the unadapted layer a state that a graph can be built with. It is no state of any data.
void SetPlaceholder(v1::Layer* layer);
// Removes the state, for which the layer IsUnadapted afterwards.
void ClearState(v1::Layer* layer);

}  // namespace cairn
