// PythonWorker: a worker of the cluster in the process of a Python interpreter.
//
// Thread rule: Python's threads, with the interpreter's lock. Invariants:
//   1. The lock is given up while the worker starts and stops, for its slots may want it.
//   2. A worker is of the process that made it: after a fork the child's copy does nothing and is never destroyed.
#pragma once

#include <pybind11/pybind11.h>
#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "worker/node/worker_node.h"

namespace cairn {

struct PythonWorkerOptions {
  WorkerOptions worker;
  pybind11::list programs;
  std::string device, fingerprint;
  bool gpu = false;
};

class PythonWorker {
 public:
  // Raises ValueError.
  explicit PythonWorker(const PythonWorkerOptions& options);
  ~PythonWorker();
  PythonWorker(const PythonWorker&) = delete;
  PythonWorker& operator=(const PythonWorker&) = delete;

  // Waits for the functions of Python that run. Again: nothing.
  void Stop();
  bool running() const { return node_ != nullptr && owner_ == getpid(); }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  const pid_t owner_;
  std::unique_ptr<WorkerNode> node_;
};

void DefineWorker(pybind11::module_& module);

}  // namespace cairn
