#include "common/data/layer_state.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/model/limits.h"
#include "common/model/text_tokens.h"
#include "common/model/vocabulary.h"

namespace cairn {
namespace {

// ---- vocabularies ----

// How often a token occurs, and in how many examples.
struct TokenCount {
  int64_t times = 0, examples = 0;
};

absl::StatusOr<std::vector<std::string>> TokensIn(const v1::TextVectorization& layer,
                                                  absl::Span<const TextOrNumber> values) {
  std::vector<absl::string_view> texts;
  for (const TextOrNumber& value : values) texts.push_back(value.text);
  return TokensOf(layer, texts);
}

absl::StatusOr<std::vector<std::string>> TokensIn(const v1::StringLookup&, absl::Span<const TextOrNumber> values) {
  std::vector<std::string> tokens;
  for (const TextOrNumber& value : values) tokens.emplace_back(value.text);
  return tokens;
}

absl::StatusOr<std::vector<int64_t>> TokensIn(const v1::IntegerLookup&, absl::Span<const TextOrNumber> values) {
  std::vector<int64_t> tokens;
  for (const TextOrNumber& value : values) {
    if (!(std::abs(value.number) <= kEmbeddingIdsMax && value.number == std::floor(value.number))) {
      return Bad(value.number, " is not a whole number within ", kEmbeddingIdsMax, "; correct the data");
    }
    tokens.push_back(static_cast<int64_t>(value.number));
  }
  return tokens;
}

template <typename Token, typename Layer>
class VocabularyState : public LayerState {
 public:
  // field: Layer's in v1::Layer.
  VocabularyState(const Layer& layer, Layer* (v1::Layer::*field)()) : layer_(layer), field_(field) {
    layer_.clear_vocabulary();
    layer_.clear_idf_weights();
  }

  absl::Status Take(absl::Span<const TextOrNumber> values) override {
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Token> tokens, TokensIn(layer_, values));
    ++examples_;
    for (const Token& token : tokens) {
      TokenCount& count = counts_[token];
      ++count.times;
      if (std::exchange(last_[token], examples_) != examples_) ++count.examples;
    }
    return absl::OkStatus();
  }

  absl::Status Finish(v1::Layer* layer) override {
    const VocabularyOptions<Token> options = VocabularyOf(layer_);
    if (options.mask_token.has_value()) counts_.erase(*options.mask_token);
    if (options.oov_token.has_value()) counts_.erase(*options.oov_token);
    std::vector<std::pair<Token, TokenCount>> found(counts_.begin(), counts_.end());
    if (found.empty()) return Bad("the data has no token");
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.second.times != b.second.times ? a.second.times > b.second.times : a.first > b.first;
    });
    found_ = found.size();
    const bool masks = options.mask_token.has_value() && options.mode == v1::INT;
    const int64_t front = options.num_oov_indices + (masks ? 1 : 0);
    const int64_t most = options.max_tokens.value_or(kEmbeddingIdsMax) - front;
    if (most < 1) return Bad("max_tokens ", *options.max_tokens, " leaves no room for a token; raise it");
    if (static_cast<int64_t>(found.size()) > most) found.resize(static_cast<size_t>(most));
    kept_ = found.size();
    Layer& to = *(layer->*field_)();
    to.clear_vocabulary();
    to.clear_idf_weights();
    for (const auto& [token, count] : found) {
      to.add_vocabulary(token);
      if (options.mode != v1::TF_IDF) continue;
      const double share = static_cast<double>(examples_) / static_cast<double>(1 + count.examples);
      to.add_idf_weights(static_cast<float>(std::log(1 + share)));
    }
    return absl::OkStatus();
  }

  std::string Description() const override { return absl::StrCat(kept_, " of ", found_, " tokens"); }

 private:
  Layer layer_;
  Layer* (v1::Layer::*const field_)();
  absl::flat_hash_map<Token, TokenCount> counts_;
  absl::flat_hash_map<Token, int64_t> last_;  // the last example with the token
  int64_t examples_ = 0;
  size_t found_ = 0, kept_ = 0;
};

// ---- Discretization ----

// A summary: values that rise, each with the weight of those that it stands for.
struct Summary {
  std::vector<float> values, weights;
};

// numpy.interp: xp rises.
double Interpolate(double x, const std::vector<float>& xp, const std::vector<float>& fp) {
  const size_t last = xp.size() - 1;
  if (x < xp[0]) return fp[0];
  if (x >= xp[last]) return fp[last];
  const size_t j =
      static_cast<size_t>(std::upper_bound(xp.begin(), xp.end(), x, [](double value, float at) { return value < at; }) -
                          xp.begin()) -
      1;
  if (x == xp[j]) return fp[j];
  const double slope = (double{fp[j + 1]} - double{fp[j]}) / (double{xp[j + 1]} - double{xp[j]});
  return slope * (x - double{xp[j]}) + double{fp[j]};
}

// Keras' compress_summary, whose cumulative weights are float32.
Summary Compress(const Summary& summary, double epsilon) {
  if (static_cast<double>(summary.values.size()) * epsilon < 1) return summary;
  std::vector<float> sums, shares;
  float sum = 0;
  for (const float weight : summary.weights) sums.push_back(sum += weight);
  for (const float each : sums) shares.push_back(each / sums.back());
  Summary compressed;
  double before = 0;
  const auto count = static_cast<int64_t>(std::ceil(1.0 / epsilon));
  for (int64_t i = 0; i < count; ++i) {
    const double percent = epsilon + static_cast<double>(i) * epsilon;
    compressed.values.push_back(static_cast<float>(Interpolate(percent, shares, summary.values)));
    const double until = Interpolate(percent, shares, sums);
    compressed.weights.push_back(static_cast<float>(until - before));
    before = until;
  }
  return compressed;
}

class Bins : public LayerState {
 public:
  explicit Bins(const v1::Discretization& layer)
      : epsilon_(layer.epsilon() == 0 ? kEpsilonOfKeras : ShortestOf(layer.epsilon())), bins_(layer.num_bins()) {}

  absl::Status Take(absl::Span<const TextOrNumber> values) override {
    for (const TextOrNumber& value : values) values_.push_back(static_cast<float>(value.number));
    return absl::OkStatus();
  }

  absl::Status Finish(v1::Layer* layer) override {
    if (values_.empty()) return Bad("the data has no number");
    count_ = values_.size();
    const std::vector<float> boundaries = QuantileBoundaries(std::move(values_), epsilon_, bins_);
    if (boundaries.empty()) return Bad("num_bins ", bins_, " of ", count_, " numbers are one bin; use more bins");
    v1::Discretization& to = *layer->mutable_discretization();
    to.clear_bin_boundaries();
    for (const float boundary : boundaries) to.add_bin_boundaries(boundary);
    if (to.bin_boundaries_size() + 1 != bins_) to.clear_num_bins();
    bins_ = to.bin_boundaries_size() + 1;
    return absl::OkStatus();
  }

  std::string Description() const override { return absl::StrCat(bins_, " bins of ", count_, " numbers"); }

 private:
  static constexpr double kEpsilonOfKeras = 0.01;
  // 0.02f is 0.0199999996; Keras computes with 0.02.
  static double ShortestOf(float number) {
    double shortest = 0;
    return absl::SimpleAtod(absl::StrCat(number), &shortest) ? shortest : double{number};
  }

  const double epsilon_;
  int bins_;
  std::vector<float> values_;
  size_t count_ = 0;
};

// ---- Normalization ----

class Moments : public LayerState {
 public:
  // shape: of an example's numbers. Those of one place in the axes share a mean.
  Moments(const v1::Normalization& layer, const Shape& shape) : shape_(shape) {
    std::set<size_t> kept;
    for (const int32_t axis : layer.axis()) kept.insert(static_cast<size_t>(axis - 1));
    int64_t group = 1;
    std::vector<int64_t> strides(shape.size(), 0);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (!kept.contains(axis)) continue;
      strides[axis] = group;
      group *= shape[axis];
    }
    for (int64_t i = 0; i < NumElements(shape); ++i) {
      int64_t rest = i, of = 0;
      for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) of += rest % shape[axis] * strides[axis];
      groups_.push_back(static_cast<size_t>(of));
    }
    count_.resize(static_cast<size_t>(group));
    mean_.resize(count_.size());
    squares_.resize(count_.size());
  }

  // Welford 1962.
  absl::Status Take(absl::Span<const TextOrNumber> values) override {
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t g = groups_[i];
      if (!std::isfinite(values[i].number)) return Bad(values[i].number, " is not finite; correct the data");
      const double away = values[i].number - mean_[g];
      mean_[g] += away / ++count_[g];
      squares_[g] += away * (values[i].number - mean_[g]);
    }
    return absl::OkStatus();
  }

  absl::Status Finish(v1::Layer* layer) override {
    v1::Normalization& to = *layer->mutable_normalization();
    to.clear_mean();
    to.clear_variance();
    for (size_t g = 0; g < count_.size(); ++g) {
      if (count_[g] == 0) return Bad("the data has no number");
      to.add_mean(static_cast<float>(mean_[g]));
      to.add_variance(static_cast<float>(squares_[g] / count_[g]));
    }
    return absl::OkStatus();
  }

  std::string Description() const override {
    return absl::StrCat(count_.size(), count_.size() == 1 ? " mean" : " means", " of ", count_[0], " numbers",
                        count_.size() == 1 ? "" : " each");
  }

 private:
  const Shape shape_;
  std::vector<size_t> groups_;  // of each number of an example
  std::vector<double> count_, mean_, squares_;
};

}  // namespace

std::vector<float> QuantileBoundaries(std::vector<float> values, double epsilon, int num_bins) {
  std::sort(values.begin(), values.end());
  const double increment = static_cast<double>(values.size()) / (1.0 / epsilon);
  const double step = std::max(increment, 1.0);
  Summary summary;
  for (auto i = static_cast<size_t>(increment); i < values.size(); i += static_cast<size_t>(step)) {
    summary.values.push_back(values[i]);
    summary.weights.push_back(static_cast<float>(step));
  }
  std::vector<float> boundaries = Compress(Compress(summary, epsilon), 1.0 / num_bins).values;
  if (!boundaries.empty()) boundaries.pop_back();
  return boundaries;
}

std::unique_ptr<LayerState> MakeLayerState(const Node& node, const Shape& shape) {
  const v1::Layer& layer = node.layer;
  switch (layer.kind_case()) {
    case v1::Layer::kStringLookup:
      return std::make_unique<VocabularyState<std::string, v1::StringLookup>>(layer.string_lookup(),
                                                                              &v1::Layer::mutable_string_lookup);
    case v1::Layer::kTextVectorization:
      return std::make_unique<VocabularyState<std::string, v1::TextVectorization>>(
          layer.text_vectorization(), &v1::Layer::mutable_text_vectorization);
    case v1::Layer::kIntegerLookup:
      return std::make_unique<VocabularyState<int64_t, v1::IntegerLookup>>(layer.integer_lookup(),
                                                                           &v1::Layer::mutable_integer_lookup);
    case v1::Layer::kDiscretization: return std::make_unique<Bins>(layer.discretization());
    default: return std::make_unique<Moments>(layer.normalization(), shape);
  }
}

}  // namespace cairn
