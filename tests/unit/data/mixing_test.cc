// Goal: mix_up and cut_mix mix each example with one of its batch, pixels and labels alike, by weights of the right
// distribution, as pure functions of (seed, pass, step, replica, example); AugMix is an average of its chains, and an
// elastic transform moves pixels and no more; the draws have their distributions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "common/data/augment.h"
#include "common/data/batch_mixer.h"
#include "common/data/distributions.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using ::testing::HasSubstr;

AugmentDraws Draws(uint32_t seed) { return {{seed, 9}, 1, 2, 3}; }

// ---- distributions ----

TEST(Distributions, HaveTheirMomentsAndStayWithinTheirBounds) {
  constexpr int kDraws = 40000;
  AugmentDraws draws = Draws(1);
  double mean = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = DrawNormal(draws);
    mean += x / kDraws;
    squares += x * x / kDraws;
  }
  EXPECT_NEAR(mean, 0, 0.02);
  EXPECT_NEAR(squares, 1, 0.03);
  for (const double alpha : {0.2, 1.0, 2.5}) {
    double gamma = 0, beta = 0, variance = 0;
    for (int i = 0; i < kDraws; ++i) {
      gamma += std::exp(DrawLogGamma(draws, alpha)) / kDraws;
      const double b = DrawBeta(draws, alpha);
      ASSERT_TRUE(b >= 0 && b <= 1) << b;
      beta += b / kDraws;
      variance += (b - 0.5) * (b - 0.5) / kDraws;
    }
    EXPECT_NEAR(gamma, alpha, 0.05 * alpha) << alpha;
    EXPECT_NEAR(beta, 0.5, 0.02) << alpha;
    EXPECT_NEAR(variance, 1 / (4 * (2 * alpha + 1)), 0.01) << alpha;
  }
  for (int i = 0; i < 100; ++i) {  // an alpha near 0: all or nothing
    const float b = DrawBeta(draws, 1e-6);
    EXPECT_TRUE(b < 1e-3f || b > 0.999f) << b;
  }
}

// ---- mixing ----

constexpr int64_t kExamples = 6, kSide = 20;

struct Mixed {
  std::vector<float> inputs, labels;
};

// A batch of pictures of one colour, example i of class i; `first` is its first example's number in the data.
Mixed Mix(const std::string& steps, uint64_t seed = 1, uint32_t replica = 0, uint64_t piece = 5, uint64_t first = 100) {
  const v1::Data data = FromText<v1::Data>(steps);
  const auto mixer = BatchMixer::Make(data, {kSide, kSide, 1}, kExamples, seed);
  EXPECT_NE(mixer, nullptr);
  EXPECT_EQ(mixer->label_size(1), kExamples);
  Mixed m = {std::vector<float>(kExamples * kSide * kSide), std::vector<float>(kExamples * kExamples)};
  BatchMixer::Place place = {2, piece, replica, {}};
  for (int64_t i = 0; i < kExamples; ++i) {
    std::fill_n(m.inputs.begin() + i * kSide * kSide, kSide * kSide, static_cast<float>(40 * i));
    m.labels[static_cast<size_t>(i * kExamples)] = static_cast<float>(i);
    EXPECT_TRUE(mixer->Spread(m.labels.data() + i * kExamples).ok());
    place.examples.push_back(first + static_cast<uint64_t>(i));
  }
  mixer->Mix(place, m.inputs.data(), m.labels.data(), kExamples);
  return m;
}

float ColourOf(const Mixed& m, int64_t example) {
  float colour = 0;
  for (int64_t c = 0; c < kExamples; ++c) {
    colour += m.labels[static_cast<size_t>(example * kExamples + c)] * 40 * static_cast<float>(c);
  }
  return colour;
}

TEST(BatchMixer, MixUpAveragesPixelsAsItAveragesLabels) {
  bool mixed = false;
  for (uint32_t replica = 0; replica < 20; ++replica) {
    const Mixed m = Mix("augmentation { mix_up { alpha: 1 } }", 1, replica);
    for (int64_t i = 0; i < kExamples; ++i) {
      float sum = 0;
      int classes = 0;
      for (int64_t c = 0; c < kExamples; ++c) {
        sum += m.labels[static_cast<size_t>(i * kExamples + c)];
        classes += m.labels[static_cast<size_t>(i * kExamples + c)] > 0 ? 1 : 0;
      }
      EXPECT_NEAR(sum, 1, 1e-6);
      EXPECT_LE(classes, 2);
      mixed = mixed || classes == 2;
      for (int64_t p = 0; p < kSide * kSide; ++p) {
        EXPECT_NEAR(m.inputs[static_cast<size_t>(i * kSide * kSide + p)], ColourOf(m, i), 1e-3);
      }
    }
  }
  EXPECT_TRUE(mixed);
}

TEST(BatchMixer, CutMixPastesAShareOfPixelsAsItSaysInTheLabels) {
  std::set<size_t> shares;
  for (uint32_t replica = 0; replica < 30; ++replica) {
    const Mixed m = Mix("augmentation { cut_mix {} }", 1, replica);
    for (int64_t i = 0; i < kExamples; ++i) {
      std::set<float> colours;
      size_t own = 0;
      float mean = 0;
      for (int64_t p = 0; p < kSide * kSide; ++p) {
        const float pixel = m.inputs[static_cast<size_t>(i * kSide * kSide + p)];
        colours.insert(pixel);
        own += pixel == static_cast<float>(40 * i) ? 1 : 0;
        mean += pixel / (kSide * kSide);
      }
      EXPECT_LE(colours.size(), 2u);
      // A side of the rectangle is known up to a pixel.
      EXPECT_NEAR(mean, ColourOf(m, i), 200 * 2.0 * (kSide + 1) / (kSide * kSide));
      shares.insert(own);
    }
  }
  EXPECT_GT(shares.size(), 20u) << "rectangles of all sizes";
}

TEST(BatchMixer, IsAPureFunctionOfSeedStepReplicaAndExample) {
  const std::string both = "augmentation { mix_up { alpha: 0.5 } } augmentation { cut_mix { factor: [0.5, 1] } }";
  const auto same = [](const Mixed& a, const Mixed& b) {
    return std::memcmp(a.inputs.data(), b.inputs.data(), a.inputs.size() * sizeof(float)) == 0 && a.labels == b.labels;
  };
  const Mixed m = Mix(both);
  EXPECT_TRUE(same(m, Mix(both)));
  EXPECT_FALSE(same(m, Mix(both, 2))) << "seed";
  EXPECT_FALSE(same(m, Mix(both, 1, 1))) << "replica";
  EXPECT_FALSE(same(m, Mix(both, 1, 0, 6))) << "step";
  EXPECT_FALSE(same(m, Mix(both, 1, 0, 5 + (uint64_t{1} << 32)))) << "a step beyond 32 bits";
  EXPECT_FALSE(same(m, Mix(both, 1, 0, 5, 101))) << "examples";
}

TEST(BatchMixer, LabelsThatAreNumbersAreAveragedAsTheyAre) {
  const v1::Data data = FromText<v1::Data>("augmentation { mix_up { alpha: 1 } }");
  const auto mixer = BatchMixer::Make(data, {1, 1, 1}, 0, 1);
  EXPECT_EQ(mixer->label_size(1), 1);
  std::vector<float> inputs = {0, 10, 20, 30}, labels = {0, 1, 2, 3};
  EXPECT_TRUE(mixer->Spread(labels.data()).ok());
  mixer->Mix({0, 0, 0, {0, 1, 2, 3}}, inputs.data(), labels.data(), 1);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(inputs[i], 10 * labels[i], 1e-4);
}

TEST(BatchMixer, ALabelThatIsNoClassIsRefused) {
  const auto mixer = BatchMixer::Make(FromText<v1::Data>("augmentation { mix_up {} }"), {1, 1, 1}, 3, 1);
  for (const float wrong : {-1.0f, 3.0f, 0.5f, std::nanf("")}) {
    float label[3] = {wrong, 0, 0};
    EXPECT_THAT(std::string(mixer->Spread(label).message()), HasSubstr("is not one of the model's classes 0 .. 2"));
  }
  EXPECT_EQ(BatchMixer::Make(FromText<v1::Data>("augmentation { random_flip {} }"), {1, 1, 1}, 3, 1), nullptr);
}

// ---- AugMix, elastic transforms ----

std::vector<float> Augmented(const std::string& steps, const std::vector<float>& picture, const Shape& shape,
                             uint64_t example) {
  const auto augmenter = Augmenter::Make(FromText<v1::Data>(steps), shape, 1);
  EXPECT_TRUE(augmenter.ok()) << augmenter.status();
  std::vector<float> numbers = picture;
  (*augmenter)->Apply(0, example, numbers.data());
  return numbers;
}

std::vector<float> Picture(int64_t numbers) {
  std::vector<float> picture;
  for (int64_t i = 0; i < numbers; ++i) picture.push_back(static_cast<float>((i * 37) % 256));
  return picture;
}

TEST(AugMix, IsAnAverageOfItsChains) {
  const std::vector<float> picture = Picture(8 * 8 * 3);
  std::set<std::vector<float>> seen;
  for (uint64_t example = 0; example < 12; ++example) {
    const std::vector<float> out = Augmented("augmentation { aug_mix {} }", picture, {8, 8, 3}, example);
    EXPECT_EQ(out, Augmented("augmentation { aug_mix {} }", picture, {8, 8, 3}, example));
    for (const float v : out) EXPECT_TRUE(v >= 0 && v <= 255) << v;
    seen.insert(out);
  }
  EXPECT_GT(seen.size(), 8u);
  // Operations of strength 0 make a picture of one colour another such one, but for the edge: so does their average.
  const std::vector<float> grey(8 * 8 * 3, 100.0f);
  for (uint64_t example = 0; example < 12; ++example) {
    const std::vector<float> out =
        Augmented("augmentation { aug_mix { factor: 0 num_chains: 4 } }", grey, {8, 8, 3}, example);
    for (const size_t row : {3, 4}) {
      for (size_t i = (row * 8 + 3) * 3; i < (row * 8 + 5) * 3; ++i) EXPECT_NEAR(out[i], out[(3 * 8 + 3) * 3], 1e-2);
    }
  }
}

TEST(Elastic, MovesPixelsByTheirStrength) {
  const std::vector<float> picture = Picture(16 * 16);
  const Shape shape = {16, 16, 1};
  int moved = 0;
  for (uint64_t example = 0; example < 40; ++example) {
    const std::vector<float> out = Augmented(
        "augmentation { random_elastic_transform { factor: [1, 1] scale: [1, 1] } }", picture, shape, example);
    EXPECT_NE(out, picture);
    const std::vector<float> nearest = Augmented(
        "augmentation { random_elastic_transform { factor: [1, 1] nearest: true } }", picture, shape, example);
    for (const float v : nearest) EXPECT_EQ(v, std::floor(v)) << "numbers of the picture";
    EXPECT_EQ(Augmented("augmentation { random_elastic_transform { factor: [0, 0] } }", picture, shape, example),
              picture);
    EXPECT_EQ(Augmented("augmentation { random_elastic_transform { factor: [1, 1] scale: [0, 0] } }", picture, shape,
                        example),
              picture);
    moved += Augmented("augmentation { random_elastic_transform {} }", picture, shape, example) != picture ? 1 : 0;
  }
  // A probability drawn from [0, 1] for each picture, as in Keras: half of them.
  EXPECT_GT(moved, 8);
  EXPECT_LT(moved, 32);
}

}  // namespace
}  // namespace cairn
