// Open dimensions of a model's input, beside the batch: null in Keras' JSON, as in [null, null, null, 3], -1 in layers.
// They are closed before the model is read: layers, and the shapes of their variables, are made for the closed shape.
//
// Free functions; any thread.
#pragma once

#include <string>

#include "cairn/v1/data.pb.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

// False also of a description that cannot be read: what is wrong with it is said where it is read.
bool HasOpenShape(const v1::Model& model);

// Closes the input's open dimensions by `shape`, without the batch; a dimension of it that is not positive is not
// known, and stays open. A shape of another number of axes closes the one open dimension of an input with as many
// numbers: 60 numbers are [12, 5] to [null, 5]. A model without open dimensions is left alone.
// Errors: INVALID_ARGUMENT the shape does not fit; the model has several inputs.
absl::Status CloseShape(const Shape& shape, v1::Model* model);
absl::StatusOr<std::string> CloseKerasShape(const Shape& shape, const std::string& keras_json);

// Closes it by what the fields of a job's data say, if they say something. Errors name the fields.
absl::Status CloseShapeByFields(const v1::Data& data, v1::Model* model);

// What the fields of a job's data say of an example: pictures [height, width, 0], numbers of TFRECORD; empty: nothing.
Shape ShapeOfFields(const v1::Data& data);

}  // namespace cairn
