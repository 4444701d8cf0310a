#include "common/model/spectral.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "common/base/bad.h"
#include "common/model/call_mode.h"
#include "common/model/fault_check.h"
#include "common/model/limits.h"
#include "common/model/variable_fields.h"

namespace cairn {
namespace {

// Divides the vector by its length. Returns the length.
double Unit(std::vector<double>& vector) {
  double squares = 0;
  for (const double number : vector) squares += number * number;
  const double length = std::max(std::sqrt(squares), static_cast<double>(kVectorLengthMin));
  for (double& number : vector) number /= length;
  return std::sqrt(squares);
}

void Normalize(const SpectralRange& range, float* kernel, float* vector) {
  const int64_t numbers = range.rows * range.columns;
  if (std::all_of(kernel, kernel + numbers, [](float number) { return number == 0; })) return;
  std::vector<double> u(vector, vector + range.columns), v(static_cast<size_t>(range.rows));
  double sigma = 0;
  for (int i = 0; i < range.power_iterations; ++i) {
    for (int64_t r = 0; r < range.rows; ++r) {
      const float* const row = kernel + r * range.columns;
      double sum = 0;
      for (int64_t c = 0; c < range.columns; ++c) sum += row[c] * u[static_cast<size_t>(c)];
      v[static_cast<size_t>(r)] = sum;
    }
    Unit(v);
    std::fill(u.begin(), u.end(), 0.0);
    for (int64_t r = 0; r < range.rows; ++r) {
      const float* const row = kernel + r * range.columns;
      for (int64_t c = 0; c < range.columns; ++c) u[static_cast<size_t>(c)] += row[c] * v[static_cast<size_t>(r)];
    }
    const std::vector<double> product = u;  // v W
    Unit(u);
    sigma = 0;
    for (size_t c = 0; c < u.size(); ++c) sigma += product[c] * u[c];
  }
  const float divisor = static_cast<float>(sigma);
  float largest = 0;
  for (int64_t i = 0; i < numbers; ++i) largest = std::max(largest, std::abs(kernel[i]));
  // Rows that are orthogonal to the vector, or numbers that are not finite, have no sigma to divide by.
  if (!std::isfinite(divisor) || !std::isfinite(largest / divisor)) return;
  for (int64_t i = 0; i < numbers; ++i) kernel[i] /= divisor;
  for (int64_t c = 0; c < range.columns; ++c) vector[c] = static_cast<float>(u[static_cast<size_t>(c)]);
}

// The kernel, or the table of an embedding, among the variables; null: there is none.
const Variable* KernelOf(const Graph& graph, const Node& node) {
  for (const int v : node.variables) {
    const Variable& variable = graph.variables()[static_cast<size_t>(v)];
    if (absl::EndsWith(variable.name, "/kernel") || absl::EndsWith(variable.name, "/embeddings")) return &variable;
  }
  return nullptr;
}

}  // namespace

std::vector<SpectralRange> SpectralRangesOf(const Graph& graph, int64_t begin, int64_t end) {
  std::vector<SpectralRange> ranges;
  for (const int id : NodesWithin(graph, begin, end)) {
    const Node& node = graph.nodes()[static_cast<size_t>(id)];
    if (node.kind != LayerKind::kSpectralNormalization || InfersAlways(node)) continue;
    const Variable* const kernel = KernelOf(graph, node);
    const Variable& vector = graph.variables()[static_cast<size_t>(node.variables.back())];
    if (kernel->offset < begin || vector.offset + vector.size > end) continue;
    ranges.push_back({.kernel = kernel->offset - begin,
                      .vector = vector.offset - begin,
                      .rows = kernel->size / vector.size,
                      .columns = vector.size,
                      .power_iterations = node.layer.spectral_normalization().power_iterations()});
  }
  return ranges;
}

void NormalizeKernels(absl::Span<const SpectralRange> ranges, absl::Span<float> values) {
  for (const SpectralRange& range : ranges) {
    Normalize(range, values.data() + range.kernel, values.data() + range.vector);
  }
}

absl::Status CheckSpectral(const v1::JobSpec& spec, const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.kind != LayerKind::kSpectralNormalization || InfersAlways(node)) continue;
    const auto bad = [&](absl::string_view field, absl::string_view why) {
      return Bad(field, ": layer \"", node.name, "\" has a spectral normalization, ", why);
    };
    if (!node.trainable) {
      return bad("model", "with which Keras divides a kernel that is frozen, too; call it with training: false");
    }
    if (!IsSynchronous(spec)) {
      return bad("strategy",
                 "which divides a kernel once a step, but here each replica has steps of its own; use "
                 "MULTI_WORKER_MIRRORED, or staleness_bound 0");
    }
    if (spec.strategy() == v1::CENTRAL_STORAGE) {
      return bad("strategy", "which needs a kernel before the layer's turn; use MULTI_WORKER_MIRRORED");
    }
    if (spec.accumulate_steps() > 1) {
      return bad("accumulate_steps", "which Keras applies in each of the batches that make a step; leave it out");
    }
    if (spec.has_loss_scaling() || spec.compute_dtype() == v1::FLOAT16) {
      return bad(spec.has_loss_scaling() ? "loss_scaling" : "compute_dtype",
                 "which Keras applies in steps that are left out, too; use FLOAT32 or BFLOAT16");
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
