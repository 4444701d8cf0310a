// Models that Cairn knows by name (`model { ready_made { name: "resnet18" } }`, `cairn models`).
//
// Free functions; any thread. Invariants:
//   1. A model is a list of layers that Graph::Build accepts, with as many parameters as the original model of that
//      name. Those that say so are of keras.applications, with the same names of layers and variables, so that weights
//      are interchangeable. `resnet18` and `resnet34` are torchvision's, with '_' for '.' in names, because Keras on
//      PyTorch does not accept '.'.
//   2. Cairn's own models, resnet18/34 and the vision transformers begin with a rescaling from 0..255. Those of
//      keras.applications use their input as it is or rescale it, as in Keras.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"

namespace cairn {

struct ReadyMadeInfo {
  const char* name;
  const char* what;  // one line
  std::vector<int32_t> input_shape;
  int32_t classes;
};

// All models, in the order of a listing.
absl::Span<const ReadyMadeInfo> ReadyMadeModels();

// Returns the layers, with the model's default shape and number of classes if these are not given. Errors:
// INVALID_ARGUMENT names the field of model.ready_made.
absl::StatusOr<v1::Model> MakeReadyMade(const v1::ReadyMade& wanted);

}  // namespace cairn
