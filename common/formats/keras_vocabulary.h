// States that Keras keeps beside a model's description: the vocabularies of adapted lookup layers, which a .keras
// archive holds as text files (assets/layers/string_lookup/vocabulary.txt).
//
// Free functions; any thread.
#pragma once

#include <set>
#include <string>

#include "common/base/status.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

// Puts the vocabularies of the archive at `path` into the configs of the layers of `model` that have none. Errors:
// INVALID_ARGUMENT names the layer: a vocabulary with idf_weights, or one that is not text.
absl::Status TakeVocabularies(const std::string& path, Json* model);

// Gives each layer of `model` that Keras' adapt() would give a state, and that has none, a placeholder
// (common/model/adaptable.h), so that the model can be read. Returns the layers' names.
std::set<std::string> HoldKerasPlaces(Json* model);

}  // namespace cairn
