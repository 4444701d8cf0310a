// A data set whose targets follow from the model: the examples themselves (an autoencoder's), or pictures that count as
// the model's first layers would see them. Thread-safe.
#pragma once

#include <memory>

#include "cairn/v1/job.pb.h"
#include "common/data/dataset.h"
#include "common/model/graph.h"
#include "common/model/target_check.h"

namespace cairn {

// `examples` itself where the targets are what the data says. examples: as AsModelInput gives them.
std::shared_ptr<const Dataset> WithTargets(std::shared_ptr<const Dataset> examples, const v1::Data& data,
                                           const v1::Loss& loss, const Graph& graph);

// target: an example as the model sees it: scale * number + offset.
void TakeInput(Element element, const uint8_t* example, const InputScale& scale, absl::Span<float> target);

}  // namespace cairn
