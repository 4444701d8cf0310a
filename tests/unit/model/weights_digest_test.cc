// Goal: the digest of variables depends on their names and numbers alone: not on padding, nor on the pieces in which
// they come. Which jobs record digests, and after how many steps.
#include "common/model/weights_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/model/model_text.h"
#include "tests/unit/test_seed.h"

namespace cairn {
namespace {

constexpr char kModel[] = R"(
  layers { input { shape: 5 } }
  layers { name: "a" dense { units: 3 } } layers { batch_normalization { } } layers { name: "b" dense { units: 7 } }
)";

Graph GraphOf(const std::string& text) {
  absl::StatusOr<Graph> graph = Graph::Build(FromText<v1::Model>(text));
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

// Numbers of variables; `padding` between them.
std::vector<float> Values(const Graph& graph, float padding = 0) {
  std::vector<float> values(static_cast<size_t>(graph.space_size()), padding);
  for (const Variable& v : graph.variables()) {
    for (int64_t i = 0; i < v.size; ++i) values[static_cast<size_t>(v.offset + i)] = static_cast<float>(v.offset + i);
  }
  return values;
}

std::string DigestOf(const Graph& graph, const std::vector<float>& values, size_t piece) {
  WeightsDigest digest(graph);
  for (size_t at = 0; at < values.size(); at += piece)
    digest.Add(absl::MakeSpan(values).subspan(at, std::min(piece, values.size() - at)));
  EXPECT_EQ(digest.done(), graph.space_size());
  EXPECT_EQ(digest.not_finite(), "");
  return digest.Hex();
}

TEST(WeightsDigest, DependsOnNamesAndNumbersAlone) {
  const Graph graph = GraphOf(kModel);
  const std::vector<float> values = Values(graph);
  const std::string whole = DigestOf(graph, values, values.size());
  EXPECT_EQ(whole.size(), 32u);
  for (const size_t piece : {1, 3, 16, 17, 64}) EXPECT_EQ(DigestOf(graph, values, piece), whole) << piece;
  EXPECT_EQ(DigestOf(graph, Values(graph, 5), 16), whole) << "padding";
  std::mt19937 random(TestSeed());
  for (int i = 0; i < 20; ++i) {
    const Variable& v = graph.variables()[random() % graph.variables().size()];
    std::vector<float> other = values;
    other[static_cast<size_t>(v.offset) + random() % static_cast<size_t>(v.size)] += 1;
    EXPECT_NE(DigestOf(graph, other, 16), whole) << v.name << ", seed " << TestSeed();
  }
  std::string renamed = kModel;
  renamed.replace(renamed.find("\"b\""), 3, "\"c\"");
  const Graph other = GraphOf(renamed);
  ASSERT_EQ(other.space_size(), graph.space_size());
  EXPECT_NE(DigestOf(other, values, 16), whole);
}

TEST(WeightsDigest, NamesTheFirstVariableThatIsNotFinite) {
  const Graph graph = GraphOf(kModel);
  std::vector<float> values = Values(graph);
  const Variable& last = graph.variables().back();
  const Variable& before = graph.variables()[graph.variables().size() - 2];
  values[static_cast<size_t>(last.offset)] = std::numeric_limits<float>::quiet_NaN();
  values[static_cast<size_t>(before.offset + before.size - 1)] = std::numeric_limits<float>::infinity();
  for (const size_t piece : {size_t{1}, values.size()}) {
    WeightsDigest digest(graph);
    for (size_t at = 0; at < values.size(); at += piece) digest.Add(absl::MakeSpan(values).subspan(at, piece));
    EXPECT_EQ(digest.not_finite(), before.name);
  }
}

TEST(WeightsDigest, OfWhichSteps) {
  const struct {
    const char* spec;
    int64_t every;  // -1: it is refused
    const char* why = "";
  } cases[] = {
      {"", 100},
      {"digest_every_steps: 7", 7},
      {"digest_every_steps: 0", 0},
      {"digest_every_steps: -1", -1},
      {"strategy: MIRRORED", 100},
      {"strategy: CENTRAL_STORAGE", 0},
      {"strategy: CENTRAL_STORAGE digest_every_steps: 7", -1},
      {"strategy: CENTRAL_STORAGE digest_every_steps: 0", 0},
      {"strategy: PARAMETER_SERVER", 0},
      {"strategy: PARAMETER_SERVER digest_every_steps: 7", -1},
      {"strategy: PARAMETER_SERVER staleness_bound: 0", 100},
      {"strategy: PARAMETER_SERVER staleness_bound: 1", 0},
      {"replicas: 4 backup_replicas: 1", 0},
      {"replicas: 4 backup_replicas: 1 digest_every_steps: 7", -1},
      {"model { external { } }", 0},
      {"model { external { } } digest_every_steps: 0", 0},
      {"model { external { } } digest_every_steps: 7", -1, "with model.external"},
      {"deterministic: true", 100},
      {"deterministic: false", 0},
      {"deterministic: false digest_every_steps: 7", -1, "with deterministic: false"},
  };
  for (const auto& c : cases) {
    const v1::JobSpec spec = FromText<v1::JobSpec>(c.spec);
    const absl::Status status = CheckDigestEverySteps(spec);
    EXPECT_EQ(status.ok(), c.every >= 0) << c.spec;
    if (status.ok()) {
      EXPECT_EQ(DigestEverySteps(spec), c.every) << c.spec;
    } else {
      EXPECT_EQ(status.message().substr(0, 19), "digest_every_steps:") << c.spec;
      EXPECT_NE(status.message().find(c.why), std::string::npos) << status;
    }
  }
}

}  // namespace
}  // namespace cairn
