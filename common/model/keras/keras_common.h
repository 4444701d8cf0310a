// What is called alike in all layers of Keras, both ways, for whichever layer has the fields: constraints and the
// activity_regularizer.
//
// Free functions; any thread. What Cairn lacks is refused by the config (KerasConfig::Refuse), which names the layer.
#pragma once

#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"

namespace cairn {

// Into the fields of `layer`, whose kind and other fields are read already. A constraint of a variable that the layer
// does not have (use_bias=False) does nothing in Keras, and is left out.
void ReadKerasCommon(KerasConfig& config, v1::Layer* layer);

// Over the nulls that the layer's row has written.
void WriteKerasCommon(const v1::Layer& layer, KerasWriter& writer);

}  // namespace cairn
