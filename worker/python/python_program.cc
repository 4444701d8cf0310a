#include "worker/python/python_program.h"

#include <pybind11/stl.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "worker/limits.h"
#include "worker/python/python_step.h"

namespace cairn {
namespace {

namespace py = pybind11;

// A reference to a Python object that any thread may let go of.
std::shared_ptr<py::object> Shared(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            if (!Py_IsInitialized()) return;  // the interpreter is gone, and its objects with it
            const py::gil_scoped_acquire lock;
            delete held;
          }};
}

// (loss, figures) or the loss alone.
absl::StatusOr<ProgramSums> SumsOf(const py::object& result, const char* function) {
  ProgramSums sums;
  try {
    if (!py::isinstance<py::tuple>(result)) {
      sums.loss = result.cast<double>();
      return sums;
    }
    const auto pair = result.cast<std::pair<double, std::vector<double>>>();
    sums.loss = pair.first;
    sums.figures = pair.second;
    return sums;
  } catch (const py::cast_error&) {
    return absl::InvalidArgumentError(
        absl::StrCat(function, " gave ", py::repr(result).cast<std::string>().substr(0, 200),
                     ", which is neither the sum of the losses nor (that, [the sums of the figures])"));
  }
}

class PythonProgram : public ExternalProgram {
 public:
  PythonProgram(std::shared_ptr<const PythonJob> job, std::shared_ptr<py::object> program)
      : job_(std::move(job)), program_(std::move(program)) {}

  absl::StatusOr<ProgramSums> Train(const ProgramBatch& batch, const StepInfo& info, absl::Span<const float> values,
                                    ProgramGradients& gradients) override {
    ProgramSums sums;
    const absl::Status status = Call(
        "train", batch, values, [&](PythonStep& step) { step.SetStep(info, gradients.numbers(), &gradients); },
        [&](const py::object& result) -> absl::Status {
          CAIRN_ASSIGN_OR_RETURN(sums, SumsOf(result, "train"));
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    return sums;
  }

  absl::StatusOr<ProgramSums> Evaluate(const ProgramBatch& batch, absl::Span<const float> values) override {
    ProgramSums sums;
    const absl::Status status = Call(
        "evaluate", batch, values, [](PythonStep&) {},
        [&](const py::object& result) -> absl::Status {
          CAIRN_ASSIGN_OR_RETURN(sums, SumsOf(result, "evaluate"));
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    return sums;
  }

  absl::Status Predict(const ProgramBatch& batch, absl::Span<const float> values, absl::Span<float> outputs) override {
    return Call(
        "predict", batch, values, [&](PythonStep& step) { step.SetOutputs(outputs); },
        [](const py::object&) { return absl::OkStatus(); });
  }

 private:
  // Calls the object's function with a step. prepare: before; take: its result.
  absl::Status Call(const char* function, const ProgramBatch& batch, absl::Span<const float> values,
                    const std::function<void(PythonStep&)>& prepare,
                    const std::function<absl::Status(const py::object&)>& take) {
    const py::gil_scoped_acquire lock;
    const auto step = std::make_shared<PythonStep>(job_, batch, values);
    prepare(*step);
    absl::Status status;
    try {
      status = take(program_->attr(function)(step));
    } catch (py::error_already_set& raised) {
      status = absl::UnavailableError(TextOf(raised));
    }
    step->Close();
    return status;
  }

  const std::shared_ptr<const PythonJob> job_;
  const std::shared_ptr<py::object> program_;
};

absl::StatusOr<std::unique_ptr<ExternalProgram>> Open(const std::shared_ptr<py::object>& program,
                                                      const ProgramJob& job) {
  const py::gil_scoped_acquire lock;
  try {
    auto told = std::make_shared<PythonJob>(PythonJob{job});
    py::object opened = program->attr("open")(told);
    return std::make_unique<PythonProgram>(std::move(told), Shared(std::move(opened)));
  } catch (py::error_already_set& raised) {
    return absl::UnavailableError(TextOf(raised));
  }
}

}  // namespace

std::string TextOf(py::error_already_set& raised) {
  try {
    const py::object format = py::module_::import("traceback").attr("format_exception");
    const py::object none = py::none();
    const py::object trace = raised.trace() ? raised.trace() : none;
    std::string traceback, last;
    for (const py::handle& line : format(raised.type(), raised.value(), trace)) {
      last = line.cast<std::string>();
      traceback += last;
    }
    while (!last.empty() && last.back() == '\n') last.pop_back();
    if (traceback.size() > kTracebackBytesMax) {
      traceback = ToUtf8(absl::StrCat("...", traceback.substr(traceback.size() - kTracebackBytesMax)));
    }
    return absl::StrCat(std::string(CutUtf8(last, kTracebackBytesMax / 4)), "\n", traceback);
  } catch (const std::exception&) {  // while it is formatted
    return "an exception that cannot be shown";
  }
}

ProgramRegistration RegistrationOf(const py::object& program) {
  ProgramRegistration registration;
  registration.name = py::str(program.attr("name")).cast<std::string>();
  registration.version = py::str(program.attr("version")).cast<std::string>();
  if (!py::hasattr(program, "open")) throw py::type_error("a program needs a function open(job)");
  registration.open = [held = Shared(program)](const ProgramJob& job) { return Open(held, job); };
  return registration;
}

}  // namespace cairn
