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

// data.augmentation alone, for examples of this shape.
absl::Status CheckAugmentation(const v1::Data& data, const Shape& example_shape);

// Everything that needs no data. Fills in defaults.
absl::Status CheckDataPipeline(v1::JobSpec* spec, const Graph& graph);

// What needs the data too.
absl::Status CheckDataPipelineAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data);

}  // namespace cairn
