#include "common/model/category_function.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/fingerprint.h"
#include "common/model/text_function.h"
#include "common/model/vocabulary.h"

namespace cairn {
namespace {

// Hashing converts numbers to int64 before it hashes them, as Keras does: truncated. nullopt: out of range.
std::optional<int64_t> Cut(double x) {
  if (!(std::abs(x) < 0x1p63)) return std::nullopt;
  return static_cast<int64_t>(x);
}

// The others take whole numbers alone, as in Keras.
std::optional<int64_t> Whole(double x) {
  const std::optional<int64_t> cut = Cut(x);
  return cut.has_value() && static_cast<double>(*cut) == x ? cut : std::nullopt;
}

std::string NoNumber(double x) { return absl::StrCat(x, " is not a number within 64 bits; correct the data"); }
std::string NotWhole(double x) { return absl::StrCat(x, " is not a whole number; correct the data"); }

// tf.searchsorted with side "right": boundaries[i - 1] <= x < boundaries[i]; NaN is beyond all boundaries.
class Bucket : public CategoryIndex {
 public:
  explicit Bucket(const v1::Discretization& layer)
      : boundaries_(layer.bin_boundaries().begin(), layer.bin_boundaries().end()) {}
  std::optional<int64_t> Of(absl::Span<const double> x) const override {
    return std::upper_bound(boundaries_.begin(), boundaries_.end(), x[0]) - boundaries_.begin();
  }
  std::string Refusal(absl::Span<const double>) const override { return ""; }

 private:
  const std::vector<double> boundaries_;
};

class Given : public CategoryIndex {
 public:
  explicit Given(int64_t tokens) : tokens_(tokens) {}
  std::optional<int64_t> Of(absl::Span<const double> x) const override {
    if (!(x[0] >= 0 && x[0] < static_cast<double>(tokens_) && x[0] == std::floor(x[0]))) return std::nullopt;
    return static_cast<int64_t>(x[0]);
  }
  std::string Refusal(absl::Span<const double> x) const override {
    return absl::StrCat(x[0], " is not a whole number in [0, ", tokens_,
                        "); correct the data or set num_tokens to the largest one plus 1");
  }

 private:
  const int64_t tokens_;
};

class Hashed : public CategoryIndex {
 public:
  explicit Hashed(const v1::Hashing& layer)
      : bins_(static_cast<uint64_t>(layer.num_bins())), salt_(layer.salt().begin(), layer.salt().end()) {
    int64_t mask = 0;
    if (layer.has_mask_value() && bins_ > 1 && absl::SimpleAtoi(layer.mask_value(), &mask)) mask_ = mask;
  }
  std::optional<int64_t> Of(absl::Span<const double> x) const override {
    const std::optional<int64_t> number = Cut(x[0]);
    if (!number.has_value()) return std::nullopt;
    if (!mask_.has_value()) return Bin(*number, bins_);
    return static_cast<double>(*mask_) == x[0] ? 0 : 1 + Bin(*number, bins_ - 1);  // bin 0 is for the mask
  }
  std::string Refusal(absl::Span<const double> x) const override { return NoNumber(x[0]); }

 private:
  int64_t Bin(int64_t number, uint64_t bins) const {
    const std::string text = absl::StrCat(number);
    const uint64_t hash = salt_.empty() ? Fingerprint64(text) : SipHash({salt_.front(), salt_.back()}, text);
    return static_cast<int64_t>(hash % bins);
  }

  const uint64_t bins_;
  const std::vector<uint64_t> salt_;
  std::optional<int64_t> mask_;
};

class Crossed : public CategoryIndex {
 public:
  explicit Crossed(const v1::HashedCrossing& layer) : bins_(static_cast<uint64_t>(layer.num_bins())) {}
  std::optional<int64_t> Of(absl::Span<const double> x) const override {
    uint64_t hash = kCrossingKey;
    for (const double one : x) {
      const std::optional<int64_t> number = Whole(one);
      if (!number.has_value()) return std::nullopt;
      hash = JoinFingerprints(hash, static_cast<uint64_t>(*number));
    }
    return static_cast<int64_t>(hash % bins_);
  }
  std::string Refusal(absl::Span<const double> x) const override {
    const double bad = *std::find_if(x.begin(), x.end(), [](double one) { return !Whole(one).has_value(); });
    return Cut(bad).has_value() ? NotWhole(bad) : NoNumber(bad);
  }

 private:
  const uint64_t bins_;
};

class LookedUp : public CategoryIndex {
 public:
  explicit LookedUp(Vocabulary<int64_t> vocabulary) : vocabulary_(std::move(vocabulary)) {}
  std::optional<int64_t> Of(absl::Span<const double> x) const override {
    const std::optional<int64_t> token = Whole(x[0]);
    if (!token.has_value()) return std::nullopt;
    return vocabulary_.Find(*token);
  }
  std::string Refusal(absl::Span<const double> x) const override {
    if (!(x[0] == std::floor(x[0]))) return NotWhole(x[0]);
    return absl::StrCat(x[0],
                        " is not in the vocabulary, and num_oov_indices is 0; add it, or set num_oov_indices to 1");
  }

 private:
  const Vocabulary<int64_t> vocabulary_;
};

Vocabulary<int64_t> VocabularyIn(const v1::Layer& layer) {
  return Vocabulary<int64_t>::Make(VocabularyOf(layer.integer_lookup())).value();  // checked when the graph was built
}

// nullptr: it is a lookup's.
std::unique_ptr<const CategoryIndex> IndexOf(const v1::Layer& layer) {
  switch (layer.kind_case()) {
    case v1::Layer::kDiscretization: return std::make_unique<Bucket>(layer.discretization());
    case v1::Layer::kCategoryEncoding: return std::make_unique<Given>(layer.category_encoding().num_tokens());
    case v1::Layer::kHashing: return std::make_unique<Hashed>(layer.hashing());
    case v1::Layer::kHashedCrossing: return std::make_unique<Crossed>(layer.hashed_crossing());
    default: return nullptr;
  }
}

}  // namespace

CategoryCode CategoryCodeOf(const v1::Layer& layer) {
  switch (layer.kind_case()) {
    case v1::Layer::kDiscretization:
      return {layer.discretization().output_mode(), layer.discretization().bin_boundaries_size() + int64_t{1}, {}};
    case v1::Layer::kCategoryEncoding:
      return {layer.category_encoding().output_mode(), layer.category_encoding().num_tokens(), {}};
    case v1::Layer::kHashing: return {layer.hashing().output_mode(), layer.hashing().num_bins(), {}};
    case v1::Layer::kHashedCrossing:
      return {layer.hashed_crossing().output_mode(), layer.hashed_crossing().num_bins(), {}};
    case v1::Layer::kStringLookup:
    case v1::Layer::kTextVectorization: return TextVocabularyOf(layer).code();
    default: return VocabularyIn(layer).code();
  }
}

CategoryFunction::CategoryFunction(const Graph& graph, const Node& node)
    : node_(node),
      index_(IndexOf(node.layer)),
      numbers_(NumElements(graph.nodes()[static_cast<size_t>(node.inputs[0])].output)) {
  if (index_ != nullptr) {
    code_ = CategoryCodeOf(node.layer);
    return;
  }
  Vocabulary<int64_t> vocabulary = VocabularyIn(node.layer);  // of many tokens: it is made once
  code_ = vocabulary.code();
  index_ = std::make_unique<LookedUp>(std::move(vocabulary));
}

template <typename T>
absl::Status CategoryFunction::Forward(int64_t examples, absl::Span<const T* const> x, T* y) const {
  std::vector<int64_t> indices(static_cast<size_t>(numbers_));
  std::vector<double> numbers(x.size());
  const int64_t outputs = NumElements(node_.output);
  for (int64_t example = 0; example < examples; ++example) {
    for (int64_t i = 0; i < numbers_; ++i) {
      for (size_t k = 0; k < x.size(); ++k) numbers[k] = static_cast<double>(x[k][example * numbers_ + i]);
      const std::optional<int64_t> index = index_->Of(numbers);
      if (!index.has_value()) return Refusal(example, numbers);
      indices[static_cast<size_t>(i)] = *index;
    }
    code_.Write(absl::MakeConstSpan(indices), y + example * outputs);
  }
  return absl::OkStatus();
}

absl::Status CategoryFunction::Refusal(int64_t example, absl::Span<const double> numbers) const {
  return absl::InvalidArgumentError(
      absl::StrCat("layer \"", node_.name, "\": example ", example, " of the batch: ", index_->Refusal(numbers)));
}

template absl::Status CategoryFunction::Forward(int64_t, absl::Span<const float* const>, float*) const;
template absl::Status CategoryFunction::Forward(int64_t, absl::Span<const double* const>, double*) const;

}  // namespace cairn
