// Axes that a layer names as Keras counts them: from 1, behind the batch, or negative from the end.
//
// Pure functions. Errors are INVALID_ARGUMENT; the caller adds the layer's name.
#pragma once

#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/layers/fields.h"

namespace cairn {
class KerasConfig;
}

namespace cairn::layers {

// Makes the axes those of `input`, from 1 and in order, each once; none given: the last one. Errors: an axis that it
// does not have, or one that is named twice.
absl::Status ResolveAxes(const char* field, const Shape& input, Numbers* axes);

// The same of axes that are to be the last ones of `input`.
absl::Status NeedLastAxes(const char* field, const Shape& input, Numbers* axes);

// `input` with the size 1 along all axes but these; resolved ones.
Shape KeptShape(const Shape& input, const Numbers& axes);
// Their sizes alone.
Shape SizesOf(const Shape& input, const Numbers& axes);

// Keras' `axis`: one number or a list, the batch's refused. An empty list, if none is given, is left empty.
void ReadAxes(KerasConfig& config, Numbers* axes);

}  // namespace cairn::layers
