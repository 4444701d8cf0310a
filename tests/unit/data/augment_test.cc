// Goal: augmentation follows Keras' formulas (each step is compared with a plain float64 reference or a closed form),
// draws with the right distribution, and is a pure function of (seed, pass, example) whose bits never change.
#include "common/data/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <thread>

#include "common/base/digest.h"
#include "google/protobuf/text_format.h"

namespace cairn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::shared_ptr<const Augmenter> Make(const std::string& steps, const Shape& shape, uint64_t seed = 1) {
  v1::Data data;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(steps, &data)) << steps;
  auto augmenter = Augmenter::Make(data, shape, seed);
  EXPECT_TRUE(augmenter.ok()) << augmenter.status();
  return augmenter.ok() ? *augmenter : nullptr;
}

// Different numbers within 0 .. 255.
std::vector<float> Picture(const PictureShape3& shape, uint32_t seed = 3) {
  std::vector<float> numbers(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(Philox({seed, 7}, {static_cast<uint32_t>(i), 0, 0, 0})[0] % 256);
  }
  return numbers;
}

// ---- warping ----

// The picture without end: its pixel (y, x) according to Keras' documentation of fill_mode.
double Endless(const PictureShape3& s, const std::vector<float>& in, v1::FillMode mode, double fill, int64_t y,
               int64_t x, int64_t c) {
  const auto inside = [&](int64_t i, int64_t size) -> int64_t {
    while (i < 0 || i >= size) {
      switch (mode) {
        case v1::REFLECT: i = i < 0 ? -1 - i : 2 * size - 1 - i; break;
        case v1::WRAP: i += i < 0 ? size : -size; break;
        case v1::NEAREST_PIXEL: i = i < 0 ? 0 : size - 1; break;
        default: return -1;
      }
    }
    return i;
  };
  const int64_t row = inside(y, s.height), column = inside(x, s.width);
  return row < 0 || column < 0 ? fill : in[(row * s.width + column) * s.channels + c];
}

std::vector<double> NaiveWarp(const PictureShape3& s, const std::vector<double>& m, v1::FillMode mode, double fill,
                              const std::vector<float>& in) {
  std::vector<double> out;
  for (int64_t y = 0; y < s.height; ++y) {
    for (int64_t x = 0; x < s.width; ++x) {
      const double xi = m[0] * x + m[1] * y + m[2], yi = m[3] * x + m[4] * y + m[5];
      const int64_t x0 = std::floor(xi), y0 = std::floor(yi);
      const double u = xi - x0, v = yi - y0;
      for (int64_t c = 0; c < s.channels; ++c) {
        const auto at = [&](int64_t row, int64_t column) { return Endless(s, in, mode, fill, row, column, c); };
        out.push_back((1 - v) * ((1 - u) * at(y0, x0) + u * at(y0, x0 + 1)) +
                      v * ((1 - u) * at(y0 + 1, x0) + u * at(y0 + 1, x0 + 1)));
      }
    }
  }
  return out;
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
  EXPECT_LE(worst, tolerance);
}

std::vector<float> Warped(const PictureShape3& s, const Affine2& a, v1::FillMode mode, float fill,
                          const std::vector<float>& in) {
  std::vector<float> out(in.size(), -1);
  Warp(s, a, mode, fill, in.data(), out.data());
  return out;
}

constexpr v1::FillMode kModes[] = {v1::REFLECT, v1::WRAP, v1::FILL_CONSTANT, v1::NEAREST_PIXEL};

// The matrices as keras' get_rotation_matrix, get_zoom_matrix and get_translation_matrix write them.
TEST(Warp, EqualsAPlainLoopInFloat64) {
  const double pi = std::acos(-1.0);
  for (const PictureShape3& s :
       {PictureShape3{7, 9, 3}, PictureShape3{12, 5, 1}, PictureShape3{4, 4, 2}, PictureShape3{1, 6, 1}}) {
    const std::vector<float> in = Picture(s);
    const double w = s.width - 1, h = s.height - 1;
    for (const v1::FillMode mode : kModes) {
      for (const double turns : {0.03, -0.2, 0.25, 0.5, 0.61, -1.0}) {
        const double sine = std::sin(2 * pi * turns), cosine = std::cos(2 * pi * turns);
        const std::vector<double> m = {cosine, -sine,  (w - (cosine * w - sine * h)) / 2,
                                       sine,   cosine, (h - (sine * w + cosine * h)) / 2};
        // A place within rounding of a border between two pixels may fall on either side. This does not matter where
        // the picture is continuous; with WRAP or a fill value it is not, beyond its ends.
        ExpectNear(Warped(s, Rotation(s, turns), mode, 99, in), NaiveWarp(s, m, mode, 99, in), 0.01);
      }
      for (const auto& [zoom_h, zoom_w] :
           {std::pair<float, float>{0.5f, 0.5f}, {1.3f, 0.8f}, {2.0f, 1.9f}, {1.0f, 1.0f}}) {
        const std::vector<double> m = {zoom_w, 0, w / 2 * (1 - zoom_w), 0, zoom_h, h / 2 * (1 - zoom_h)};
        ExpectNear(Warped(s, Zoom(s, zoom_h, zoom_w), mode, 7, in), NaiveWarp(s, m, mode, 7, in), 0.01);
      }
      for (const auto& [down, right] : {std::pair<float, float>{1, -2}, {0.25f, 0.75f}, {-30.5f, 17}}) {
        ExpectNear(Warped(s, Translation(down, right), mode, 7, in),
                   NaiveWarp(s, {1, 0, -right, 0, 1, -down}, mode, 7, in), 0.01);
      }
    }
  }
}

TEST(Warp, WholeMovesAreExact) {
  const PictureShape3 s{3, 3, 1};
  const std::vector<float> in = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_THAT(Warped(s, {}, v1::REFLECT, 0, in), testing::ElementsAreArray(in));
  EXPECT_THAT(Warped(s, Rotation(s, 0.25), v1::REFLECT, 0, in), ElementsAre(3, 6, 9, 2, 5, 8, 1, 4, 7))
      << "counter-clockwise";
  EXPECT_THAT(Warped(s, Rotation(s, -0.25), v1::REFLECT, 0, in), ElementsAre(7, 4, 1, 8, 5, 2, 9, 6, 3));
  EXPECT_THAT(Warped(s, Rotation(s, 0.5), v1::REFLECT, 0, in), ElementsAre(9, 8, 7, 6, 5, 4, 3, 2, 1));
  EXPECT_THAT(Warped(s, Translation(1, 0), v1::FILL_CONSTANT, 0.5f, in), ElementsAre(.5f, .5f, .5f, 1, 2, 3, 4, 5, 6))
      << "down";
  EXPECT_THAT(Warped(s, Translation(0, 1), v1::NEAREST_PIXEL, 0, in), ElementsAre(1, 1, 2, 4, 4, 5, 7, 7, 8))
      << "right";
  EXPECT_THAT(Warped(s, Translation(0, 2), v1::REFLECT, 0, in), ElementsAre(2, 1, 1, 5, 4, 4, 8, 7, 7));
  EXPECT_THAT(Warped(s, Translation(0, 2), v1::WRAP, 0, in), ElementsAre(2, 3, 1, 5, 6, 4, 8, 9, 7));
  EXPECT_THAT(Warped(s, Translation(0, 1e30f), v1::NEAREST_PIXEL, 0, in), ElementsAre(1, 1, 1, 4, 4, 4, 7, 7, 7));
}

TEST(SinCos, EqualsTheLibrary) {
  const double pi = std::acos(-1.0);
  for (int i = -4000; i <= 4000; ++i) {
    double sine, cosine;
    SinCos(i / 1600.0, &sine, &cosine);
    EXPECT_NEAR(sine, std::sin(2 * pi * i / 1600.0), 4e-15) << i;
    EXPECT_NEAR(cosine, std::cos(2 * pi * i / 1600.0), 4e-15) << i;
  }
  double sine, cosine;
  SinCos(0.25, &sine, &cosine);
  EXPECT_EQ(sine, 1);
  EXPECT_EQ(cosine, 0);
}

TEST(CropAndResize, PartsAndPadding) {
  const PictureShape3 s{4, 4, 1};
  std::vector<float> in(16), out(16);
  std::iota(in.begin(), in.end(), 1.0f);
  CropAndResize(s, {-1, 2, 4, 4}, s, in.data(), out.data());
  EXPECT_THAT(out, ElementsAre(0, 0, 0, 0, 3, 4, 0, 0, 7, 8, 0, 0, 11, 12, 0, 0));
  // A part of 2x2, enlarged: bilinear with half-pixel centers, its border repeated.
  CropAndResize(s, {1, 1, 2, 2}, s, in.data(), out.data());  // 6 7 / 10 11
  EXPECT_THAT(out, ElementsAre(6, 6.25f, 6.75f, 7, 7, 7.25f, 7.75f, 8, 9, 9.25f, 9.75f, 10, 10, 10.25f, 10.75f, 11));
}

// ---- each step ----

TEST(Augment, FlipsHalfOfThePicturesEachWay) {
  const std::vector<float> in = {1, 2, 3, 4};  // 2x2
  const std::map<std::string, std::vector<std::vector<float>>> modes = {
      {"HORIZONTAL", {{1, 2, 3, 4}, {2, 1, 4, 3}}},
      {"VERTICAL", {{1, 2, 3, 4}, {3, 4, 1, 2}}},
      {"HORIZONTAL_AND_VERTICAL", {{1, 2, 3, 4}, {2, 1, 4, 3}, {3, 4, 1, 2}, {4, 3, 2, 1}}},
      {"MODE_UNSPECIFIED", {{1, 2, 3, 4}, {2, 1, 4, 3}, {3, 4, 1, 2}, {4, 3, 2, 1}}}};
  for (const auto& [mode, outcomes] : modes) {
    const auto augmenter = Make("augmentation { random_flip { mode: " + mode + " } }", {2, 2, 1});
    std::map<std::vector<float>, int> counts;
    for (int i = 0; i < 4000; ++i) {
      std::vector<float> picture = in;
      augmenter->Apply(0, i, picture.data());
      ++counts[picture];
    }
    ASSERT_EQ(counts.size(), outcomes.size()) << mode;
    const double expected = 4000.0 / static_cast<double>(outcomes.size());
    for (const auto& outcome : outcomes) EXPECT_NEAR(counts[outcome], expected, 5 * std::sqrt(expected)) << mode;
  }
}

TEST(Augment, FlipKeepsChannelsTogether) {
  const auto augmenter = Make("augmentation { random_flip { mode: HORIZONTAL } }", {1, 3, 2});
  for (int i = 0; i < 20; ++i) {
    std::vector<float> picture = {1, 2, 3, 4, 5, 6};
    augmenter->Apply(0, i, picture.data());
    EXPECT_THAT(picture, testing::AnyOf(ElementsAre(1, 2, 3, 4, 5, 6), ElementsAre(5, 6, 3, 4, 1, 2)));
  }
}

struct Moments {
  double mean = 0, variance = 0, min = 1e9, max = -1e9;
};
Moments MomentsOf(const std::vector<double>& x) {
  Moments m;
  for (double v : x) {
    m.mean += v / static_cast<double>(x.size());
    m.min = std::min(m.min, v);
    m.max = std::max(m.max, v);
  }
  for (double v : x) m.variance += (v - m.mean) * (v - m.mean) / static_cast<double>(x.size());
  return m;
}
// Checks that x is uniform in [low, high]: mean, variance, and that the ends are nearly reached.
void ExpectUniform(const std::vector<double>& x, double low, double high) {
  const Moments m = MomentsOf(x);
  const double width = high - low, n = static_cast<double>(x.size());
  EXPECT_NEAR(m.mean, (low + high) / 2, 5 * width / std::sqrt(12 * n));
  EXPECT_NEAR(m.variance, width * width / 12, 0.1 * width * width / 12);
  EXPECT_GE(m.min, low - 1e-4 * width);
  EXPECT_LE(m.max, high + 1e-4 * width);
  EXPECT_LE(m.min, low + 0.02 * width);
  EXPECT_GE(m.max, high - 0.02 * width);
}

// The results of `measure` for 3000 augmented pictures.
std::vector<double> Measure(const std::string& step, const Shape& shape, const std::vector<float>& in,
                            const std::function<double(const std::vector<float>&)>& measure) {
  const auto augmenter = Make("augmentation { " + step + " }", shape);
  std::vector<double> found;
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> picture = in;
    augmenter->Apply(5, i, picture.data());
    found.push_back(measure(picture));
  }
  return found;
}

TEST(Augment, BrightnessAddsWithinItsFactorAndStaysInRange) {
  const std::vector<float> grey(4, 128);
  ExpectUniform(Measure("random_brightness { factor: 0.2 }", {2, 2, 1}, grey, [](auto& p) { return p[0]; }), 128 - 51,
                128 + 51);
  ExpectUniform(Measure("random_brightness { factor: [0.1, 0.3] }", {2, 2, 1}, grey, [](auto& p) { return p[3]; }),
                153.5, 204.5);
  const Moments clipped =
      MomentsOf(Measure("random_brightness { factor: 1 }", {2, 2, 1}, grey, [](auto& p) { return p[0]; }));
  EXPECT_EQ(clipped.min, 0);
  EXPECT_EQ(clipped.max, 255);
}

TEST(Augment, ContrastIsAboutEachChannelsMean) {
  // Channels 90, 110 (mean 100) and 40, 60 (mean 50).
  const std::vector<float> in = {90, 40, 110, 60};
  ExpectUniform(Measure("random_contrast { factor: 0.5 }", {1, 2, 2}, in,
                        [](auto& p) {
                          const double factor = (p[2] - 100) / 10;
                          EXPECT_NEAR(p[0], 100 - 10 * factor, 1e-3);
                          EXPECT_NEAR(p[1], 50 - 10 * factor, 1e-3);
                          EXPECT_NEAR(p[3], 50 + 10 * factor, 1e-3);
                          return factor;
                        }),
                0.5, 1.5);
  ExpectUniform(
      Measure("random_contrast { factor: [0.9, 0.3] }", {1, 2, 2}, in, [](auto& p) { return (p[2] - 100) / 10; }), 0.1,
      1.3);
}

// A slope shows by how much it was moved.
TEST(Augment, TranslationZoomAndRotationDrawWithinTheirFactors) {
  const int side = 21;
  std::vector<float> slope;
  for (int y = 0; y < side; ++y) {
    for (int x = 0; x < side; ++x) slope.push_back(static_cast<float>(x + 10 * y));
  }
  const int middle = side / 2, at = middle * side + middle;
  const double here = slope[at];
  ExpectUniform(Measure("random_translation { height_factor: 0 width_factor: 0.2 }", {side, side, 1}, slope,
                        [&](auto& p) { return here - p[at]; }),
                -0.2 * side, 0.2 * side);
  ExpectUniform(Measure("random_translation { height_factor: [0, 0.25] width_factor: 0 }", {side, side, 1}, slope,
                        [&](auto& p) { return (here - p[at]) / 10; }),
                0, 0.25 * side);
  ExpectUniform(Measure("random_zoom { height_factor: 0 width_factor: [-0.5, 0.25] }", {side, side, 1}, slope,
                        [&](auto& p) { return p[at + 2] - p[at + 1]; }),
                0.5, 1.25);
  ExpectUniform(Measure("random_rotation { factor: 0.1 }", {side, side, 1}, slope,
                        [&](auto& p) {
                          const double dx = p[at + 1] - p[at], dy = p[at + side] - p[at];  // of x + 10 y, turned
                          const double turns = (std::atan2(dx, dy) - std::atan2(1, 10)) / (2 * std::acos(-1.0));
                          return turns;
                        }),
                -0.1, 0.1);
}

TEST(Augment, ZoomWithOneFactorKeepsProportions) {
  const auto augmenter = Make("augmentation { random_zoom { height_factor: 0.4 } }", {9, 9, 1});
  std::vector<float> slope;
  for (int i = 0; i < 81; ++i) slope.push_back(static_cast<float>(i % 9 + 10 * (i / 9)));
  for (int i = 0; i < 50; ++i) {
    std::vector<float> p = slope;
    augmenter->Apply(0, i, p.data());
    EXPECT_NEAR(p[49] - p[40], 10 * (p[41] - p[40]), 1e-3);
  }
}

TEST(Augment, CropTakesEveryPlaceAsOften) {
  // 5x4 different numbers; parts of 3x2 with padding 1: 5 places down, 5 across.
  std::vector<float> in(20);
  std::iota(in.begin(), in.end(), 1.0f);
  const auto augmenter = Make("augmentation { random_crop { height: 3 width: 2 padding: 1 } }", {5, 4, 1});
  std::map<std::vector<float>, int> counts;
  for (int i = 0; i < 5000; ++i) {
    std::vector<float> p = in;
    augmenter->Apply(0, i, p.data());
    ++counts[p];
  }
  EXPECT_EQ(counts.size(), 25u);
  for (const auto& [picture, count] : counts) EXPECT_NEAR(count, 200, 75);
  // The whole picture: nothing happens.
  std::vector<float> p = in;
  Make("augmentation { random_crop { height: 5 width: 4 } }", {5, 4, 1})->Apply(0, 3, p.data());
  EXPECT_EQ(p, in);
}

TEST(Augment, CutoutFillsASquareAnywhere) {
  const auto augmenter = Make("augmentation { cutout { size: 4 fill_value: 9 } }", {10, 10, 2});
  std::vector<double> filled(100, 0);
  for (int i = 0; i < 4000; ++i) {
    std::vector<float> p(200, 0);
    augmenter->Apply(0, i, p.data());
    int count = 0;
    for (int j = 0; j < 100; ++j) {
      EXPECT_EQ(p[2 * j], p[2 * j + 1]);
      EXPECT_TRUE(p[2 * j] == 0 || p[2 * j] == 9);
      count += p[2 * j] == 9;
      filled[j] += p[2 * j] == 9;
    }
    EXPECT_LE(count, 16);
    EXPECT_GE(count, 4) << "a quarter at least: its middle is a pixel";
  }
  EXPECT_NEAR(filled[55], 4000 * 0.16, 130) << "16 of 100 places cover a pixel in the middle";
  EXPECT_NEAR(filled[0], 4000 * 0.09, 100) << "9 of 100 the corner";
}

// ---- a pure function ----

const char kAll[] = R"(
  augmentation { random_flip {} } augmentation { random_rotation { factor: 0.1 } }
  augmentation { random_zoom { height_factor: [-0.3, 0.2] width_factor: 0.1 fill_mode: NEAREST_PIXEL } }
  augmentation { random_translation { height_factor: 0.1 width_factor: 0.2 fill_mode: WRAP } }
  augmentation { random_crop { height: 12 width: 12 padding: 2 } } augmentation { random_brightness { factor: 0.2 } }
  augmentation { random_contrast { factor: 0.3 } } augmentation { cutout { size: 5 fill_value: 128 } })";

std::vector<float> Augmented(const Augmenter& augmenter, uint64_t pass, uint64_t example) {
  std::vector<float> picture = Picture({16, 14, 3});
  augmenter.Apply(pass, example, picture.data());
  return picture;
}

TEST(Augment, IsAPureFunctionOfSeedPassAndExample) {
  const auto augmenter = Make(kAll, {16, 14, 3}), same = Make(kAll, {16, 14, 3}), other = Make(kAll, {16, 14, 3}, 2);
  const std::vector<float> first = Augmented(*augmenter, 3, 41);
  for (int i = 0; i < 30; ++i) (void)Augmented(*augmenter, 9, i);  // whatever was computed before
  EXPECT_EQ(Augmented(*augmenter, 3, 41), first);
  EXPECT_EQ(Augmented(*same, 3, 41), first);
  EXPECT_NE(Augmented(*augmenter, 4, 41), first);
  EXPECT_NE(Augmented(*augmenter, 3, 42), first);
  EXPECT_NE(Augmented(*augmenter, 3, 41 + (uint64_t{1} << 32)), first);
  EXPECT_NE(Augmented(*other, 3, 41), first);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        if (i % 4 != t) (void)Augmented(*augmenter, 1, i);
        EXPECT_EQ(Augmented(*augmenter, 3, 41), first);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Augment, AStepAtTheEndDoesNotChangeThoseBeforeIt) {
  const auto flip = Make("augmentation { random_flip {} }", {16, 14, 3});
  const auto both =
      Make("augmentation { random_flip {} } augmentation { random_crop { height: 16 width: 14 } }", {16, 14, 3});
  for (int i = 0; i < 40; ++i) EXPECT_EQ(Augmented(*flip, 0, i), Augmented(*both, 0, i));
}

// The bits of a job's data are part of its promise: they are the same on every processor and in every later version.
TEST(Augment, BitsStayWhatTheyAre) {
  const auto augmenter = Make(kAll, {16, 14, 3}, 12345);
  Digest digest;
  for (int i = 0; i < 100; ++i) {
    const std::vector<float> picture = Augmented(*augmenter, 2, i);
    digest.Add(picture.data(), picture.size() * sizeof(float));
  }
  EXPECT_EQ(digest.Hex(), "e7a442c1bf7a174431cade83eaa2238c");
}

TEST(Augment, NothingToDoIsNull) { EXPECT_EQ(Make("", {4}), nullptr); }

}  // namespace
}  // namespace cairn
