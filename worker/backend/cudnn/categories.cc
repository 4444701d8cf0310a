// Discretization, CategoryEncoding, Hashing, HashedCrossing, IntegerLookup (common/model/category_function.h), and the
// check of ids that a model computes for an Embedding.
#include "worker/backend/cudnn/kernels/categories.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/model/category_function.h"
#include "common/model/vocabulary.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/kernels/tensors.h"
#include "worker/backend/cudnn/launches.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/embedding.h"

namespace cairn::cudnn {
namespace {

static_assert(kNoCategory == kernels::kSkipped);

// Constants of any type, as their bits.
template <typename T>
Ref ConstantOf(Builder& b, const std::vector<T>& numbers) {
  std::vector<float> bits(numbers.size() * sizeof(T) / sizeof(float));
  std::memcpy(bits.data(), numbers.data(), numbers.size() * sizeof(T));
  return b.Constant(bits);
}

// What a rule reads besides the numbers.
struct Rule {
  kernels::CategoryIndices fixed;
  Ref x, entries, token_indices;

  kernels::CategoryIndices At(const Run& r) const {
    kernels::CategoryIndices c = fixed;
    c.x = r.At<float>(x);
    if (c.rule == kernels::CategoryRule::kBuckets) c.entries.boundaries = r.At<double>(entries);
    if (c.rule == kernels::CategoryRule::kLookedUp) c.entries.tokens = r.At<int64_t>(entries);
    c.entries.indices = r.At<int32_t>(token_indices);
    return c;
  }
};

void SetHashing(const v1::Hashing& layer, kernels::CategoryIndices* c) {
  c->rule = kernels::CategoryRule::kHashed;
  c->bins = layer.num_bins();
  c->has_mask = layer.has_mask_value() && c->bins > 1 && absl::SimpleAtoi(layer.mask_value(), &c->mask);
  c->salted = layer.salt_size() > 0;
  if (!c->salted) return;
  c->salt[0] = layer.salt(0);
  c->salt[1] = layer.salt(layer.salt_size() - 1);
}

void SetLookup(Builder& b, const v1::IntegerLookup& layer, Rule* rule) {
  const Vocabulary<int64_t> vocabulary =
      Vocabulary<int64_t>::Make(VocabularyOf(layer)).value();  // the graph checked it
  kernels::CategoryIndices& c = rule->fixed;
  c.rule = kernels::CategoryRule::kLookedUp;
  c.has_mask = vocabulary.mask_token().has_value();
  c.mask = vocabulary.mask_token().value_or(0);
  c.mask_index = vocabulary.code().mode == v1::INT ? 0 : kernels::kSkipped;
  c.unknown_begin = vocabulary.oov_begin();
  c.unknown = vocabulary.num_oov_indices();
  std::vector<std::pair<int64_t, int32_t>> sorted;
  for (const int64_t token : vocabulary.tokens()) {
    sorted.emplace_back(token, static_cast<int32_t>(c.unknown_begin + c.unknown + static_cast<int64_t>(sorted.size())));
  }
  std::sort(sorted.begin(), sorted.end());
  c.entries.count = static_cast<int64_t>(sorted.size());
  std::vector<int64_t> tokens;
  std::vector<int32_t> indices;
  for (const auto& [token, index] : sorted) tokens.push_back(token), indices.push_back(index);
  rule->entries = ConstantOf(b, tokens);
  rule->token_indices = ConstantOf(b, indices);
}

// Without the numbers.
Rule RuleOf(Builder& b, const v1::Layer& layer) {
  Rule rule;
  kernels::CategoryIndices& c = rule.fixed;
  switch (layer.kind_case()) {
    case v1::Layer::kDiscretization: {
      const auto& boundaries = layer.discretization().bin_boundaries();
      c.entries.count = boundaries.size();
      rule.entries = ConstantOf(b, std::vector<double>(boundaries.begin(), boundaries.end()));
      break;
    }
    case v1::Layer::kCategoryEncoding:
      c.rule = kernels::CategoryRule::kGiven;
      c.bins = layer.category_encoding().num_tokens();
      break;
    case v1::Layer::kHashing: SetHashing(layer.hashing(), &c); break;
    case v1::Layer::kHashedCrossing:
      c.rule = kernels::CategoryRule::kCrossed;
      c.bins = layer.hashed_crossing().num_bins();
      break;
    default: SetLookup(b, layer.integer_lookup(), &rule);
  }
  return rule;
}

// Emits the index of each number. refusal: the error of the numbers of an index in an example of the batch.
using Refusal = std::function<absl::Status(int64_t example, const double* numbers)>;
Ref EmitIndices(Builder& b, const Rule& rule, const Refusal& refusal) {
  const Ref indices = b.New(rule.fixed.numbers * static_cast<int64_t>(sizeof(int32_t)));
  b.Emit("categories", {rule.x, rule.entries, rule.token_indices}, {indices},
         [=](const Run& r) { return kernels::IndexCategories(r.stream(), rule.At(r), r.At<int32_t>(indices)); });
  if (rule.fixed.rule == kernels::CategoryRule::kBuckets) return indices;  // it takes all numbers
  const int64_t each = rule.fixed.numbers / BatchExamples(b);
  const Ref record = b.AddCheck(1 + rule.fixed.inputs, [=](const double* numbers) {
    if (numbers[0] == 0) return absl::OkStatus();
    return refusal((static_cast<int64_t>(numbers[0]) - 1) / each, numbers + 1);
  });
  b.Emit("first refused", {rule.x, indices}, {record}, [=](const Run& r) {
    return kernels::RecordRefused(r.stream(), rule.At(r), r.At<int32_t>(indices), r.At<double>(record));
  });
  return indices;
}

kernels::CategoryMode ModeOf(v1::EncodingMode mode) {
  switch (mode) {
    case v1::ONE_HOT: return kernels::CategoryMode::kOneHot;
    case v1::MULTI_HOT: return kernels::CategoryMode::kMultiHot;
    case v1::COUNT:
    case v1::TF_IDF: return kernels::CategoryMode::kCount;
    default: return kernels::CategoryMode::kInt;
  }
}

// Float32, the inputs of a place side by side.
Ref NumbersOf(Builder& b, const Node& node) {
  const auto inputs = static_cast<int64_t>(node.inputs.size());
  const int64_t numbers = b.In(node)->numbers;
  if (inputs == 1) return b.Read(*b.In(node), DType::kFloat32);
  const Ref all = b.NewNumbers(numbers * inputs, DType::kFloat32);
  for (int64_t k = 0; k < inputs; ++k) {
    const Ref x = b.Read(*b.In(node, static_cast<size_t>(k)), DType::kFloat32);
    b.Emit(absl::StrCat("column to ", k), {x}, {all}, [=](const Run& r) {
      return kernels::CopyColumns(r.stream(), numbers, 1, r.At<>(x), 1, 0, r.At<>(all), inputs, k, DType::kFloat32,
                                  false);
    });
  }
  return all;
}

void LowerCategories(Builder& b, const Node& node) {
  Value* const out = b.Out(node);
  const DType t = out->type;
  Rule rule = RuleOf(b, node.layer);
  rule.x = NumbersOf(b, node);
  rule.fixed.inputs = static_cast<int64_t>(node.inputs.size());
  rule.fixed.numbers = b.In(node)->numbers;
  const auto function = std::make_shared<CategoryFunction>(b.graph(), node);
  const Ref indices = EmitIndices(b, rule, [function, inputs = node.inputs.size()](int64_t example, const double* x) {
    return function->Refusal(example, {x, inputs});
  });
  const CategoryCode code = CategoryCodeOf(node.layer);
  const Ref weights = code.mode == v1::TF_IDF ? b.Constant(code.weights) : Ref{}, y = b.NewLike(*out);
  kernels::CategoryRows rows;
  rows.mode = ModeOf(code.mode);
  rows.rows = b.examples();
  rows.size = rule.fixed.numbers / rows.rows;
  rows.depth = code.depth;
  out->data = y;
  b.Emit(absl::StrCat("encode ", code.depth), {indices, weights}, {y}, [=](const Run& r) {
    kernels::CategoryRows with = rows;
    with.weights = r.At<float>(weights);
    return kernels::EncodeCategories(r.stream(), with, r.At<int32_t>(indices), r.At<>(y), t);
  });
  b.Backward([=, &b, &node] {  // categories have no gradient
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      Value* const in = b.In(node, k);
      if (!in->needs_gradient) continue;
      const Builder::Sink dx = b.GradientSink(in);
      if (dx.add) continue;
      b.Emit("zeros", {}, {dx.ref}, [=, n = in->numbers, type = in->type](const Run& r) {
        return kernels::Fill(r.stream(), n, 0, r.At<>(dx.ref), type);
      });
    }
  });
}

constexpr Layer kLayers[] = {
    {LayerKind::kDiscretization, LowerCategories}, {LayerKind::kCategoryEncoding, LowerCategories},
    {LayerKind::kHashing, LowerCategories},        {LayerKind::kHashedCrossing, LowerCategories},
    {LayerKind::kIntegerLookup, LowerCategories},
};

}  // namespace

absl::Span<const Layer> CategoryLayers() { return kLayers; }

Ref CheckedIds(Builder& b, const Node& node) {
  Rule rule;
  rule.x = b.Read(*b.In(node), DType::kFloat32);
  rule.fixed.rule = kernels::CategoryRule::kGiven;
  rule.fixed.bins = node.layer.embedding().input_dim();
  rule.fixed.numbers = b.In(node)->numbers;
  const Ref indices = EmitIndices(b, rule, [node](int64_t example, const double* x) {
    return BadEmbeddingId(node, example, static_cast<float>(x[0]));
  });
  const kernels::CategoryRows rows{kernels::CategoryMode::kInt, 1, rule.fixed.numbers};
  const Ref ids = b.NewNumbers(rule.fixed.numbers, DType::kFloat32);
  b.Emit("ids", {indices}, {ids}, [=](const Run& r) {
    return kernels::EncodeCategories(r.stream(), rows, r.At<int32_t>(indices), r.At<>(ids), DType::kFloat32);
  });
  return ids;
}

}  // namespace cairn::cudnn
