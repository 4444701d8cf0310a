// A data set of what a model's backends take, of one whose examples hold texts: it computes the layers that take texts
// (TextFunction) whenever an example is read, on the thread that reads it.
//
// Thread rule: as Dataset.
#pragma once

#include <memory>

#include "common/data/dataset.h"
#include "common/model/graph.h"

namespace cairn {

// graph: the whole model; the examples are its inputs (ModelInputShape), and those of the result are the inputs of
// ComputedGraph. Returns `examples` itself if the model takes no texts. Errors: INVALID_ARGUMENT: the data has texts
// where the model takes numbers, or numbers where it takes texts.
absl::StatusOr<std::shared_ptr<const Dataset>> WithTexts(std::shared_ptr<const Dataset> examples, const Graph& graph);

}  // namespace cairn
