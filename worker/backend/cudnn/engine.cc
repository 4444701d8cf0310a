#include "worker/backend/cudnn/engine.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/backend/limits.h"

namespace cairn::cudnn {
namespace {

constexpr int64_t kAlignment = 16;  // of tensors, as kernels.h has it

using Dims = std::vector<int64_t>;

cudnnDataType_t TypeOf(DType type) {
  switch (type) {
    case DType::kBFloat16: return CUDNN_DATA_BFLOAT16;
    case DType::kFloat16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
  }
}

// Whether the window is over volumes: their tensors have a depth before the height.
bool IsVolume(const kernels::Window& w) { return w.depth.in != 1 || w.depth.out != 1 || w.depth.kernel != 1; }

// [n, c, h, w], of volumes [n, c, d, h, w].
Dims DimsOf(const kernels::Window& w, int64_t n, int64_t c, int64_t d, int64_t height, int64_t width) {
  return IsVolume(w) ? Dims{n, c, d, height, width} : Dims{n, c, height, width};
}
Dims ImageDims(const kernels::Window& w) { return DimsOf(w, w.examples, w.in[2], w.depth.in, w.in[0], w.in[1]); }
Dims ResultDims(const kernels::Window& w) { return DimsOf(w, w.examples, w.out[2], w.depth.out, w.out[0], w.out[1]); }
// cuDNN recognizes groups by a kernel with fewer channels than the image.
Dims KernelDims(const kernels::Window& w) {
  return DimsOf(w, w.out[2], w.in[2] / w.groups, w.depth.kernel, w.kernel[0], w.kernel[1]);
}

// In the order that cuDNN names them, channels last in memory; of kernels [out, in, h, w].
// inner: within the engine only.
absl::StatusOr<Descriptor> MakeTensor(int64_t id, DType type, const Dims& dims, bool inner = false) {
  CAIRN_ASSIGN_OR_RETURN(Descriptor tensor, Descriptor::Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor"));
  const int64_t rank = static_cast<int64_t>(dims.size());
  Dims strides(dims.size(), 1);
  int64_t stride = dims[1];
  for (size_t i = dims.size(); i-- > 2; stride *= dims[i]) strides[i] = stride;
  strides[0] = stride;
  const cudnnDataType_t data_type = TypeOf(type);
  CAIRN_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &data_type));
  CAIRN_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dims.data()));
  CAIRN_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, strides.data()));
  CAIRN_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id));
  CAIRN_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment));
  CAIRN_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inner));
  CAIRN_RETURN_IF_ERROR(tensor.Finalize());
  return tensor;
}

absl::StatusOr<Descriptor> MakeWindow(const kernels::Window& w) {
  CAIRN_ASSIGN_OR_RETURN(Descriptor window, Descriptor::Make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution"));
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  Dims dilation(w.dilation, w.dilation + 2), strides(w.strides, w.strides + 2), pads(w.pad, w.pad + 2);
  if (IsVolume(w)) {
    dilation.insert(dilation.begin(), w.depth.dilation);
    strides.insert(strides.begin(), w.depth.stride);
    pads.insert(pads.begin(), w.depth.pad);
  }
  const int64_t axes = static_cast<int64_t>(pads.size());
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, axes));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, axes, dilation.data()));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, axes, strides.data()));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, axes, pads.data()));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, axes, pads.data()));
  CAIRN_RETURN_IF_ERROR(window.Finalize());
  return window;
}

// y = x + b (b may be none), or relu(x). `function` must stay as long as the operation.
absl::StatusOr<Descriptor> MakePointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b,
                                         const Descriptor& y, Descriptor* function) {
  CAIRN_ASSIGN_OR_RETURN(*function, Descriptor::Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise function"));
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  CAIRN_RETURN_IF_ERROR(function->Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
  CAIRN_RETURN_IF_ERROR(function->Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
  CAIRN_RETURN_IF_ERROR(function->Finalize());
  CAIRN_ASSIGN_OR_RETURN(Descriptor operation,
                         Descriptor::Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise operation"));
  CAIRN_RETURN_IF_ERROR(operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *function));
  CAIRN_RETURN_IF_ERROR(operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x));
  if (b != nullptr) CAIRN_RETURN_IF_ERROR(operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b));
  CAIRN_RETURN_IF_ERROR(operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
  CAIRN_RETURN_IF_ERROR(operation.Finalize());
  return operation;
}

// Lets bias and relu follow the convolution, whose output is `sums` instead of the result.
absl::Status AddEpilogue(const Convolution& c, const Precision& precision, const Descriptor& sums,
                         ConvolutionOperation* o) {
  const kernels::Window& w = c.window;
  const Dims dims = ResultDims(w);
  const Descriptor* from = &sums;
  o->inner.reserve(8);  // descriptors refer to one another
  if (c.bias) {
    CAIRN_ASSIGN_OR_RETURN(Descriptor bias,
                           MakeTensor(ConvolutionOperation::kBias, precision.type, DimsOf(w, 1, w.out[2], 1, 1, 1)));
    const Descriptor* added = &o->result;
    if (c.relu) {
      CAIRN_ASSIGN_OR_RETURN(Descriptor between, MakeTensor('a', DType::kFloat32, dims, true));
      added = &o->inner.emplace_back(std::move(between));
    }
    Descriptor function;
    CAIRN_ASSIGN_OR_RETURN(Descriptor add, MakePointwise(CUDNN_POINTWISE_ADD, *from, &bias, *added, &function));
    o->operations.push_back(add.get());
    from = added;
    for (Descriptor* kept : {&bias, &function, &add}) o->inner.push_back(std::move(*kept));
  }
  if (c.relu) {
    Descriptor function;
    CAIRN_ASSIGN_OR_RETURN(Descriptor relu,
                           MakePointwise(CUDNN_POINTWISE_RELU_FWD, *from, nullptr, o->result, &function));
    o->operations.push_back(relu.get());
    for (Descriptor* kept : {&function, &relu}) o->inner.push_back(std::move(*kept));
  }
  return absl::OkStatus();
}

struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t window, image, kernel, result, alpha, beta;
};

Names NamesOf(Convolution::Kind kind) {
  switch (kind) {
    case Convolution::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Convolution::kBackwardData:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Convolution::kBackwardFilter: break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

// The descriptors that `from` has under `name`: as many as there are, or `count_max`.
absl::StatusOr<std::vector<Descriptor>> Results(const Descriptor& from, cudnnBackendAttributeName_t name,
                                                cudnnBackendDescriptorType_t type, int64_t count_max = 0) {
  int64_t count = count_max;
  if (count == 0) {
    CAIRN_RETURN_IF_ERROR(
        FromCudnn(cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
                  "cudnnBackendGetAttribute of a count"));
  }
  std::vector<Descriptor> results;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    CAIRN_ASSIGN_OR_RETURN(Descriptor descriptor, Descriptor::Make(type, "result"));
    raw.push_back(descriptor.get());
    results.push_back(std::move(descriptor));
  }
  if (count == 0) return results;
  int64_t written = 0;
  CAIRN_RETURN_IF_ERROR(
      FromCudnn(cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &written, raw.data()),
                "cudnnBackendGetAttribute of descriptors"));
  results.resize(written);
  return results;
}

absl::StatusOr<Descriptor> EngineOf(const Descriptor& config) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<Descriptor> engine,
                         Results(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  if (engine.empty()) return absl::InternalError("an engine's configuration without an engine");
  return std::move(engine[0]);
}

// An int64, or an enum, of which only four bytes are written.
absl::StatusOr<int64_t> Number(const Descriptor& from, cudnnBackendAttributeName_t name,
                               cudnnBackendAttributeType_t type) {
  int64_t count = 0, value = 0;
  CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnBackendGetAttribute(from.get(), name, type, 1, &count, &value),
                                  "cudnnBackendGetAttribute of a number"));
  return value;
}

absl::StatusOr<std::vector<cudnnBackendNumericalNote_t>> NotesOf(const Descriptor& engine) {
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  int64_t count = 0;
  CAIRN_RETURN_IF_ERROR(
      FromCudnn(cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                         CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()),
                "CUDNN_ATTR_ENGINE_NUMERICAL_NOTE"));
  notes.resize(count);
  return notes;
}

// The engine's number and the settings of its knobs. cuDNN does not say how many knobs there are before all are
// requested.
absl::StatusOr<std::string> NameOf(const Descriptor& config, const Descriptor& engine) {
  CAIRN_ASSIGN_OR_RETURN(const int64_t index, Number(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64));
  CAIRN_ASSIGN_OR_RETURN(
      const std::vector<Descriptor> knobs,
      Results(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS));
  std::string name = absl::StrCat("engine ", index, knobs.empty() ? "" : " knobs");
  for (const Descriptor& knob : knobs) {
    CAIRN_ASSIGN_OR_RETURN(const int64_t type, Number(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE));
    CAIRN_ASSIGN_OR_RETURN(const int64_t value, Number(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64));
    absl::StrAppend(&name, " ", type, "=", value);
  }
  return name;
}

}  // namespace

// ---- descriptors ----

absl::StatusOr<Descriptor> Descriptor::Make(cudnnBackendDescriptorType_t type, const char* what) {
  Descriptor descriptor;
  descriptor.what_ = what;
  CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnBackendCreateDescriptor(type, &descriptor.descriptor_),
                                  absl::StrCat("cudnnBackendCreateDescriptor of a ", what)));
  return descriptor;
}

absl::Status Descriptor::Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                             const void* values) {
  return FromCudnn(cudnnBackendSetAttribute(descriptor_, name, type, count, values),
                   absl::StrCat("cudnnBackendSetAttribute ", static_cast<int>(name), " of a ", what_));
}

absl::Status Descriptor::Finalize() {
  return FromCudnn(cudnnBackendFinalize(descriptor_), absl::StrCat("cudnnBackendFinalize of a ", what_));
}

absl::StatusOr<ConvolutionOperation> MakeOperation(const Convolution& c, const Precision& precision,
                                                   DType filter_gradient) {
  const kernels::Window& w = c.window;
  const DType kernel_type = c.kind == Convolution::kBackwardFilter ? filter_gradient : precision.type;
  ConvolutionOperation o;
  CAIRN_ASSIGN_OR_RETURN(o.image, MakeTensor(ConvolutionOperation::kImage, precision.type, ImageDims(w)));
  CAIRN_ASSIGN_OR_RETURN(o.kernel, MakeTensor(ConvolutionOperation::kKernel, kernel_type, KernelDims(w)));
  CAIRN_ASSIGN_OR_RETURN(o.result, MakeTensor(ConvolutionOperation::kResult, precision.type, ResultDims(w)));
  CAIRN_ASSIGN_OR_RETURN(o.window, MakeWindow(w));
  const Names names = NamesOf(c.kind);
  const float one = 1, zero = 0;
  CAIRN_ASSIGN_OR_RETURN(o.operation, Descriptor::Make(names.operation, "convolution's operation"));
  CAIRN_RETURN_IF_ERROR(o.operation.Set(names.window, o.window));
  CAIRN_RETURN_IF_ERROR(o.operation.Set(names.image, o.image));
  CAIRN_RETURN_IF_ERROR(o.operation.Set(names.kernel, o.kernel));
  const bool epilogue = c.bias || c.relu;
  Descriptor sums;
  if (epilogue) {
    CAIRN_ASSIGN_OR_RETURN(sums, MakeTensor('s', DType::kFloat32, ResultDims(w), true));
  }
  CAIRN_RETURN_IF_ERROR(o.operation.Set(names.result, epilogue ? sums : o.result));
  CAIRN_RETURN_IF_ERROR(o.operation.Set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one));
  CAIRN_RETURN_IF_ERROR(o.operation.Set(names.beta, CUDNN_TYPE_FLOAT, 1, &zero));
  CAIRN_RETURN_IF_ERROR(o.operation.Finalize());
  o.operations.push_back(o.operation.get());
  if (epilogue) {
    CAIRN_RETURN_IF_ERROR(AddEpilogue(c, precision, sums, &o));
    o.inner.push_back(std::move(sums));
  }
  return o;
}

bool Keeps(const Precision& precision, const std::vector<cudnnBackendNumericalNote_t>& notes) {
  const bool exact = precision.type == DType::kFloat32 && !precision.tf32;
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return precision.deterministic;
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: return true;  // sums are float32, always
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return exact;
      default: return false;
    }
  });
}

// ---- engines ----

absl::StatusOr<Descriptor> DescribeDevice(const std::string& json) {
  CAIRN_ASSIGN_OR_RETURN(Descriptor device, Descriptor::Make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device"));
  CAIRN_RETURN_IF_ERROR(device.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                   static_cast<int64_t>(json.size()), json.data()));
  CAIRN_RETURN_IF_ERROR(device.Finalize());
  return device;
}

// The engine of one of the heuristics' configurations. Errors: this one does not work here; the next may.
absl::StatusOr<Engine> MakeEngine(const EngineTarget& target, Descriptor config, const Precision& precision) {
  CAIRN_ASSIGN_OR_RETURN(const Descriptor of_config, EngineOf(config));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<cudnnBackendNumericalNote_t> notes, NotesOf(of_config));
  if (!Keeps(precision, notes)) return absl::UnimplementedError("does not keep the precision");
  Engine engine;
  CAIRN_ASSIGN_OR_RETURN(engine.name, NameOf(config, of_config));
  CAIRN_ASSIGN_OR_RETURN(engine.execution, Descriptor::Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "execution plan"));
  CAIRN_RETURN_IF_ERROR(
      target.handle != nullptr
          ? engine.execution.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle)
          : engine.execution.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device));
  CAIRN_RETURN_IF_ERROR(engine.execution.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
  CAIRN_RETURN_IF_ERROR(engine.execution.Finalize());
  CAIRN_ASSIGN_OR_RETURN(engine.workspace_bytes,
                         Number(engine.execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64));
  if (engine.workspace_bytes > kConvolutionWorkspaceBytesMax)
    return absl::UnimplementedError("needs too large a workspace");
  engine.config = std::move(config);
  return engine;
}

absl::StatusOr<std::vector<Engine>> FindEngines(const EngineTarget& target, const Convolution& c,
                                                const Precision& precision, DType filter_gradient, size_t count_max) {
  CAIRN_ASSIGN_OR_RETURN(const ConvolutionOperation operation, MakeOperation(c, precision, filter_gradient));
  CAIRN_ASSIGN_OR_RETURN(Descriptor graph, Descriptor::Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph"));
  CAIRN_RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                  static_cast<int64_t>(operation.operations.size()), operation.operations.data()));
  if (target.handle != nullptr) {
    CAIRN_RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle));
  }
  CAIRN_RETURN_IF_ERROR(graph.Finalize());
  std::vector<Engine> engines;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CAIRN_ASSIGN_OR_RETURN(Descriptor heuristics, Descriptor::Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics"));
    CAIRN_RETURN_IF_ERROR(heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
    CAIRN_RETURN_IF_ERROR(heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    if (target.device != nullptr)
      CAIRN_RETURN_IF_ERROR(heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device));
    if (!heuristics.Finalize().ok()) continue;  // none of this mode
    CAIRN_ASSIGN_OR_RETURN(std::vector<Descriptor> configs,
                           Results(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    for (Descriptor& config : configs) {
      absl::StatusOr<Engine> engine = MakeEngine(target, std::move(config), precision);
      if (engine.ok()) engines.push_back(*std::move(engine));
      if (engines.size() == count_max) return engines;
    }
    if (!engines.empty()) return engines;  // the fallback's are the slow ones
  }
  return absl::UnimplementedError(absl::StrCat("cuDNN has no engine for the convolution ", ToString(c)));
}

}  // namespace cairn::cudnn
