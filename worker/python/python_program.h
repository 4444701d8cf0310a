// Programs that are Python objects: a registration of an object with `name`, `version` and `open(job)`, which gives an
// object with `train(step)`, `evaluate(step)` and `predict(step)`.
//
// The interpreter's lock is held while Python runs, and not otherwise. What Python raises is the error, with its
// traceback.
#pragma once

#include <pybind11/pybind11.h>

#include "worker/backend/external/external_backend.h"

namespace cairn {

// With the interpreter's lock. The object lives as long as the registration, which is copied and destroyed on any
// thread.
ProgramRegistration RegistrationOf(const pybind11::object& program);

// The exception that Python raised, its traceback behind it. With the interpreter's lock.
std::string TextOf(pybind11::error_already_set& raised);

}  // namespace cairn
