#include "worker/python/python_step.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

namespace py = pybind11;

template <typename T>
py::memoryview ViewOf(absl::Span<T> numbers, const char* what) {
  if (numbers.data() == nullptr) {
    throw py::value_error(absl::StrCat("the step has no ", what, ": of another call, or the call has returned"));
  }
  return py::memoryview::from_buffer(numbers.data(), {static_cast<py::ssize_t>(numbers.size())},
                                     {static_cast<py::ssize_t>(sizeof(T))});
}

// Read-only, of rows.
template <typename T>
py::memoryview RowsOf(const void* data, const Shape& shape) {
  std::vector<py::ssize_t> sides(shape.begin(), shape.end()), strides(shape.size(), sizeof(T));
  for (size_t i = shape.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * sides[i];
  return py::memoryview::from_buffer(static_cast<const T*>(data), sides, strides);
}

const char* KindName(VariableKind kind) {
  switch (kind) {
    case VariableKind::kMovingAverage: return "moving_average";
    case VariableKind::kFrozen: return "frozen";
    default: return "trainable";
  }
}

Shape WithExamples(int64_t examples, const Shape& shape) {
  Shape all{examples};
  all.insert(all.end(), shape.begin(), shape.end());
  return all;
}

}  // namespace

py::list PythonJob::Variables() const {
  py::list all;
  for (const Variable& v : job.graph->variables()) {
    all.append(py::make_tuple(v.name, py::tuple(py::cast(v.shape)), KindName(v.kind), v.offset));
  }
  return all;
}

PythonStep::PythonStep(std::shared_ptr<const PythonJob> job, const ProgramBatch& batch, absl::Span<const float> values)
    : job_(std::move(job)),
      batch_(batch.batch),
      indices_(batch.indices),
      split_(absl::AsciiStrToLower(v1::Split_Name(batch.split))),
      examples_(batch.examples),
      values_(values) {}

void PythonStep::SetStep(const StepInfo& info, absl::Span<float> numbers, ProgramGradients* gradients) {
  info_ = info;
  numbers_ = numbers;
  absl::MutexLock lock(&mutex_);
  gradients_ = gradients;
}

void PythonStep::Close() {
  batch_ = nullptr;
  values_ = {};
  numbers_ = outputs_ = {};
  const py::gil_scoped_release unlock;
  absl::MutexLock lock(&mutex_);
  gradients_ = nullptr;
  closed_ = true;
}

py::object PythonStep::Indices() const {
  if (batch_ != nullptr) return py::none();
  return py::array_t<int64_t>(static_cast<py::ssize_t>(indices_.size()), indices_.data());
}

py::object PythonStep::Inputs() const {
  if (batch_ == nullptr) return py::none();
  const auto& sides = job_->job.external.input_shape();
  const Shape shape = WithExamples(examples_, Shape(sides.begin(), sides.end()));
  if (batch_->element == Element::kByte) return RowsOf<uint8_t>(batch_->inputs.data(), shape);
  return RowsOf<float>(batch_->inputs.data(), shape);
}

py::object PythonStep::Labels() const {
  if (batch_ == nullptr) return py::none();
  return RowsOf<float>(batch_->labels.data(), {examples_, batch_->label_size});
}

py::memoryview PythonStep::Values() const { return ViewOf(values_, "values"); }
py::memoryview PythonStep::Gradients() const { return ViewOf(numbers_, "gradients"); }
py::memoryview PythonStep::Outputs() const { return ViewOf(outputs_, "outputs"); }

void PythonStep::Final(int variable) {
  absl::MutexLock lock(&mutex_);
  if (gradients_ == nullptr) {
    throw std::runtime_error(closed_ ? "final: the call that the step belongs to has returned"
                                     : "final: only a call of train has gradients");
  }
  if (const absl::Status status = gradients_->Final(variable); !status.ok()) {
    throw std::invalid_argument(std::string(status.message()));
  }
}

void DefineStep(py::module_& module) {
  py::class_<PythonJob, std::shared_ptr<PythonJob>>(module, "Job",
                                                    "A job, as its program is told of it before its first batch.")
      .def_property_readonly("variables", &PythonJob::Variables,
                             "(name, shape, kind, offset) of each variable; kind is 'trainable', 'moving_average' or "
                             "'frozen', offset its first number in the values.")
      .def_property_readonly(
          "space", [](const PythonJob& j) { return j.job.graph->space_size(); },
          "Numbers of values and gradients, padding between variables included.")
      .def_property_readonly("config", [](const PythonJob& j) { return j.job.external.config(); })
      .def_property_readonly("figures",
                             [](const PythonJob& j) {
                               const auto& names = j.job.external.figures();
                               return std::vector<std::string>(names.begin(), names.end());
                             })
      .def_property_readonly("output_shape",
                             [](const PythonJob& j) {
                               const auto& sides = j.job.external.output_shape();
                               return py::tuple(py::cast(std::vector<int32_t>(sides.begin(), sides.end())));
                             })
      .def_property_readonly("batch_max", [](const PythonJob& j) { return j.job.batch_max; })
      .def_property_readonly("threads", [](const PythonJob& j) { return j.job.threads; })
      .def_property_readonly("deterministic", [](const PythonJob& j) { return j.job.deterministic; });

  py::class_<PythonStep, std::shared_ptr<PythonStep>>(
      module, "Step", "A batch. Memory views are valid until the function that was given the step returns.")
      .def_property_readonly("examples", &PythonStep::examples)
      .def_property_readonly("split", &PythonStep::split, "'train', 'validation' or 'test'.")
      .def_property_readonly("indices", &PythonStep::Indices, "With data.external: which examples; else None.")
      .def_property_readonly("inputs", &PythonStep::Inputs, "With data.path: the examples; else None.")
      .def_property_readonly("labels", &PythonStep::Labels, "With data.path: the labels; else None.")
      .def_property_readonly("values", &PythonStep::Values, "All values, float32, read-only.")
      .def_property_readonly("gradients", &PythonStep::Gradients,
                             "Of train: sums over the examples, float32, 0 where nothing is written.")
      .def_property_readonly("outputs", &PythonStep::Outputs, "Of predict: float32, to be written.")
      .def_property_readonly("values_address", &PythonStep::values_address)
      .def_property_readonly("gradients_address", &PythonStep::gradients_address)
      .def_property_readonly("seed", [](const PythonStep& s) { return s.info().seed; })
      .def_property_readonly("step", [](const PythonStep& s) { return s.info().step; })
      .def_property_readonly("replica", [](const PythonStep& s) { return s.info().replica; })
      .def("final", &PythonStep::Final, py::arg("variable"), py::call_guard<py::gil_scoped_release>(),
           "The gradient of this variable (by its place) is written and changes no more: it may be sent.");
}

}  // namespace cairn
