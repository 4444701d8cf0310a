// Open dimensions of a model's input, besides the batch: null in Keras' JSON, as in [null, null, null, 3], and -1 in
// layers. They are closed before the model is read, since layers and the shapes of their variables are made for the
// closed shape.
//
// Free functions; any thread.
#pragma once

#include <string>

#include "cairn/v1/data.pb.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

// Also false for a description that cannot be read; the error is reported when it is read.
bool HasOpenShape(const v1::Model& model);

// Closes the input's open dimensions with those of `shape`, which does not include the batch. A dimension of `shape`
// that is not positive is unknown and stays open. A shape with another number of axes closes the only open dimension of
// an input with equally many numbers: 60 numbers make [12, 5] of [null, 5]. A model without open dimensions is
// unchanged. Errors: INVALID_ARGUMENT, the shape does not fit, or the model has several inputs.
absl::Status CloseShape(const Shape& shape, v1::Model* model);
absl::StatusOr<std::string> CloseKerasShape(const Shape& shape, const std::string& keras_json);

// The same for the input of this name alone, of a model with any number of inputs. Errors: also, there is none.
absl::Status CloseInput(const std::string& input, const Shape& shape, v1::Model* model);
absl::StatusOr<std::string> CloseKerasInput(const std::string& input, const Shape& shape,
                                            const std::string& keras_json);

// Closes inputs by what the fields of a job's data say, if they say something. Errors name the fields.
absl::Status CloseShapeByFields(const v1::Data& data, v1::Model* model);

// The shape of an example as far as the fields of a job's data tell it: [height, width, 0] of pictures, the numbers of
// TFRECORD; empty if they tell nothing.
Shape ShapeOfFields(const v1::Data& data);

}  // namespace cairn
