#include "common/model/initializer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/check.h"
#include "common/base/decimal.h"
#include "common/base/random.h"
#include "common/model/limits.h"
#include "common/model/orthogonal.h"
#include "common/model/recurrent.h"

namespace cairn {
namespace {

// The standard deviation of a standard normal distribution truncated at two standard deviations. Keras' VarianceScaling
// divides by it.
constexpr double kTruncatedStddev = 0.87962566103423978;
constexpr double kTruncatedAt = 2.0;

enum class Law { kConstant, kUniform, kNormal, kTruncatedNormal };

// An element is center + scale * (a sample of [-1, 1), or of the standard normal distribution), or the constant
// `center`. Uniform samples stay below `end` even after rounding to float32.
struct Distribution {
  Law law = Law::kConstant;
  double center = 0, scale = 0;
  float end = std::numeric_limits<float>::infinity();
};

// keras.initializers.VarianceScaling.
Distribution VarianceScaling(double gain, double fan, v1::Initializer::Distribution distribution) {
  const double variance = gain / std::max(1.0, fan);
  switch (distribution) {
    case v1::Initializer::DISTRIBUTION_UNIFORM: return {Law::kUniform, 0, std::sqrt(3.0 * variance)};
    case v1::Initializer::DISTRIBUTION_UNTRUNCATED_NORMAL: return {Law::kNormal, 0, std::sqrt(variance)};
    default: return {Law::kTruncatedNormal, 0, std::sqrt(variance) / kTruncatedStddev};
  }
}

Distribution DistributionOf(const Variable& variable) {
  const v1::Initializer& given = variable.initializer;
  const double fan_in = static_cast<double>(variable.fan_in), fan_out = static_cast<double>(variable.fan_out);
  const double fan_avg = (fan_in + fan_out) / 2.0;
  const auto uniform = v1::Initializer::DISTRIBUTION_UNIFORM;
  const auto normal = v1::Initializer::DISTRIBUTION_TRUNCATED_NORMAL;
  switch (given.kind()) {
    case v1::Initializer::ZEROS: return {Law::kConstant, 0.0};
    case v1::Initializer::ONES: return {Law::kConstant, 1.0};
    case v1::Initializer::CONSTANT: return {Law::kConstant, given.value()};
    case v1::Initializer::GLOROT_UNIFORM: return VarianceScaling(1.0, fan_avg, uniform);
    case v1::Initializer::GLOROT_NORMAL: return VarianceScaling(1.0, fan_avg, normal);
    case v1::Initializer::HE_UNIFORM: return VarianceScaling(2.0, fan_in, uniform);
    case v1::Initializer::HE_NORMAL: return VarianceScaling(2.0, fan_in, normal);
    case v1::Initializer::LECUN_UNIFORM: return VarianceScaling(1.0, fan_in, uniform);
    case v1::Initializer::LECUN_NORMAL: return VarianceScaling(1.0, fan_in, normal);
    case v1::Initializer::VARIANCE_SCALING: {
      const bool out = given.mode() == v1::Initializer::FAN_OUT, average = given.mode() == v1::Initializer::FAN_AVG;
      return VarianceScaling(Decimal(given.scale()), out ? fan_out : average ? fan_avg : fan_in, given.distribution());
    }
    case v1::Initializer::RANDOM_UNIFORM: {
      const double from = Decimal(given.minval()), to = Decimal(given.maxval());
      return {Law::kUniform, (from + to) / 2, (to - from) / 2, given.maxval()};
    }
    case v1::Initializer::RANDOM_NORMAL: return {Law::kNormal, Decimal(given.mean()), Decimal(given.stddev())};
    case v1::Initializer::TRUNCATED_NORMAL:
      return {Law::kTruncatedNormal, Decimal(given.mean()), Decimal(given.stddev())};
    default: break;
  }
  CAIRN_CHECK(false, "Graph::Build resolves every initializer");
  return {};
}

using Draws = std::array<double, 4>;

// The Box-Muller transform of two pairs of words.
Draws Normals(const PhiloxBlock& bits) {
  Draws draws;
  for (int pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2.0 * std::log((bits[pair] + 1.0) * 0x1.0p-32));  // in (0, 1]
    const double angle = 2.0 * M_PI * (bits[pair + 1] * 0x1.0p-32);
    draws[pair] = radius * std::cos(angle);
    draws[pair + 1] = radius * std::sin(angle);
  }
  return draws;
}

// Samples for the elements 4 * block .. 4 * block + 3 of a variable. Redraws have their own counters, so that an
// element's value does not depend on its neighbours.
class Drawer {
 public:
  Drawer(uint64_t seed, uint32_t variable, Law law)
      : key_(StreamKey(seed, RandomStream::kInitializer)), variable_(variable), law_(law) {}

  Draws Block(uint64_t block) const {
    if (law_ == Law::kUniform) {
      const PhiloxBlock bits = Bits(block, 0);
      Draws draws;
      for (int i = 0; i < 4; ++i) draws[i] = 2.0 * ToUniform(bits[i]) - 1.0;
      return draws;
    }
    Draws draws = Normals(Bits(block, 0));
    if (law_ == Law::kTruncatedNormal) Redraw(block, &draws);
    return draws;
  }

 private:
  PhiloxBlock Bits(uint64_t block, uint32_t attempt) const {
    return Philox(key_, {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), variable_, attempt});
  }

  static bool Outside(double draw) { return std::abs(draw) > kTruncatedAt; }

  void Redraw(uint64_t block, Draws* draws) const {
    for (uint32_t attempt = 1; attempt <= kInitializerRedrawsMax; ++attempt) {
      if (std::none_of(draws->begin(), draws->end(), Outside)) return;
      const Draws again = Normals(Bits(block, attempt));
      for (int i = 0; i < 4; ++i) {
        if (Outside((*draws)[i])) (*draws)[i] = again[i];
      }
    }
    for (double& draw : *draws) draw = std::clamp(draw, -kTruncatedAt, kTruncatedAt);
  }

  std::array<uint32_t, 2> key_;
  uint32_t variable_;
  Law law_;
};

void InitializeIdentity(const Variable& variable, int64_t begin, absl::Span<float> out) {
  const int64_t columns = variable.shape[1];
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t element = begin + static_cast<int64_t>(i);
    out[i] = element / columns == element % columns ? variable.initializer.gain() : 0.0f;
  }
}

// Saxe et al. 2014, as in Keras: the orthogonal factor of a matrix of normal samples with at least as many rows as
// columns, transposed if the variable has more columns. Element i of the matrix is sample i.
void InitializeOrthogonal(const Variable& variable, uint32_t index, uint64_t seed, int64_t begin,
                          absl::Span<float> out) {
  const int64_t columns = variable.shape.back(), rows = variable.size / columns;
  const int64_t count = std::min(rows, columns), length = std::max(rows, columns);
  std::vector<double> vectors(static_cast<size_t>(variable.size));  // the matrix's columns, concatenated
  const Drawer drawer(seed, index, Law::kNormal);
  for (int64_t block = 0; block * 4 < variable.size; ++block) {
    const Draws draws = drawer.Block(static_cast<uint64_t>(block));
    for (int64_t e = block * 4; e < std::min(variable.size, block * 4 + 4); ++e) {
      vectors[static_cast<size_t>(e % count * length + e / count)] = draws[static_cast<size_t>(e % 4)];
    }
  }
  Orthonormalize(count, length, absl::MakeSpan(vectors));
  const double gain = Decimal(variable.initializer.gain());
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t row = (begin + static_cast<int64_t>(i)) / columns,
                  column = (begin + static_cast<int64_t>(i)) % columns;
    const int64_t place = rows >= columns ? column * length + row : row * length + column;
    out[i] = static_cast<float>(gain * vectors[static_cast<size_t>(place)]);
  }
}

// Initializes elements [begin, begin + out.size()) of one variable.
void InitializeElements(const Variable& variable, uint32_t index, uint64_t seed, int64_t begin, absl::Span<float> out) {
  if (variable.initializer.kind() == v1::Initializer::IDENTITY) return InitializeIdentity(variable, begin, out);
  if (variable.initializer.kind() == v1::Initializer::ORTHOGONAL) {
    return InitializeOrthogonal(variable, index, seed, begin, out);
  }
  const Distribution distribution = DistributionOf(variable);
  if (distribution.law == Law::kConstant) {
    std::fill(out.begin(), out.end(), static_cast<float>(distribution.center));
    return;
  }
  const Drawer drawer(seed, index, distribution.law);
  const int64_t end = begin + static_cast<int64_t>(out.size());
  for (int64_t block = begin / 4; block * 4 < end; ++block) {
    const Draws draws = drawer.Block(static_cast<uint64_t>(block));
    for (int64_t e = std::max(begin, block * 4); e < std::min(end, block * 4 + 4); ++e) {
      const float value = static_cast<float>(distribution.center + draws[e % 4] * distribution.scale);
      out[e - begin] = value < distribution.end ? value : std::nextafter(distribution.end, -INFINITY);
    }
  }
}

}  // namespace

void InitializeRange(const Graph& graph, uint64_t seed, int64_t begin, absl::Span<float> out) {
  const int64_t end = begin + static_cast<int64_t>(out.size());
  CAIRN_CHECK(begin >= 0 && end <= graph.space_size(), "a range of the parameter space");
  std::fill(out.begin(), out.end(), 0.0f);  // between variables
  for (size_t v = 0; v < graph.variables().size(); ++v) {
    const Variable& variable = graph.variables()[v];
    const int64_t from = std::max(begin, variable.offset);
    const int64_t to = std::min(end, variable.offset + variable.size);
    if (from >= to) continue;
    const absl::Span<float> here = out.subspan(from - begin, to - from);
    InitializeElements(variable, static_cast<uint32_t>(v), seed, from - variable.offset, here);
    int64_t ones_begin = 0, ones_end = 0;
    if (!FindForgetBias(graph, variable, &ones_begin, &ones_end)) continue;
    for (int64_t i = std::max(from, variable.offset + ones_begin); i < std::min(to, variable.offset + ones_end); ++i) {
      here[i - from] = 1.0f;
    }
  }
}

}  // namespace cairn
