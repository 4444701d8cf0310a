// Layers within a layer of Keras' JSON, as Bidirectional and TimeDistributed have them.
//
// Free functions; any thread.
#pragma once

#include "cairn/v1/model.pb.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"

namespace cairn {

// config[key], {"class_name": ..., "config": {...}}, as a layer with its name; ignored: options of it that mean nothing
// there. False: the key is missing or null. Errors are the outer config's (KerasConfig::Refuse).
bool ReadInnerLayer(KerasConfig& config, const char* key, std::initializer_list<const char*> ignored, v1::Layer* layer);

// The same as Keras writes it. node: of the outer layer.
absl::StatusOr<OrderedJson> InnerLayerJson(const Node& node, const v1::Layer& layer);

}  // namespace cairn
