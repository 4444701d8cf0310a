// Options with the same name in all Keras layers, both ways, for any layer that has the fields: constraints and
// activity_regularizer.
//
// Free functions; any thread. The config rejects what Cairn lacks (KerasConfig::Refuse) and names the layer.
#pragma once

#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"

namespace cairn {

// Reads them into the fields of `layer`, whose kind and other fields must have been read. A constraint of a variable
// that the layer does not have (use_bias=False) has no effect in Keras and is left out.
void ReadKerasCommon(KerasConfig& config, v1::Layer* layer);

// Replaces the nulls that the layer's row has written.
void WriteKerasCommon(const v1::Layer& layer, KerasWriter& writer);

}  // namespace cairn
