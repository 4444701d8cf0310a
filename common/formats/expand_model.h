// Expands a job's model from the user's form (layers, the name of a ready-made model, or Keras' JSON) to layers. The
// coordinator does this before it checks a job, and commands do it where they need a graph.
//
// Free functions; any thread. Invariant: afterwards the model has only layers and trainable_layers; one that had
// them is unchanged.
#pragma once

#include "cairn/v1/data.pb.h"
#include "cairn/v1/job.pb.h"
#include "common/base/status.h"

namespace cairn {

// data: receives the data settings of preprocessing layers at the head of a Keras model (RandomFlip, ...;
// KerasModel::data); nullptr: such layers are refused. Errors: INVALID_ARGUMENT begins with the field,
// `model.keras_json: layer "conv2d" (Conv2D): ...`.
absl::Status ExpandModel(v1::Model* model, v1::Data* data = nullptr);

// Expands the model, with the data settings of its head.
absl::Status ExpandJob(v1::JobSpec* spec);

}  // namespace cairn
