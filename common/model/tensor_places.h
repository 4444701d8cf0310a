// Shared by Pad, Tile and Take: layers whose output has numbers of the input, at places that each axis has for itself.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/model/graph.h"

namespace cairn {

// By axis of the input: the places that stand one behind the other in the output; -1: a constant. Of a Take along an
// axis the indices stand there in one row.
std::vector<std::vector<int64_t>> PlacesOf(const Node& node, const Shape& input);

}  // namespace cairn
