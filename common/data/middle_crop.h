// A data set whose examples a random_crop makes the model's input of, as evaluation and prediction see it.
//
// What keras.layers.RandomCrop is documented to do outside training (and does up to Keras 3.5): of each picture the
// largest part that has the input's proportions, in the middle, resized to the input (bilinear). Thread-safe.
#pragma once

#include <memory>

#include "common/data/dataset.h"

namespace cairn {

// `examples` itself where its examples have the input's shape (ExampleShape in common/model/data_check.h).
std::shared_ptr<const Dataset> AsModelInput(std::shared_ptr<const Dataset> examples, const v1::Data& data,
                                            const Shape& input_shape);

}  // namespace cairn
