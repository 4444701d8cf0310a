// Goal: scopes are the model's trainable variables, or all of them together; factors are Keras'; the clipped gradient
// has the same bits for every cut of the parameter space, and the norm that was asked for.
#include "common/model/clip_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "common/base/limits.h"
#include "tests/unit/model/model_text.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

Graph Model() {
  return Graph::Build(FromText<v1::Model>(R"(
    layers { input { shape: [6, 6, 1] } } layers { conv2d { filters: 5 kernel_size: 3 } } layers { batch_normalization {} }
    layers { flatten {} } layers { dense { units: 7 } })"))
      .value();
}

v1::Optimizer Optimizer(const std::string& text) { return FromText<v1::Optimizer>("sgd {} " + text); }

TEST(ClipScopes, OfVariablesAndOfAllOfThem) {
  const Graph graph = Model();
  EXPECT_TRUE(ClipScopesOf(graph, Optimizer(""), 0, graph.space_size()).empty());
  EXPECT_TRUE(ClipScopesOf(graph, Optimizer("clipvalue: 1"), 0, graph.space_size()).empty());

  const auto each = ClipScopesOf(graph, Optimizer("clipnorm: 1"), 0, graph.space_size());
  ASSERT_EQ(each.size(), 6u);  // kernel, bias, gamma, beta, kernel, bias: no moving statistics
  for (const ClipScope& scope : each) EXPECT_TRUE(scope.whole());
  EXPECT_EQ(each[0].total, 45u);
  EXPECT_EQ(each[1].id, 1u);
  EXPECT_EQ(each[4].total, 7u * 80);

  const auto all = ClipScopesOf(graph, Optimizer("global_clipnorm: 1"), 0, graph.space_size());
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all[0].whole());
  EXPECT_EQ(all[0].total, static_cast<uint64_t>(graph.trainable_parameters()));
  EXPECT_EQ(all[0].ranges.size(), 6u);

  const auto cut = ClipScopesOf(graph, Optimizer("clipnorm: 1"), 16, 160);
  ASSERT_GE(cut.size(), 3u);
  EXPECT_FALSE(cut[0].whole());
  EXPECT_EQ(cut[0].numbers, 29u);
  EXPECT_EQ(cut[0].ranges[0], (std::pair<int64_t, int64_t>(0, 29)));
}

TEST(ClipFactor, AsKeras) {
  const auto factor = [](double clip, std::vector<float> numbers) {
    SquareSum sum;
    sum.Add(numbers, 1);
    return ClipFactor(clip, sum);
  };
  EXPECT_EQ(factor(1, {3, 4}), 0.2);
  EXPECT_EQ(factor(5, {3, 4}), 1);
  EXPECT_EQ(factor(7, {3, 4}), 1);
  EXPECT_EQ(factor(1, {0, 0}), 1);
  EXPECT_TRUE(std::isnan(factor(1, {0, NAN})));
  EXPECT_TRUE(std::isnan(factor(1, {0, INFINITY})));
}

// As partitions and a worker do it.
std::vector<float> Clipped(const Graph& graph, const v1::Optimizer& optimizer, std::vector<float> gradient,
                           uint64_t examples, const std::vector<int64_t>& cuts) {
  const double clip = ClipNormOf(optimizer);
  NormBook book;
  std::vector<std::vector<ClipScope>> scopes;
  for (size_t p = 0; p + 1 < cuts.size(); ++p) {
    scopes.push_back(ClipScopesOf(graph, optimizer, cuts[p], cuts[p + 1]));
    const auto part = absl::MakeConstSpan(gradient).subspan(cuts[p], cuts[p + 1] - cuts[p]);
    std::vector<NormRecord> records;
    for (const ClipScope& scope : scopes.back()) records.push_back(MeasureNorm(scope, part, examples));
    if (records.empty()) continue;
    book.Set(static_cast<uint32_t>(p), DecodeNorms(EncodeNorms(records)).value());
  }
  for (uint32_t p = 0; p + 1 < cuts.size(); ++p) {
    if (!book.Has(p)) continue;
    const std::vector<double> factors = book.FactorsFor(p, clip).value();
    const auto back = DecodeFactors(EncodeFactors(factors), factors.size()).value();
    const auto part = absl::MakeSpan(gradient).subspan(cuts[p], cuts[p + 1] - cuts[p]);
    for (size_t i = 0; i < scopes[p].size(); ++i) ScaleGradient(scopes[p][i], back[i], part);
  }
  return gradient;
}

TEST(ClipNorm, TheSameBitsForEveryCut) {
  const uint32_t seed = TestSeed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  const Graph graph = Model();
  for (const char* text : {"clipnorm: 0.3", "global_clipnorm: 0.4"}) {
    SCOPED_TRACE(text);
    const v1::Optimizer optimizer = Optimizer(text);
    std::vector<float> gradient(graph.space_size(), 0.0f);
    for (const Variable& v : graph.variables()) {
      for (int64_t i = 0; i < v.size; ++i) gradient[v.offset + i] = 40 * normal(rng);
    }
    std::vector<float> whole = gradient;
    ClipByNorm(ClipScopesOf(graph, optimizer, 0, graph.space_size()), ClipNormOf(optimizer), 40, absl::MakeSpan(whole));
    double all = 0;
    for (const Variable& v : graph.variables()) {
      if (v.kind != VariableKind::kTrainable) {
        EXPECT_EQ(std::memcmp(&whole[v.offset], &gradient[v.offset], v.size * sizeof(float)), 0);
        continue;
      }
      double sum = 0;
      for (int64_t i = 0; i < v.size; ++i) sum += std::pow(whole[v.offset + i] / 40.0, 2);
      all += sum;
      if (optimizer.has_clipnorm()) {
        EXPECT_NEAR(std::sqrt(sum), 0.3, 1e-6) << v.name;
      }
    }
    if (optimizer.has_global_clipnorm()) {
      EXPECT_NEAR(std::sqrt(all), 0.4, 1e-6);
    }
    for (int round = 0; round < 30; ++round) {
      std::vector<int64_t> cuts = {0};
      while (cuts.back() < graph.space_size()) {
        cuts.push_back(
            std::min(graph.space_size(), cuts.back() + kSpaceAlignment * (1 + static_cast<int64_t>(rng() % 12))));
      }
      const std::vector<float> cut = Clipped(graph, optimizer, gradient, 40, cuts);
      ASSERT_EQ(std::memcmp(cut.data(), whole.data(), whole.size() * sizeof(float)), 0) << "round " << round;
    }
  }
}

TEST(ClipNorm, ANormThatIsNotFiniteMakesItsScopeNaN) {
  const Graph graph = Model();
  std::vector<float> gradient(graph.space_size(), 1.0f);
  gradient[0] = INFINITY;
  std::vector<float> by_variable = gradient, global = gradient;
  for (auto [text, out] : {std::pair("clipnorm: 1", &by_variable), std::pair("global_clipnorm: 1", &global)}) {
    ClipByNorm(ClipScopesOf(graph, Optimizer(text), 0, graph.space_size()), 1, 1, absl::MakeSpan(*out));
  }
  EXPECT_TRUE(std::isnan(by_variable[1]));
  EXPECT_TRUE(std::isfinite(by_variable[48]));
  EXPECT_TRUE(std::isnan(global[48]));
}

TEST(NormBook, WaitsForEveryShare) {
  using Known = std::vector<uint32_t>;
  NormBook book;
  SquareSum nine, sixteen;
  nine.Add(std::vector<float>{3}, 1);
  sixteen.Add(std::vector<float>{4}, 1);
  EXPECT_EQ(book.Set(2, {{5, 10, 16, nine}}), Known());
  EXPECT_EQ(book.FactorsFor(2, 1), std::nullopt);
  EXPECT_EQ(book.Set(3, {{6, 6, 6, nine}}), Known({3}));
  EXPECT_EQ(book.FactorsFor(2, 1), std::nullopt) << "another scope";
  EXPECT_EQ(book.FactorsFor(3, 1), std::vector<double>{1.0 / 3});
  EXPECT_EQ(book.Set(0, {{4, 1, 2, nine}, {5, 6, 16, sixteen}}), Known({2}));
  EXPECT_EQ(book.FactorsFor(2, 1), std::vector<double>{0.2});
  EXPECT_EQ(book.FactorsFor(0, 1), std::nullopt) << "one of its scopes lacks a share";
  // Set again with other numbers: they replace the earlier ones.
  EXPECT_EQ(book.Set(2, {{5, 10, 16, nine}}), Known({2}));
  EXPECT_EQ(book.FactorsFor(2, 1), std::vector<double>{0.2});
  EXPECT_EQ(book.Set(7, {{4, 1, 2, sixteen}}), Known({0, 7}));
  EXPECT_EQ(book.FactorsFor(0, 1), (std::vector<double>{0.2, 0.2}));
  EXPECT_EQ(book.HashOf(7), HashOfNorms(EncodeNorms({{{4, 1, 2, sixteen}}})));
  EXPECT_NE(book.HashOf(7), HashOfNorms(EncodeNorms({{{4, 1, 2, nine}}}))) << "of other gradients";
  book.Forget(0);
  EXPECT_FALSE(book.Has(0));
  EXPECT_EQ(book.FactorsFor(2, 1), std::nullopt);
  EXPECT_EQ(book.FactorsFor(7, 1), std::nullopt);
  EXPECT_EQ(book.Set(0, {{5, 6, 16, nine}}), Known({0, 2}));
  book.Clear();
  EXPECT_FALSE(book.Has(2));
  EXPECT_EQ(book.Set(2, {{5, 10, 16, nine}}), Known());
}

// If one partition decides, the others wait for the factor that it applied. The factor is kept, even when its records
// or theirs are gone.
TEST(NormBook, OneDecides) {
  using Known = std::vector<uint32_t>;
  using Factors = std::vector<double>;
  NormBook book;
  book.Clear(/*one_decides=*/true);
  SquareSum nine, sixteen;
  nine.Add(std::vector<float>{3}, 1);
  sixteen.Add(std::vector<float>{4}, 1);
  EXPECT_EQ(book.Set(2, {{5, 10, 16, nine}}), Known());
  EXPECT_EQ(book.Set(1, {{4, 8, 9, nine}, {5, 6, 16, sixteen}}), Known());
  EXPECT_EQ(book.FactorsFor(2, 1), std::nullopt) << "partition 1 decides of scope 5";
  EXPECT_EQ(book.FactorsFor(1, 1), std::nullopt) << "scope 4 lacks a share";
  EXPECT_EQ(book.Set(0, {{4, 1, 9, sixteen}}), Known({0}));
  EXPECT_EQ(book.FactorsFor(0, 1), Factors{0.2});
  EXPECT_EQ(book.FactorsFor(1, 1), std::nullopt) << "partition 0 decides of scope 4";
  EXPECT_EQ(book.Set(0, {{4, 1, 9, sixteen}}, Factors{0.5}), Known({0, 1}))
      << "applied, with other norms of partition 1";
  EXPECT_EQ(book.FactorsFor(1, 1), (Factors{0.5, 0.2}));
  EXPECT_EQ(book.Set(1, {{4, 8, 9, nine}, {5, 6, 16, sixteen}}, Factors{0.5, 0.25}), Known({0, 1, 2}));
  EXPECT_EQ(book.FactorsFor(2, 1), Factors{0.25});
  book.Forget(2);
  EXPECT_EQ(book.Set(2, {{5, 10, 16, sixteen}}), Known({1, 2})) << "measured anew";
  EXPECT_EQ(book.FactorsFor(2, 1), Factors{0.25});
  book.Clear(true);
  EXPECT_EQ(book.Set(2, {{5, 16, 16, nine}}), Known({2})) << "another step";
  EXPECT_EQ(book.FactorsFor(2, 1), Factors{1.0 / 3});
}

TEST(ClipNorm, FactorsAfterRecords) {
  for (size_t n : {1, 2, 3}) {
    const std::string records = EncodeNorms(std::vector<NormRecord>(n, {5, 10, 16, {}}));
    EXPECT_TRUE(AppliedFactors(records).value().empty());
    const std::vector<double> factors(n, 0.5);
    const std::string both = records + EncodeFactors(factors);
    EXPECT_EQ(AppliedFactors(both).value(), factors);
    EXPECT_EQ(DecodeNorms(both).value().size(), n);
  }
  const std::string record = EncodeNorms({{{5, 10, 16, {}}}});
  EXPECT_FALSE(AppliedFactors(record + EncodeFactors(std::vector<double>{2})).ok());
  EXPECT_FALSE(AppliedFactors(record + "1234567").ok());
  EXPECT_FALSE(AppliedFactors("").ok());
}

TEST(ClipNorm, BadBytes) {
  EXPECT_EQ(DecodeNorms("").status().message(), "scalars: 0 bytes are not records of norms");
  EXPECT_EQ(DecodeNorms(std::string(105, 'x')).status().message(), "scalars: 105 bytes are not records of norms");
  EXPECT_EQ(DecodeFactors("1234567", 1).status().message(), "scalars: 7 bytes, expected 1 factors of 8");
  EXPECT_EQ(DecodeFactors(EncodeFactors(std::vector<double>{1.5}), 1).status().message(),
            "scalars: factor 1.5 is outside [0, 1]");
  EXPECT_EQ(DecodeFactors(EncodeFactors(std::vector<double>{-1}), 1).status().message(),
            "scalars: factor -1 is outside [0, 1]");
  EXPECT_TRUE(std::isnan(DecodeFactors(EncodeFactors(std::vector<double>{NAN}), 1).value()[0]));
}

}  // namespace
}  // namespace cairn
