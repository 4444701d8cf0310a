#include "common/data/augment_chains.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/data/augment_colors.h"
#include "common/data/colors.h"
#include "common/data/distributions.h"
#include "common/data/elementary.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

// The layers of RandAugmentLayer without the four that all_ops adds.
constexpr int kFewerLayers[] = {0, 1, 2, 7, 8, 9, 10};

struct Range {
  float low = 0, high = 0;
};

// A single number f means [0, f].
Range FromZero(const google::protobuf::RepeatedField<float>& factor, float otherwise) {
  if (factor.empty()) return {0, otherwise};
  return factor.size() == 2 ? Range{factor[0], factor[1]} : Range{0, factor[0]};
}

// Of Dirichlet(alpha, ...).
std::vector<float> DrawShares(AugmentDraws& draws, int count, double alpha) {
  std::vector<double> logs(static_cast<size_t>(count));
  for (double& one : logs) one = DrawLogGamma(draws, alpha);
  const double most = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (double& one : logs) sum += one = ExactExp(std::max(one - most, -700.0));
  std::vector<float> shares;
  for (const double one : logs) shares.push_back(static_cast<float>(one / sum));
  return shares;
}

}  // namespace

void ApplyAugMix(const v1::AugMix& mix, AugmentDraws& draws, const PictureShape3& shape, const ApplyOneStep& apply,
                 float* numbers) {
  const int chains = mix.has_num_chains() ? mix.num_chains() : 3, depth = mix.has_chain_depth() ? mix.chain_depth() : 3;
  const double alpha = mix.has_alpha() ? mix.alpha() : 1.0f;
  const Range factor = FromZero(mix.factor(), 0.3f);
  const bool all = !mix.has_all_ops() || mix.all_ops();
  const int layers = all ? kRandAugmentLayers : static_cast<int>(std::size(kFewerLayers));
  const std::vector<float> shares = DrawShares(draws, chains, alpha);
  const float kept = DrawBeta(draws, alpha);
  const auto size = static_cast<size_t>(shape.size());
  std::vector<float> sum(size, 0.0f), chain(size);
  for (const float share : shares) {
    std::copy_n(numbers, size, chain.data());
    for (int i = 0; i < depth; ++i) {
      const int layer = static_cast<int>(draws.Below(layers + 1));
      if (layer == layers) continue;  // nothing, as often as each of the others
      apply(AugmentLayer(factor.low, factor.high, all ? layer : kFewerLayers[layer]), chain.data());
    }
    for (size_t i = 0; i < size; ++i) sum[i] += chain[i] * share;
  }
  for (size_t i = 0; i < size; ++i) {
    numbers[i] = std::clamp(kept * numbers[i] + (1 - kept) * sum[i], 0.0f, kPixelMax);
  }
}

void ApplyElastic(const v1::RandomElasticTransform& elastic, AugmentDraws& draws, const PictureShape3& shape,
                  float* numbers) {
  const Range factor = FromZero(elastic.factor(), 1), scale = FromZero(elastic.scale(), 1);
  const float probability = draws.Uniform(factor.low, factor.high);
  const bool moves = draws.Uniform(0, 1) < probability;
  const float strength = draws.Uniform(scale.low, scale.high);
  const float alpha = static_cast<float>(std::max(shape.height, shape.width)) * 0.1f * strength;
  const float sigma = static_cast<float>(std::min(shape.height, shape.width)) * 0.05f * strength;
  if (!moves || !(sigma > 0)) return;
  const Gaussian kernel = {static_cast<int64_t>(6 * sigma) | 1, sigma};
  const PictureShape3 plane = {shape.height, shape.width, 1};
  const auto displacement = [&] {
    std::vector<float> by(static_cast<size_t>(plane.size()));
    for (float& one : by) one = DrawNormal(draws) * sigma;
    BlurUnclipped(plane, kernel, kernel, by.data());
    for (float& one : by) one *= alpha;
    return by;
  };
  const std::vector<float> across = displacement(), down = displacement();
  const std::vector<float> before(numbers, numbers + shape.size());
  Displace(shape, {across, down}, {elastic.fill_mode(), elastic.fill_value(), elastic.nearest()}, before.data(),
           numbers);
  for (int64_t i = 0; i < shape.size(); ++i) numbers[i] = std::clamp(numbers[i], 0.0f, kPixelMax);
}

}  // namespace cairn
