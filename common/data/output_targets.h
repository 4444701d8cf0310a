// A data set with the job's targets: those of one output (input_target.h), or those of several outputs, concatenated in
// the order of JobSpec.outputs. Thread-safe.
#pragma once

#include <memory>

#include "cairn/v1/job.pb.h"
#include "common/data/dataset.h"
#include "common/model/graph.h"

namespace cairn {

// Returns `examples` itself if the data's own targets are used. data: the job's, or other data used instead. If
// examples do not have the model's size yet (augmentation produces it), the part of the target that is the example
// itself is left 0.
std::shared_ptr<const Dataset> WithJobTargets(std::shared_ptr<const Dataset> examples, const v1::Data& data,
                                              const v1::JobSpec& spec, const Graph& graph);

}  // namespace cairn
