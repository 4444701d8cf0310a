#include "worker/python/python_worker.h"

#include <pybind11/stl.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/log.h"
#include "common/rpc/credentials.h"
#include "common/rpc/daemon.h"
#include "worker/backend/external/external_backend.h"
#include "worker/python/python_program.h"

namespace cairn {
namespace {

namespace py = pybind11;

void Require(const absl::Status& status) {
  if (!status.ok()) throw py::value_error(std::string(status.message()));
}

// The log and the credentials are the process': the first worker's stand.
struct ProcessSettings {
  std::string log_level, log_file, tls_dir;
  bool operator==(const ProcessSettings&) const = default;
};

void UseOnce(const std::string& program, const ProcessSettings& settings) {
  static std::optional<ProcessSettings>& used = *new std::optional<ProcessSettings>;
  if (used.has_value()) {
    if (*used == settings) return;
    throw py::value_error(
        "log_level, log_file and tls_dir are the same for all workers of a process; an earlier one has others");
  }
  Require(InitLog({program, settings.log_level, settings.log_file}));
  Require(UseTls(settings.tls_dir));
  if (!OwnCaller().Is(CallerRole::kWorker)) {
    throw py::value_error(absl::StrCat("tls_dir: ", settings.tls_dir, "/tls.crt has ", OwnCaller().Shown(),
                                       ", not the role worker, with which a program computes; make it with "
                                       "deploy/make_certs.sh DIR user+worker:NAME"));
  }
  TuneAllocator();
  RaiseOpenFilesLimit();
  used = settings;
}

std::unique_ptr<Backend> BackendOf(const PythonWorkerOptions& options) {
  std::vector<ProgramRegistration> programs;
  for (const py::handle& program : options.programs) {
    programs.push_back(RegistrationOf(py::reinterpret_borrow<py::object>(program)));
  }
  ExternalBackendOptions of_backend;
  of_backend.device = options.device;
  of_backend.kind = options.gpu ? v1::GPU : v1::CPU;
  of_backend.fingerprint = options.fingerprint;
  absl::StatusOr<std::unique_ptr<ExternalBackend>> backend =
      ExternalBackend::Make(std::move(programs), std::move(of_backend));
  Require(backend.status());
  return *std::move(backend);
}

}  // namespace

PythonWorker::PythonWorker(const PythonWorkerOptions& options) : name_(options.worker.name), owner_(getpid()) {
  Require(options.worker.Validate());
  std::unique_ptr<Backend> backend = BackendOf(options);
  const py::gil_scoped_release unlock;
  node_ = std::make_unique<WorkerNode>(options.worker, std::move(backend));
}

PythonWorker::~PythonWorker() {
  if (owner_ == getpid()) {
    Stop();
  } else {
    (void)node_.release();  // NOLINT: its threads are not in this process, so that it cannot be taken down
  }
}

void PythonWorker::Stop() {
  if (owner_ != getpid()) {
    throw std::runtime_error(absl::StrCat(
        "the worker \"", name_, "\" is process ", owner_, "'s, of which this one was forked; start another ",
        "one here, and before it nothing of Cairn in the parent, or start the process by spawn"));
  }
  const py::gil_scoped_release unlock;
  node_.reset();
}

void DefineWorker(py::module_& module) {
  py::class_<PythonWorker>(module, "Worker", "A worker of the cluster, in this process, until stop() or the exit.")
      .def(py::init([](const std::string& coordinator, py::list programs, std::string name, int slots, std::string host,
                       int decode_threads, std::string device, bool gpu, std::string fingerprint, std::string tls_dir,
                       std::string log_level, std::string log_file, bool evaluator) {
             PythonWorkerOptions options;
             options.worker.coordinator = coordinator;
             options.worker.slots = slots;
             options.worker.host = host.empty() ? HostName() : host;
             options.worker.decode_threads = decode_threads;
             options.worker.role = evaluator ? v1::EVALUATOR : v1::WORKER;
             options.programs = std::move(programs);
             options.device = std::move(device);
             options.gpu = gpu;
             options.fingerprint = std::move(fingerprint);
             UseOnce(name.empty() ? "python" : name, {std::move(log_level), std::move(log_file), std::move(tls_dir)});
             options.worker.name = name.empty() ? NewNodeName("python", CallerRole::kWorker) : std::move(name);
             return std::make_unique<PythonWorker>(options);
           }),
           py::arg("coordinator"), py::arg("programs"), py::kw_only(), py::arg("name") = "", py::arg("slots") = 1,
           py::arg("host") = "", py::arg("decode_threads") = 1, py::arg("device") = "cpu", py::arg("gpu") = false,
           py::arg("fingerprint") = "", py::arg("tls_dir") = "", py::arg("log_level") = "warning",
           py::arg("log_file") = "", py::arg("evaluator") = false)
      .def("stop", &PythonWorker::Stop,
           "Leaves the cluster. Waits for the functions of programs that run; a second call does nothing.")
      .def_property_readonly("running", &PythonWorker::running)
      .def_property_readonly("name", &PythonWorker::name);
}

}  // namespace cairn
