// Models that Cairn knows by name (`model { ready_made { name: "resnet18" } }`, `cairn models`).
//
// Free functions; any thread. Invariants:
//   1. A model is a list of layers that Graph::Build takes, with as many parameters as the model of that name has
//      elsewhere: `resnet50`, `mobilenet_v2` and `vgg16` are those of keras.applications with the names of their layers
//      and variables, so that weights of one fit the other; `resnet18` and `resnet34` are torchvision's, likewise (its
//      names with '_' for '.', which Keras over PyTorch does not take).
//   2. Models of our own, and resnet18/34, begin with a rescaling of 0..255; those of keras.applications take what they
//      are given, as in Keras.
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

// All of them, in the order of a listing.
absl::Span<const ReadyMadeInfo> ReadyMadeModels();

// The layers, with the model's own shape and number of classes where they are not given. Errors: INVALID_ARGUMENT names
// the field of model.ready_made.
absl::StatusOr<v1::Model> MakeReadyMade(const v1::ReadyMade& wanted);

}  // namespace cairn
