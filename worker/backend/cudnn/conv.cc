#include "worker/backend/cudnn/conv.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace cairn::cudnn {
namespace {

constexpr int64_t kAlignment = 16;  // of tensors, as kernels.h has it
constexpr int64_t kWorkspaceBytesMax = int64_t{1} << 30;

using Dims = std::array<int64_t, 4>;

cudnnDataType_t TypeOf(DType type) {
  switch (type) {
    case DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

// [n, c, h, w] in the order that cuDNN names them, channels last in memory; of kernels [out, in, h, w].
// inner: within the engine only.
absl::StatusOr<Descriptor> MakeTensor(int64_t id, DType type, const Dims& dims, bool inner = false) {
  CAIRN_ASSIGN_OR_RETURN(Descriptor tensor, Descriptor::Make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor"));
  const Dims strides = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
  const cudnnDataType_t data_type = TypeOf(type);
  CAIRN_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &data_type));
  CAIRN_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data()));
  CAIRN_RETURN_IF_ERROR(tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data()));
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
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, w.dilation));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, w.strides));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, w.pad));
  CAIRN_RETURN_IF_ERROR(window.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, w.pad));
  CAIRN_RETURN_IF_ERROR(window.Finalize());
  return window;
}

// y = x + b (b may be none), or relu(x). `function` must stay as long as the operation.
absl::StatusOr<Descriptor> MakePointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b, const Descriptor& y,
                                         Descriptor* function) {
  CAIRN_ASSIGN_OR_RETURN(*function, Descriptor::Make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise function"));
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  CAIRN_RETURN_IF_ERROR(function->Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
  CAIRN_RETURN_IF_ERROR(function->Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
  CAIRN_RETURN_IF_ERROR(function->Finalize());
  CAIRN_ASSIGN_OR_RETURN(Descriptor operation, Descriptor::Make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise operation"));
  CAIRN_RETURN_IF_ERROR(operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *function));
  CAIRN_RETURN_IF_ERROR(operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x));
  if (b != nullptr) CAIRN_RETURN_IF_ERROR(operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b));
  CAIRN_RETURN_IF_ERROR(operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
  CAIRN_RETURN_IF_ERROR(operation.Finalize());
  return operation;
}

// Lets bias and relu follow the convolution, whose output is `sums` instead of the result.
absl::Status AddEpilogue(const Convolution& c, const Precision& precision, const Descriptor& sums, ConvolutionOperation* o) {
  const kernels::Window& w = c.window;
  const Dims dims = {w.examples, w.out[2], w.out[0], w.out[1]};
  const Descriptor* from = &sums;
  o->inner.reserve(8);  // descriptors refer to one another
  if (c.bias) {
    CAIRN_ASSIGN_OR_RETURN(Descriptor bias, MakeTensor(ConvolutionOperation::kBias, precision.type, {1, w.out[2], 1, 1}));
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
    CAIRN_ASSIGN_OR_RETURN(Descriptor relu, MakePointwise(CUDNN_POINTWISE_RELU_FWD, *from, nullptr, o->result, &function));
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
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,             CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Convolution::kBackwardData:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Convolution::kBackwardFilter:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

int64_t KernelNumbers(const kernels::Window& w) { return w.out[2] * w.kernel[0] * w.kernel[1] * w.in[2]; }

// The descriptors that `from` has under `name`, as many as there are.
absl::StatusOr<std::vector<Descriptor>> Results(const Descriptor& from, cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) {
  int64_t count = 0;
  CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
                                  "cudnnBackendGetAttribute of a count"));
  std::vector<Descriptor> results;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    CAIRN_ASSIGN_OR_RETURN(Descriptor descriptor, Descriptor::Make(type, "result"));
    raw.push_back(descriptor.get());
    results.push_back(std::move(descriptor));
  }
  if (count == 0) return results;
  int64_t written = 0;
  CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &written, raw.data()),
                                  "cudnnBackendGetAttribute of descriptors"));
  results.resize(written);
  return results;
}

absl::StatusOr<std::vector<cudnnBackendNumericalNote_t>> NotesOf(const Descriptor& config) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<Descriptor> engine,
                         Results(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  if (engine.empty()) return absl::InternalError("an engine's configuration without an engine");
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  int64_t count = 0;
  CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnBackendGetAttribute(engine[0].get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                           CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes.data()),
                                  "CUDNN_ATTR_ENGINE_NUMERICAL_NOTE"));
  notes.resize(count);
  return notes;
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

absl::Status Descriptor::Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  return FromCudnn(cudnnBackendSetAttribute(descriptor_, name, type, count, values),
                   absl::StrCat("cudnnBackendSetAttribute ", static_cast<int>(name), " of a ", what_));
}

absl::Status Descriptor::Finalize() {
  return FromCudnn(cudnnBackendFinalize(descriptor_), absl::StrCat("cudnnBackendFinalize of a ", what_));
}

absl::StatusOr<ConvolutionOperation> MakeOperation(const Convolution& c, const Precision& precision, DType filter_gradient) {
  const kernels::Window& w = c.window;
  const DType kernel_type = c.kind == Convolution::kBackwardFilter ? filter_gradient : precision.type;
  ConvolutionOperation o;
  CAIRN_ASSIGN_OR_RETURN(o.image, MakeTensor(ConvolutionOperation::kImage, precision.type, {w.examples, w.in[2], w.in[0], w.in[1]}));
  CAIRN_ASSIGN_OR_RETURN(o.kernel,
                         MakeTensor(ConvolutionOperation::kKernel, kernel_type, {w.out[2], w.in[2], w.kernel[0], w.kernel[1]}));
  CAIRN_ASSIGN_OR_RETURN(o.result, MakeTensor(ConvolutionOperation::kResult, precision.type, {w.examples, w.out[2], w.out[0], w.out[1]}));
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
    CAIRN_ASSIGN_OR_RETURN(sums, MakeTensor('s', DType::kFloat32, {w.examples, w.out[2], w.out[0], w.out[1]}, true));
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
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
        return precision.deterministic;
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return true;  // sums are float32, always
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return exact;
      default:
        return false;
    }
  });
}

// ---- engines ----

absl::StatusOr<Descriptor> DescribeDevice(const std::string& json) {
  CAIRN_ASSIGN_OR_RETURN(Descriptor device, Descriptor::Make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device"));
  CAIRN_RETURN_IF_ERROR(
      device.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<int64_t>(json.size()), json.data()));
  CAIRN_RETURN_IF_ERROR(device.Finalize());
  return device;
}

absl::StatusOr<EngineChoice> ChooseEngine(const EngineTarget& target, const Convolution& c, const Precision& precision,
                                          DType filter_gradient) {
  CAIRN_ASSIGN_OR_RETURN(const ConvolutionOperation operation, MakeOperation(c, precision, filter_gradient));
  CAIRN_ASSIGN_OR_RETURN(Descriptor graph, Descriptor::Make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph"));
  CAIRN_RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                  static_cast<int64_t>(operation.operations.size()), operation.operations.data()));
  if (target.handle != nullptr) {
    CAIRN_RETURN_IF_ERROR(graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle));
  }
  CAIRN_RETURN_IF_ERROR(graph.Finalize());
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CAIRN_ASSIGN_OR_RETURN(Descriptor heuristics, Descriptor::Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics"));
    CAIRN_RETURN_IF_ERROR(heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph));
    CAIRN_RETURN_IF_ERROR(heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    if (target.device != nullptr) CAIRN_RETURN_IF_ERROR(heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device));
    if (!heuristics.Finalize().ok()) continue;  // none of this mode
    CAIRN_ASSIGN_OR_RETURN(std::vector<Descriptor> configs,
                           Results(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    for (const Descriptor& config : configs) {
      const absl::StatusOr<std::vector<cudnnBackendNumericalNote_t>> notes = NotesOf(config);
      if (!notes.ok() || !Keeps(precision, *notes)) continue;
      EngineChoice choice;
      CAIRN_ASSIGN_OR_RETURN(choice.execution, Descriptor::Make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "execution plan"));
      CAIRN_RETURN_IF_ERROR(target.handle != nullptr
                                ? choice.execution.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle)
                                : choice.execution.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device));
      CAIRN_RETURN_IF_ERROR(choice.execution.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
      if (!choice.execution.Finalize().ok()) continue;  // not for this shape or device: the next one
      int64_t count = 0;
      CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnBackendGetAttribute(choice.execution.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                               CUDNN_TYPE_INT64, 1, &count, &choice.workspace_bytes),
                                      "CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE"));
      if (choice.workspace_bytes <= kWorkspaceBytesMax) return choice;
    }
  }
  return absl::UnimplementedError(absl::StrCat("cuDNN has no engine for the convolution ", ToString(c)));
}

absl::StatusOr<std::unique_ptr<Conv>> Conv::Make(const Precision& precision, cudaStream_t stream) {
  std::unique_ptr<Conv> conv(new Conv(precision, stream));
  CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnCreate(&conv->handle_), "cudnnCreate"));
  CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnSetStream(conv->handle_, stream), "cudnnSetStream"));
  return conv;
}

Conv::~Conv() {
  plans_.clear();
  if (handle_ != nullptr) cudnnDestroy(handle_);
}

absl::StatusOr<int64_t> Conv::Prepare(const Convolution& convolution) {
  if (const auto found = plans_.find(convolution); found != plans_.end()) {
    return found->second.engine.workspace_bytes + found->second.narrow_bytes;
  }
  const EngineTarget target{.handle = handle_};
  Plan plan;
  absl::StatusOr<EngineChoice> engine = ChooseEngine(target, convolution, precision_, DType::kFloat32);
  if (absl::IsUnimplemented(engine.status()) && convolution.kind == Convolution::kBackwardFilter && precision_.type != DType::kFloat32) {
    engine = ChooseEngine(target, convolution, precision_, precision_.type);
    if (engine.ok()) plan.narrow_bytes = (KernelNumbers(convolution.window) * SizeOf(precision_.type) + 255) / 256 * 256;
  }
  if (engine.ok()) {
    plan.engine = *std::move(engine);
  } else if (!absl::IsUnimplemented(engine.status()) || convolution.bias || convolution.relu) {
    return engine.status();
  }
  const int64_t bytes = plan.engine.workspace_bytes + plan.narrow_bytes;
  plans_.emplace(convolution, std::move(plan));
  return bytes;
}

// ---- launches ----

absl::Status Conv::Run(const Convolution& c, const void* first, const void* second, const void* bias, void* to, void* workspace) {
  const auto found = plans_.find(c);
  if (found == plans_.end()) return absl::InternalError(absl::StrCat("convolution ", ToString(c), " was not prepared"));
  const Plan& plan = found->second;
  if (plan.engine.execution.get() == nullptr) return RunKernels(c, first, second, to);
  void* const target = plan.narrow_bytes > 0 ? workspace : to;
  void* scratch = plan.engine.workspace_bytes > 0 ? static_cast<char*>(workspace) + plan.narrow_bytes : nullptr;
  // Of kForward x, kernel -> y; of kBackwardData dy, kernel -> dx; of kBackwardFilter x, dy -> dkernel.
  void* const a = const_cast<void*>(first);
  void* const b = const_cast<void*>(second);
  std::vector<int64_t> ids = {ConvolutionOperation::kImage, ConvolutionOperation::kKernel, ConvolutionOperation::kResult};
  std::vector<void*> pointers = c.kind == Convolution::kForward        ? std::vector<void*>{a, b, target}
                                : c.kind == Convolution::kBackwardData ? std::vector<void*>{target, b, a}
                                                                       : std::vector<void*>{a, target, b};
  if (c.bias) {
    ids.push_back(ConvolutionOperation::kBias);
    pointers.push_back(const_cast<void*>(bias));
  }
  const int64_t count = static_cast<int64_t>(ids.size());
  CAIRN_ASSIGN_OR_RETURN(Descriptor pack, Descriptor::Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack"));
  CAIRN_RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data()));
  CAIRN_RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data()));
  CAIRN_RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch));
  CAIRN_RETURN_IF_ERROR(pack.Finalize());
  CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnBackendExecute(handle_, plan.engine.execution.get(), pack.get()), absl::StrCat("cudnnBackendExecute ", ToString(c))));
  if (plan.narrow_bytes == 0) return absl::OkStatus();
  return FromCuda(static_cast<cudaError_t>(kernels::Affine(stream_, KernelNumbers(c.window), 1, 0, target, precision_.type, to,
                                                           DType::kFloat32, false)),
                  "conversion of a kernel's gradient");
}

absl::Status Conv::RunKernels(const Convolution& c, const void* first, const void* second, void* to) {
  kernels::Error error = 0;
  switch (c.kind) {
    case Convolution::kForward:
      error = kernels::Convolution(stream_, c.window, first, second, to, precision_.type);
      break;
    case Convolution::kBackwardData:
      error = kernels::ConvolutionBackwardData(stream_, c.window, first, second, to, precision_.type, false);
      break;
    case Convolution::kBackwardFilter:
      error = kernels::ConvolutionBackwardFilter(stream_, c.window, first, second, static_cast<float*>(to), precision_.type);
      break;
  }
  return FromCuda(static_cast<cudaError_t>(error), absl::StrCat("our own convolution ", ToString(c)));
}

}  // namespace cairn::cudnn
