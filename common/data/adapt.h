// Computes the state of a model's layers of data sets, as Keras' adapt() does (LayerState).
//
// Blocking; one thread a call.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

struct AdaptedLayer {
  std::string name, type, state;  // "text_vectorization", "20 of 31 tokens"
};

// Fills in the state of the layers `names` of spec->model(), in its order. spec->data() says how the examples are read;
// those of the training split of each of `paths`, in turn, are used. The layers take the model's inputs themselves.
// Errors: INVALID_ARGUMENT names the layer or the field; those of OpenDataset.
absl::StatusOr<std::vector<AdaptedLayer>> AdaptModel(const std::set<std::string>& names,
                                                     const std::vector<std::string>& paths, v1::JobSpec* spec);

// Gives the unadapted layers of the model names by Keras' scheme where they have none, and a placeholder for a state.
// Returns their names.
absl::StatusOr<std::set<std::string>> HoldPlaces(v1::Model* model);

}  // namespace cairn
