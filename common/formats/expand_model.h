// A job's model as the user gave it (layers, the name of a ready-made model, or Keras' JSON) as layers: the one step
// before the check of a job, at the coordinator, and where a command needs a graph.
//
// Free functions; any thread. Invariant: afterwards the model has layers, and trainable_layers, alone; one that had
// them is left as it is.
#pragma once

#include "cairn/v1/data.pb.h"
#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// data: takes what the preprocessing layers at the head of a Keras model (RandomFlip, ...) say of the data
// (KerasModel::data); nullptr: they are refused. Errors: INVALID_ARGUMENT begins with the field,
// `model.keras_json: layer "conv2d" (Conv2D): ...`.
absl::Status ExpandModel(v1::Model* model, v1::Data* data = nullptr);

// The model, and what its head says of the data.
absl::Status ExpandJob(v1::JobSpec* spec);

}  // namespace cairn
