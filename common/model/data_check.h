// Checks a job's input pipeline at submission: the data's format, caches, TFRecord spec and augmentation, class
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

// The shape of an example before augmentation: that of the model's input, or one with the data's image_height and
// image_width. If these differ from the input's, a random_crop turns the example into the input.
Shape ExampleShape(const v1::Data& data, const Shape& input_shape);

// Whether the loss needs class labels: class indices, or a vector over the classes. (loss_check.cc)
bool IsCategorical(v1::Loss::Kind kind);

// Checks data.augmentation alone. Its result must have the shape of the model's input.
absl::Status CheckAugmentation(const v1::Data& data, const Shape& input_shape);

// Checks everything that does not depend on the data. Fills in defaults.
absl::Status CheckDataPipeline(v1::JobSpec* spec, const Graph& graph);

// Checks what depends on the data too.
absl::Status CheckDataPipelineAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data);

}  // namespace cairn
