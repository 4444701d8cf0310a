// The Python module cairn._cairn.
#include <pybind11/pybind11.h>

#include "worker/python/python_step.h"
#include "worker/python/python_worker.h"

PYBIND11_MODULE(_cairn, module) {
  module.doc() = "Cairn's worker in this process. Use cairn.worker and cairn.torch, which are built on it.";
  cairn::DefineStep(module);
  cairn::DefineWorker(module);
}
