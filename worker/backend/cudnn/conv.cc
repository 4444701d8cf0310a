#include "worker/backend/cudnn/conv.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "worker/backend/cudnn/stopwatch.h"
#include "worker/backend/limits.h"

namespace cairn::cudnn {
namespace {

const char* KindOf(const Convolution& c) {
  return c.kind == Convolution::kForward        ? "convolution "
         : c.kind == Convolution::kBackwardData ? "convolution data gradient "
                                                : "convolution kernel gradient ";
}

int64_t KernelNumbers(const kernels::Window& w) {
  return w.out[2] * w.depth.kernel * w.kernel[0] * w.kernel[1] * (w.in[2] / w.groups);
}

int64_t InNumbers(const kernels::Window& w) { return w.examples * w.depth.in * w.in[0] * w.in[1] * w.in[2]; }
int64_t OutNumbers(const kernels::Window& w) { return w.examples * w.depth.out * w.out[0] * w.out[1] * w.out[2]; }

}  // namespace

absl::StatusOr<std::unique_ptr<Conv>> Conv::Make(const Precision& precision, cudaStream_t stream, Tuner* tuner) {
  std::unique_ptr<Conv> conv(new Conv(precision, stream, tuner));
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
  Plan plan;
  // A kernel's gradient of 16 bits is widened by a pass of our own: cuDNN's engines that write it as float32 do not
  // split the sum over examples and positions, and took up to 28 times as long on an H100.
  const bool narrow = convolution.kind == Convolution::kBackwardFilter && precision_.type != DType::kFloat32;
  absl::StatusOr<Engine> engine = ChooseEngine(convolution, narrow ? precision_.type : DType::kFloat32);
  if (narrow && engine.ok()) {
    plan.narrow_bytes = (KernelNumbers(convolution.window) * SizeOf(precision_.type) + 255) / 256 * 256;
  } else if (narrow && absl::IsUnimplemented(engine.status())) {
    engine = ChooseEngine(convolution, DType::kFloat32);
  }
  const bool has_engine = engine.ok();
  if (has_engine) {
    plan.engine = *std::move(engine);
  } else if (!absl::IsUnimplemented(engine.status()) || convolution.bias || convolution.relu) {
    return engine.status();
  }
  const int64_t bytes = plan.engine.workspace_bytes + plan.narrow_bytes;
  LogDebug("cuDNN: %s%s of %s: %s, %d bytes of workspace", KindOf(convolution), ToString(convolution),
           Name(precision_.type), has_engine ? plan.engine.name : "our own kernel", bytes);
  plans_.emplace(convolution, std::move(plan));
  return bytes;
}

absl::StatusOr<Engine> Conv::ChooseEngine(const Convolution& c, DType filter_gradient) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<Engine> engines, FindEngines({.handle = handle_}, c, precision_, filter_gradient,
                                                                  tuner_ == nullptr ? 1 : kCandidatesMax));
  if (engines.size() == 1) return std::move(engines[0]);
  std::vector<std::string> names;
  for (const Engine& engine : engines) names.push_back(engine.name);
  const std::string what =
      absl::StrCat(KindOf(c), ToString(c), " of ", Name(precision_.type), precision_.tf32 ? " tf32" : "",
                   c.kind == Convolution::kBackwardFilter ? absl::StrCat(" to ", Name(filter_gradient)) : "");
  const kernels::Window& w = c.window;
  Stopwatch watch;
  void *image = nullptr, *kernel = nullptr, *result = nullptr, *bias = nullptr, *workspace = nullptr;
  const auto allocate = [&]() -> absl::Status {
    const int64_t size = SizeOf(precision_.type);
    int64_t workspace_bytes = 0;
    for (const Engine& engine : engines) workspace_bytes = std::max(workspace_bytes, engine.workspace_bytes);
    CAIRN_ASSIGN_OR_RETURN(image, watch.Memory(InNumbers(w) * size));
    CAIRN_ASSIGN_OR_RETURN(
        kernel,
        watch.Memory(KernelNumbers(w) * (c.kind == Convolution::kBackwardFilter ? SizeOf(filter_gradient) : size)));
    CAIRN_ASSIGN_OR_RETURN(result, watch.Memory(OutNumbers(w) * size));
    CAIRN_ASSIGN_OR_RETURN(bias, watch.Memory(w.out[2] * size));
    CAIRN_ASSIGN_OR_RETURN(workspace, watch.Memory(workspace_bytes));
    return absl::OkStatus();
  };
  const auto launch = [&](const Engine& engine) {
    switch (c.kind) {
      case Convolution::kForward: return Launch(engine, c, {image, kernel, bias, result, workspace});
      case Convolution::kBackwardData: return Launch(engine, c, {result, kernel, nullptr, image, workspace});
      case Convolution::kBackwardFilter: return Launch(engine, c, {image, result, nullptr, kernel, workspace});
    }
    return absl::InternalError("no such kind of convolution");
  };
  std::optional<absl::Status> allocated;  // only where something is measured
  const size_t chosen = tuner_->Choose(what, names, [&](size_t i) -> absl::StatusOr<double> {
    if (!allocated) allocated = allocate();
    CAIRN_RETURN_IF_ERROR(*allocated);
    CAIRN_ASSIGN_OR_RETURN(const cudaStream_t stream, watch.stream());
    CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnSetStream(handle_, stream), "cudnnSetStream"));
    absl::StatusOr<double> time = watch.Microseconds([&](cudaStream_t) { return launch(engines[i]); });
    CAIRN_RETURN_IF_ERROR(FromCudnn(cudnnSetStream(handle_, stream_), "cudnnSetStream"));
    return time;
  });
  return std::move(engines[chosen]);
}

// ---- launches ----

absl::Status Conv::Run(const Convolution& c, const void* first, const void* second, const void* bias, void* to,
                       void* workspace) {
  const auto found = plans_.find(c);
  if (found == plans_.end()) return absl::InternalError(absl::StrCat("convolution ", ToString(c), " was not prepared"));
  const Plan& plan = found->second;
  if (plan.engine.execution.get() == nullptr) return RunKernels(c, first, second, to);
  if (plan.narrow_bytes == 0) return Launch(plan.engine, c, {first, second, bias, to, workspace});
  // The kernel's gradient in Precision.type, then as float32.
  CAIRN_RETURN_IF_ERROR(
      Launch(plan.engine, c, {first, second, bias, workspace, static_cast<char*>(workspace) + plan.narrow_bytes}));
  return FromCuda(static_cast<cudaError_t>(kernels::Affine(stream_, KernelNumbers(c.window), 1, 0, workspace,
                                                           precision_.type, to, DType::kFloat32, false)),
                  "conversion of a kernel's gradient");
}

absl::Status Conv::Launch(const Engine& engine, const Convolution& c, const Buffers& at) const {
  void* scratch = engine.workspace_bytes > 0 ? at.workspace : nullptr;
  // Of kForward x, kernel -> y; of kBackwardData dy, kernel -> dx; of kBackwardFilter x, dy -> dkernel.
  void* const a = const_cast<void*>(at.first);
  void* const b = const_cast<void*>(at.second);
  std::vector<int64_t> ids = {ConvolutionOperation::kImage, ConvolutionOperation::kKernel,
                              ConvolutionOperation::kResult};
  std::vector<void*> pointers = c.kind == Convolution::kForward        ? std::vector<void*>{a, b, at.to}
                                : c.kind == Convolution::kBackwardData ? std::vector<void*>{at.to, b, a}
                                                                       : std::vector<void*>{a, at.to, b};
  if (c.bias) {
    ids.push_back(ConvolutionOperation::kBias);
    pointers.push_back(const_cast<void*>(at.bias));
  }
  const int64_t count = static_cast<int64_t>(ids.size());
  CAIRN_ASSIGN_OR_RETURN(Descriptor pack, Descriptor::Make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack"));
  CAIRN_RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data()));
  CAIRN_RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data()));
  CAIRN_RETURN_IF_ERROR(pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch));
  CAIRN_RETURN_IF_ERROR(pack.Finalize());
  return FromCudnn(cudnnBackendExecute(handle_, engine.execution.get(), pack.get()),
                   absl::StrCat("cudnnBackendExecute ", ToString(c)));
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
      error = kernels::ConvolutionBackwardFilter(stream_, c.window, first, second, static_cast<float*>(to),
                                                 precision_.type);
      break;
  }
  return FromCuda(static_cast<cudaError_t>(error), absl::StrCat("our own convolution ", ToString(c)));
}

}  // namespace cairn::cudnn
