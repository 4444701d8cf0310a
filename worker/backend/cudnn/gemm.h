// Matrix products by cuBLASLt.
//
// Part of one CudaMachine. Prepare chooses the algorithm of a product once and keeps it: the first one of the
// heuristics that adds in a fixed order (without splits along k that are summed by atomics) within the caller's
// workspace, or with a Tuner the fastest of those.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "worker/backend/cudnn/device.h"
#include "worker/backend/cudnn/machine.h"
#include "worker/backend/cudnn/tuning.h"

namespace cairn::cudnn {

// The descriptors of a product. They can be made and inspected without a device.
class ProductDescriptors {
 public:
  static absl::StatusOr<std::unique_ptr<ProductDescriptors>> Make(const Product& product, const Precision& precision);
  ~ProductDescriptors();
  ProductDescriptors() = default;
  ProductDescriptors(const ProductDescriptors&) = delete;
  ProductDescriptors& operator=(const ProductDescriptors&) = delete;

  absl::Status SetBias(const void* bias);

  cublasLtMatmulDesc_t operation = nullptr;
  // cuBLASLt's matrices are in column-major order, so the transpose of C is computed as B' A'.
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;

 private:
  absl::Status Init(const Product& product, const Precision& precision);
};

// Where a product's operands and its result are; bias, workspace: null where there is none.
struct ProductBuffers {
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  void *c = nullptr, *workspace = nullptr;
};

class Gemm {
 public:
  static absl::StatusOr<std::unique_ptr<Gemm>> Make(const Precision& precision, Tuner* tuner);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  absl::StatusOr<int64_t> Prepare(const Product& product);
  absl::Status Run(cudaStream_t stream, const Product& product, const ProductBuffers& at);

 private:
  struct Plan {
    std::unique_ptr<ProductDescriptors> descriptors;
    cublasLtMatmulHeuristicResult_t algorithm = {};
    int64_t workspace_bytes() const { return static_cast<int64_t>(algorithm.workspaceSize); }
  };
  Gemm(const Precision& precision, Tuner* tuner) : precision_(precision), tuner_(tuner) {}
  absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Candidates(const Product& product,
                                                                          const ProductDescriptors& d) const;
  size_t Choose(const Product& p, ProductDescriptors& d,
                const std::vector<cublasLtMatmulHeuristicResult_t>& candidates);
  absl::Status Launch(cudaStream_t stream, const Product& product, const ProductDescriptors& d,
                      const cublasLtMatmulHeuristicResult_t& algorithm, const ProductBuffers& at) const;

  const Precision precision_;
  Tuner* const tuner_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Product, std::unique_ptr<Plan>> plans_;
};

}  // namespace cairn::cudnn
