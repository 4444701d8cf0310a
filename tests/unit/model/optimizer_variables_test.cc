// Goal: what an optimizer keeps of a variable has Keras' names and shapes, lies within the variable's numbers and
// overlaps nothing; which variables are updated as a whole.
#include "common/model/optimizer_variables.h"

#include <gtest/gtest.h>

#include "common/model/optimizer_slots.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

Variable Named(const std::string& name, const Shape& shape) {
  Variable v;
  v.name = name;
  v.shape = shape;
  v.size = NumElements(shape);
  return v;
}

std::string Text(const std::vector<SlotTensor>& tensors) {
  std::string text;
  for (const SlotTensor& t : tensors) {
    text += t.name + " " + std::to_string(t.slot) + "+" + std::to_string(t.offset) + " " + ToString(t.shape) + "; ";
  }
  return text;
}

TEST(SlotTensors, HaveKerasShapes) {
  const auto of = [](const std::string& optimizer, const Shape& shape) {
    return Text(SlotTensorsOf(FromText<v1::Optimizer>(optimizer), Named("v", shape)));
  };
  EXPECT_EQ(of("lamb {}", {4, 3}), "momentum 0+0 [4,3]; velocity 1+0 [4,3]; ");
  EXPECT_EQ(of("adafactor {}", {4, 3}), "r 0+0 [4]; c 0+4 [3]; ");
  EXPECT_EQ(of("adafactor {}", {5, 2, 4, 3}), "r 0+0 [5,2,4]; c 0+40 [5,2,3]; ");
  EXPECT_EQ(of("adafactor {}", {7}), "velocity 0+0 [7]; ");
  EXPECT_EQ(of("adafactor {}", {7, 1}), "r 0+0 [7]; ");
  EXPECT_EQ(of("adafactor {}", {1, 7}), "c 0+0 [7]; ");
  EXPECT_EQ(of("adafactor {}", {1, 1}), "c 0+0 [1]; ");
  EXPECT_EQ(of("adafactor {} ema {}", {2, 2}), "r 0+0 [2]; c 0+2 [2]; ema 1+0 [2,2]; ");
}

TEST(SlotTensors, FitIntoTheVariable) {
  const v1::Optimizer adafactor = FromText<v1::Optimizer>("adafactor {}");
  for (const int64_t count : {1, 3}) {
    for (int64_t rows = 1; rows < 5; ++rows) {
      for (int64_t columns = 1; columns < 5; ++columns) {
        const Variable v = Named("v", {count, rows, columns});
        int64_t end = 0;
        for (const SlotTensor& t : SlotTensorsOf(adafactor, v)) {
          EXPECT_EQ(t.offset, end);
          end += NumElements(t.shape);
        }
        EXPECT_LE(end, v.size) << ToString(v.shape);
      }
    }
  }
}

TEST(UpdatedAsAWhole, DependsOnTheOptimizer) {
  v1::Optimizer muon = FromText<v1::Optimizer>("muon { exclude_embeddings: true exclude_layers: 'head' }");
  const v1::Optimizer lamb = FromText<v1::Optimizer>("lamb {}"), adam = FromText<v1::Optimizer>("adam {}");
  const Variable matrix = Named("dense/kernel", {4, 3}), vector = Named("dense/bias", {3});
  const Variable head = Named("head/kernel", {4, 3}), ids = Named("token_Embedding/embeddings", {9, 3});
  Variable frozen = matrix;
  frozen.kind = VariableKind::kFrozen;
  EXPECT_TRUE(UpdatedAsAWhole(lamb, matrix));
  EXPECT_TRUE(UpdatedAsAWhole(lamb, vector));
  EXPECT_FALSE(UpdatedAsAWhole(lamb, frozen));
  EXPECT_FALSE(UpdatedAsAWhole(adam, matrix));
  EXPECT_TRUE(UpdatedAsAWhole(muon, matrix));
  EXPECT_FALSE(UpdatedAsAWhole(muon, vector));
  EXPECT_FALSE(UpdatedAsAWhole(muon, head));
  EXPECT_FALSE(UpdatedAsAWhole(muon, ids));
  EXPECT_FALSE(UpdatedAsAWhole(muon, Named("conv2d/kernel", {3, 3, 4, 3})));
  muon.mutable_muon()->set_exclude_embeddings(false);
  EXPECT_TRUE(UpdatedAsAWhole(muon, ids));
}

// As Python's re.search finds them, or refused.
TEST(NamePattern, IsFoundAsByKeras) {
  struct Case {
    const char *pattern, *name;
    bool found;
  };
  for (const Case& c : std::vector<Case>{{"head", "my_head/kernel", true},
                                         {"head", "dense/kernel", false},
                                         {"^head", "my_head/kernel", false},
                                         {"kernel$", "dense/kernel", true},
                                         {"kernel$", "dense/kernel_2", false},
                                         {"dense_(1|3)/", "dense_3/kernel", true},
                                         {"dense_(1|3)/", "dense_13/kernel", false},
                                         {"(?i)HEAD", "head/bias", true},
                                         {"block_\\d{2}\\b", "block_12/kernel", true},
                                         {"block_\\d{2}\\b", "block_123/kernel", false},
                                         {"layer.0", "layer/0", true},
                                         {"layer\\.0", "layer/0", false},
                                         {"[^a-c]x", "ax", false},
                                         {"a{2,}?b", "xaab", true}}) {
    const absl::StatusOr<NamePattern> pattern = NamePattern::Make(c.pattern);
    ASSERT_TRUE(pattern.ok()) << c.pattern << ": " << pattern.status();
    EXPECT_EQ(pattern->IsIn(c.name), c.found) << c.pattern << " in " << c.name;
  }
  for (const char* pattern : {"", "a(b", "[a", "*a", "(?=a)b", "(?<!a)b", "(a)\\1", "a{,3}", "[[:alpha:]]", "a{1001}",
                              "((a{100}){100}){100}", "a++", "\\Z"}) {
    EXPECT_FALSE(NamePattern::Make(pattern).ok()) << pattern;
  }
  EXPECT_FALSE(NamePattern::Make(std::string(257, 'a')).ok());
  EXPECT_TRUE(NamePattern::Make(std::string(256, 'a')).ok());
}

// One that makes a search by backtracking take longer than the universe.
TEST(NamePattern, NoExpressionTakesLong) {
  const std::string name(512, 'a');
  for (const char* text : {"(a+)+$b", "(a|aa)+c", "(a*)*b", "(.*a){20}b", "(a?){30}a{30}b"}) {
    const absl::StatusOr<NamePattern> pattern = NamePattern::Make(text);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    EXPECT_FALSE(pattern->IsIn(name)) << text;
    EXPECT_LT(pattern->size(), 2000) << text;
  }
}

TEST(WholeUpdates, LeaveOutWhatExpressionsName) {
  const v1::Optimizer muon = FromText<v1::Optimizer>("muon { exclude_layers: '^head' exclude_layers: 'block_(0|1)/' }");
  const WholeUpdates whole(muon);
  EXPECT_FALSE(whole.Of(Named("head/kernel", {4, 3})));
  EXPECT_TRUE(whole.Of(Named("my_head/kernel", {4, 3})));
  EXPECT_FALSE(whole.Of(Named("block_1/kernel", {4, 3})));
  EXPECT_TRUE(whole.Of(Named("block_2/kernel", {4, 3})));
  v1::Muon many;
  for (int i = 0; i < 65; ++i) many.add_exclude_layers("a");
  EXPECT_EQ(ExcludedLayersOf(many).status().message(),
            "optimizer.muon.exclude_layers: 65 expressions; at most 64 are read: join them with |");
  v1::Muon large;
  for (int i = 0; i < 8; ++i) large.add_exclude_layers("(abc|def){100}");
  EXPECT_EQ(ExcludedLayersOf(large).status().message(),
            "optimizer.muon.exclude_layers: their repetitions make them too large; give shorter ones");
}

}  // namespace
}  // namespace cairn
