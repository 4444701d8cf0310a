// The check of a job's input pipeline at submission: data's format, caches, TFRecord spec and augmentation, class
// weights, label smoothing.
//
// Pure functions; any thread. Errors: INVALID_ARGUMENT, `field: what is wrong; what to do`.
#pragma once

#include "cairn/v1/data.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// Of an example before augmentation. It is that of the model's input, or has the data's image_height and image_width;
// where these differ from the input's, a random_crop makes the input of the example.
Shape ExampleShape(const v1::Data& data, const Shape& input_shape);

// The loss needs labels that are classes: class numbers, or a vector over the classes. (loss_check.cc)
bool IsCategorical(v1::Loss::Kind kind);

// data.augmentation alone, which ends in the model's input.
absl::Status CheckAugmentation(const v1::Data& data, const Shape& input_shape);

// Everything that needs no data. Fills in defaults.
absl::Status CheckDataPipeline(v1::JobSpec* spec, const Graph& graph);

// What needs the data too.
absl::Status CheckDataPipelineAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data);

}  // namespace cairn
