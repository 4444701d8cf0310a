// ReferenceBackend: the Backend of tests and of doubt. Slow, float64 inside, results rounded to float32. Every layer is
// supported.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace cairn {

std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace cairn
