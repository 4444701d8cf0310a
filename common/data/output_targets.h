// A data set whose targets are those of the job: of one output (input_target.h) or of several, end to end in the order
// of JobSpec.outputs. Thread-safe.
#pragma once

#include <memory>

#include "cairn/v1/job.pb.h"
#include "common/data/dataset.h"
#include "common/model/graph.h"

namespace cairn {

// `examples` itself where the targets are what the data says. data: the job's, or other data in its place. Examples
// that are not yet of the model's size (augmentation makes them so) leave the part that is the example itself at 0.
std::shared_ptr<const Dataset> WithJobTargets(std::shared_ptr<const Dataset> examples, const v1::Data& data,
                                              const v1::JobSpec& spec, const Graph& graph);

}  // namespace cairn
