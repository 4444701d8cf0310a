// Writes a job's augmentation as Keras' layers at the head of the model's description, the reverse of the import.
//
// Free functions; any thread.
#pragma once

#include "cairn/v1/data.pb.h"
#include "common/model/keras/keras_writer.h"

namespace cairn {

// Inserts the steps of data.augmentation after the InputLayer of a Sequential or Functional model, as Keras 3 does.
// Omitted, since they affect training only: steps without a Keras layer (Cutout); AutoContrast, which Keras applies at
// inference too; and RandomCrop, since the file's input is the cropped image.
void InsertAugmentation(const v1::Data& data, OrderedJson* model);

}  // namespace cairn
