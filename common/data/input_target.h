// A data set whose targets depend on the model: the examples themselves (for an autoencoder), or pictures scaled as the
// model's first layers would scale them. Thread-safe.
#pragma once

#include <memory>

#include "cairn/v1/job.pb.h"
#include "common/data/dataset.h"
#include "common/model/graph.h"
#include "common/model/target_check.h"

namespace cairn {

// Returns `examples` itself if the data's own targets are used. examples: the result of AsModelInput.
std::shared_ptr<const Dataset> WithTargets(std::shared_ptr<const Dataset> examples, const v1::Data& data,
                                           const v1::Loss& loss, const Graph& graph);

// Sets the target to the example as the model sees it: scale * number + offset.
void TakeInput(Element element, const uint8_t* example, const InputScale& scale, absl::Span<float> target);

}  // namespace cairn
