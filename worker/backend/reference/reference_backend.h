// ReferenceBackend: a slow Backend for tests, and to check others against. It computes in float64 and rounds its
// results to float32. It supports every layer.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace cairn {

std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace cairn
