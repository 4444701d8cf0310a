// Layers inside a layer of Keras' JSON, as in Bidirectional and TimeDistributed.
//
// Free functions; any thread.
#pragma once

#include "cairn/v1/model.pb.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"

namespace cairn {

// Reads config[key], {"class_name": ..., "config": {...}}, as a layer with its name. ignored: options of the inner
// layer that have no effect there. Returns false if the key is missing or null. Errors are reported by the outer config
// (KerasConfig::Refuse).
bool ReadInnerLayer(KerasConfig& config, const char* key, std::initializer_list<const char*> ignored, v1::Layer* layer);

// Writes the same object. node: the outer layer.
absl::StatusOr<OrderedJson> InnerLayerJson(const Node& node, const v1::Layer& layer);

}  // namespace cairn
