// Compares a backend's program with the reference's on one case. Used by the tests of every backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/backend.h"

namespace cairn {

// Every layer, alone and in small models, wide and odd ones, frozen ones.
std::vector<LayerCase> AllCases();

double Norm(absl::Span<const float> x);
double Distance(absl::Span<const float> x, absl::Span<const float> y);  // NaN where either holds one

// Relative.
struct Tolerance {
  double forward = 1e-5, loss = 1e-5, gradient = 3e-5;
  // A gradient that cancels out (a bias before a normalization) is as exact as its terms: of the whole space's norm
  // this share counts as each variable's.
  double share = 0.05;
};

class BesideReference {
 public:
  using Compile =
      std::function<absl::StatusOr<std::unique_ptr<Program>>(std::shared_ptr<const Graph>, const ProgramOptions&)>;

  // Makes the reference's program; compute and tf32 are options of the other one.
  BesideReference(const LayerCase& c, int64_t batch_max, v1::DataType compute = v1::FLOAT32, bool tf32 = false);
  // Fails the test if there is no program.
  void Make(const Compile& compile);

  // Compares gradients and sums. Every number is written and announced once, and computing again gives the same bits.
  void Training(int64_t examples, const Tolerance& tolerance);
  void Inference(int64_t examples, const Tolerance& tolerance);

  // Inputs that come as bytes give the bits of the same numbers in float32.
  void BytesAsFloats(int64_t examples);

  const std::shared_ptr<const Graph>& graph() const { return graph_; }
  const ProgramOptions& options() const { return options_; }
  const std::vector<float>& values() const { return values_; }
  Program* program() const { return program_.get(); }  // null before Make
  Program& reference() const { return *reference_; }

 private:
  void ExpectSums(const BatchSums& expected, const BatchSums& actual, double tolerance) const;
  void ExpectGradients(const Batch& batch, absl::Span<const float> expected, absl::Span<const float> actual,
                       const Tolerance& tolerance) const;
  double Unsteadiness(const Variable& v, const Batch& batch, absl::Span<const float> expected) const;

  std::shared_ptr<const Graph> graph_;
  ProgramOptions options_;
  std::unique_ptr<Program> reference_, program_;
  std::vector<float> values_;
};

}  // namespace cairn
