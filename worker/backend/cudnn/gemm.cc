#include "worker/backend/cudnn/gemm.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "worker/backend/cudnn/stopwatch.h"
#include "worker/backend/limits.h"

namespace cairn::cudnn {
namespace {

constexpr int kCandidates = 16;
constexpr uint32_t kAlignment = 64;

cudaDataType_t TypeOf(DType type) {
  switch (type) {
    case DType::kBFloat16: return CUDA_R_16BF;
    case DType::kFloat16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

template <typename T>
absl::Status Set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value,
                 const char* what) {
  return FromCublas(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof(value)), what);
}

// rows x columns by columns, as cuBLASLt counts; `batch` of them one behind the other.
absl::Status MakeLayout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t batch,
                        cublasLtMatrixLayout_t* layout) {
  CAIRN_RETURN_IF_ERROR(FromCublas(
      cublasLtMatrixLayoutCreate(layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
      "cublasLtMatrixLayoutCreate"));
  if (batch == 1) return absl::OkStatus();
  const int32_t count = static_cast<int32_t>(batch);
  const int64_t stride = rows * columns;
  CAIRN_RETURN_IF_ERROR(
      FromCublas(cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
                 "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT"));
  return FromCublas(
      cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
      "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET");
}

std::string NameOf(const cublasLtMatmulAlgo_t& algo) {
  std::string name = "algorithm";
  for (const uint64_t word : algo.data) absl::StrAppend(&name, ".", absl::Hex(word));
  return name;
}

// Whether the algorithm always adds in the same order: parts of k are summed in the workspace, not by atomic additions.
bool FixedOrder(const cublasLtMatmulAlgo_t& algo) {
  uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
  size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof(scheme),
                                           &written) != CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  return (scheme & CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProductDescriptors>> ProductDescriptors::Make(const Product& product,
                                                                             const Precision& precision) {
  auto descriptors = std::make_unique<ProductDescriptors>();
  CAIRN_RETURN_IF_ERROR(descriptors->Init(product, precision));
  return descriptors;
}

absl::Status ProductDescriptors::Init(const Product& p, const Precision& precision) {
  const bool tf32 = precision.type == DType::kFloat32 && precision.tf32;
  CAIRN_RETURN_IF_ERROR(FromCublas(
      cublasLtMatmulDescCreate(&operation, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "cublasLtMatmulDescCreate"));
  // A row of [rows, columns] is a column of what cuBLASLt sees: the transposed.
  const cublasOperation_t of_first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          of_second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  CAIRN_RETURN_IF_ERROR(Set(operation, CUBLASLT_MATMUL_DESC_TRANSA, of_first, "CUBLASLT_MATMUL_DESC_TRANSA"));
  CAIRN_RETURN_IF_ERROR(Set(operation, CUBLASLT_MATMUL_DESC_TRANSB, of_second, "CUBLASLT_MATMUL_DESC_TRANSB"));
  if (p.bias || p.relu) {
    const cublasLtEpilogue_t epilogue = !p.relu  ? CUBLASLT_EPILOGUE_BIAS
                                        : p.bias ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                 : CUBLASLT_EPILOGUE_RELU;
    CAIRN_RETURN_IF_ERROR(Set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, "CUBLASLT_MATMUL_DESC_EPILOGUE"));
    const cudaDataType_t bias_type = TypeOf(precision.type);
    CAIRN_RETURN_IF_ERROR(
        Set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, bias_type, "CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE"));
    // The heuristics look at where it points to, its alignment; nothing reads it before SetBias.
    // NOLINTNEXTLINE(performance-no-int-to-ptr): no object is there
    if (p.bias) CAIRN_RETURN_IF_ERROR(SetBias(reinterpret_cast<const void*>(uintptr_t{kAlignment})));
  }
  const cudaDataType_t in = TypeOf(precision.type), out = TypeOf(p.out);
  CAIRN_RETURN_IF_ERROR(MakeLayout(in, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.batch, &first));
  CAIRN_RETURN_IF_ERROR(MakeLayout(in, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.batch, &second));
  return MakeLayout(out, p.n, p.m, p.batch, &result);
}

absl::Status ProductDescriptors::SetBias(const void* bias) {
  return Set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, "CUBLASLT_MATMUL_DESC_BIAS_POINTER");
}

ProductDescriptors::~ProductDescriptors() {
  for (cublasLtMatrixLayout_t layout : {first, second, result}) {
    if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
  }
  if (operation != nullptr) cublasLtMatmulDescDestroy(operation);
}

absl::StatusOr<std::unique_ptr<Gemm>> Gemm::Make(const Precision& precision, Tuner* tuner) {
  std::unique_ptr<Gemm> gemm(new Gemm(precision, tuner));
  CAIRN_RETURN_IF_ERROR(FromCublas(cublasLtCreate(&gemm->handle_), "cublasLtCreate"));
  return gemm;
}

Gemm::~Gemm() {
  if (handle_ != nullptr) cublasLtDestroy(handle_);
}

absl::StatusOr<int64_t> Gemm::Prepare(const Product& product) {
  if (const auto found = plans_.find(product); found != plans_.end()) return found->second->workspace_bytes();
  auto plan = std::make_unique<Plan>();
  CAIRN_ASSIGN_OR_RETURN(plan->descriptors, ProductDescriptors::Make(product, precision_));
  CAIRN_ASSIGN_OR_RETURN(const auto candidates, Candidates(product, *plan->descriptors));
  if (candidates.empty()) {
    return absl::UnimplementedError(absl::StrCat("cuBLASLt has no algorithm for the product ", ToString(product)));
  }
  plan->algorithm = candidates[Choose(product, *plan->descriptors, candidates)];
  const int64_t bytes = plan->workspace_bytes();
  LogDebug("cuBLASLt: product %s: %s, %d bytes of workspace", ToString(product), NameOf(plan->algorithm.algo), bytes);
  plans_.emplace(product, std::move(plan));
  return bytes;
}

// In the order of the heuristics.
absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Gemm::Candidates(const Product& product,
                                                                              const ProductDescriptors& d) const {
  cublasLtMatmulPreference_t preference = nullptr;
  CAIRN_RETURN_IF_ERROR(FromCublas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, void (*)(cublasLtMatmulPreference_t)> owner(
      preference, [](cublasLtMatmulPreference_t p) { cublasLtMatmulPreferenceDestroy(p); });
  const uint64_t bytes_max = kProductWorkspaceBytesMax;
  CAIRN_RETURN_IF_ERROR(
      FromCublas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes_max,
                                                      sizeof(bytes_max)),
                 "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES"));
  if (precision_.deterministic) {
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    CAIRN_RETURN_IF_ERROR(
        FromCublas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                        &schemes, sizeof(schemes)),
                   "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK"));
  }
  // Parameters are aligned to 64 bytes, buffers of the arena to 256; in a batch each matrix starts where the one before
  // ends.
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t attribute, int64_t matrix, DType type) {
    const uint64_t bytes = static_cast<uint64_t>(matrix * SizeOf(type));
    const uint32_t alignment =
        product.batch == 1 ? kAlignment : static_cast<uint32_t>(std::min<uint64_t>(kAlignment, bytes & -bytes));
    return FromCublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof(alignment)),
                      "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT");
  };
  CAIRN_RETURN_IF_ERROR(align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, product.k * product.n, precision_.type));
  CAIRN_RETURN_IF_ERROR(align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, product.m * product.k, precision_.type));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    CAIRN_RETURN_IF_ERROR(align(attribute, product.m * product.n, product.out));
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(kCandidates);
  int found = 0;
  CAIRN_RETURN_IF_ERROR(
      FromCublas(cublasLtMatmulAlgoGetHeuristic(handle_, d.operation, d.first, d.second, d.result, d.result, preference,
                                                kCandidates, results.data(), &found),
                 absl::StrCat("cublasLtMatmulAlgoGetHeuristic of ", ToString(product))));
  results.resize(found);
  std::erase_if(results, [&](const cublasLtMatmulHeuristicResult_t& r) {
    return r.state != CUBLAS_STATUS_SUCCESS || (precision_.deterministic && !FixedOrder(r.algo));
  });
  return results;
}

size_t Gemm::Choose(const Product& p, ProductDescriptors& d,
                    const std::vector<cublasLtMatmulHeuristicResult_t>& candidates) {
  if (tuner_ == nullptr || candidates.size() == 1) return 0;
  std::vector<std::string> names;
  for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) names.push_back(NameOf(candidate.algo));
  Stopwatch watch;
  void *a = nullptr, *b = nullptr, *c = nullptr, *bias = nullptr, *workspace = nullptr;
  const auto allocate = [&]() -> absl::Status {
    const int64_t in = SizeOf(precision_.type);
    CAIRN_ASSIGN_OR_RETURN(a, watch.Memory(p.batch * p.m * p.k * in));
    CAIRN_ASSIGN_OR_RETURN(b, watch.Memory(p.batch * p.k * p.n * in));
    CAIRN_ASSIGN_OR_RETURN(c, watch.Memory(p.batch * p.m * p.n * SizeOf(p.out)));
    CAIRN_ASSIGN_OR_RETURN(workspace, watch.Memory(kProductWorkspaceBytesMax));
    CAIRN_ASSIGN_OR_RETURN(bias, watch.Memory(p.n * in));
    return p.bias ? d.SetBias(bias) : absl::OkStatus();
  };
  std::optional<absl::Status> allocated;  // only where something is measured
  const auto measure = [&](size_t i) -> absl::StatusOr<double> {
    if (!allocated) allocated = allocate();
    CAIRN_RETURN_IF_ERROR(*allocated);
    return watch.Microseconds([&](cudaStream_t stream) {
      return Launch(stream, p, d, candidates[i], {.a = a, .b = b, .c = c, .workspace = workspace});
    });
  };
  return tuner_->Choose(
      absl::StrCat("product ", ToString(p), " of ", Name(precision_.type), precision_.tf32 ? " tf32" : ""), names,
      measure);
}

absl::Status Gemm::Run(cudaStream_t stream, const Product& product, const ProductBuffers& at) {
  const auto found = plans_.find(product);
  if (found == plans_.end())
    return absl::InternalError(absl::StrCat("product ", ToString(product), " was not prepared"));
  Plan& plan = *found->second;
  if (product.bias) CAIRN_RETURN_IF_ERROR(plan.descriptors->SetBias(at.bias));
  return Launch(stream, product, *plan.descriptors, plan.algorithm, at);
}

absl::Status Gemm::Launch(cudaStream_t stream, const Product& product, const ProductDescriptors& d,
                          const cublasLtMatmulHeuristicResult_t& algorithm, const ProductBuffers& at) const {
  return FromCublas(
      cublasLtMatmul(handle_, d.operation, &product.alpha, at.b, d.first, at.a, d.second, &product.beta, at.c, d.result,
                     at.c, d.result, &algorithm.algo, at.workspace, algorithm.workspaceSize, stream),
      absl::StrCat("cublasLtMatmul ", ToString(product)));
}

}  // namespace cairn::cudnn
