// The constants that a graph is written with as ONNX, beside its variables: a description of a model may name any size,
// what is made of it may not.
//
// A pure function; any thread.
#pragma once

#include <cstdint>

#include "common/model/graph.h"

namespace cairn {

// Whether they are at most about `most` numbers, which a file of as many bytes can hold. Makes none of them.
bool ConstantsFit(const Graph& graph, int64_t most);

}  // namespace cairn
