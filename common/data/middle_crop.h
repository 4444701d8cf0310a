// A data set for evaluation and prediction in which a random_crop turns examples into the model's input.
//
// It does what keras.layers.RandomCrop is documented to do outside training (and does up to Keras 3.5): takes the
// largest centred part of each picture with the input's aspect ratio, and resizes it to the input (bilinear).
// Thread-safe.
#pragma once

#include <memory>

#include "common/data/dataset.h"

namespace cairn {

// Returns `examples` itself if they have the input's shape (ExampleShape in common/model/data_check.h).
std::shared_ptr<const Dataset> AsModelInput(std::shared_ptr<const Dataset> examples, const v1::Data& data,
                                            const Shape& input_shape);

}  // namespace cairn
