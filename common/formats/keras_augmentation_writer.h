// A job's augmentation as Keras' layers, at the head of the model's description: what came in so goes out so.
//
// Free functions; any thread.
#pragma once

#include "cairn/v1/data.pb.h"
#include "common/model/keras/keras_writer.h"

namespace cairn {

// Puts the steps of data.augmentation behind the InputLayer of a Sequential or Functional model, as Keras 3 writes it.
// Left out, as they bear on training alone: what Keras has no layer for (Cutout), an AutoContrast, which Keras does in
// inference too, and a RandomCrop: the file's input is what that leaves.
void InsertAugmentation(const v1::Data& data, OrderedJson* model);

}  // namespace cairn
