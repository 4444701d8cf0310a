#include "common/model/text_function.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/fingerprint.h"
#include "common/base/text.h"
#include "common/model/category_function.h"
#include "common/model/limits.h"
#include "common/model/text_tokens.h"

namespace cairn {
namespace {

absl::StatusOr<int64_t> IndexOf(const Vocabulary<std::string>& vocabulary, const std::string& token) {
  const std::optional<int64_t> index = vocabulary.Find(token);
  if (index.has_value()) return *index;
  return Bad("\"", absl::Utf8SafeCEscape(std::string(CutUtf8(token, kKerasShownBytesMax))),
             "\" is not in the vocabulary, and num_oov_indices is 0; add it, or set num_oov_indices to 1");
}

class LookedUpTexts : public TextIndices {
 public:
  explicit LookedUpTexts(Vocabulary<std::string> vocabulary) : vocabulary_(std::move(vocabulary)) {}
  absl::Status Of(absl::Span<const TextOrNumber> values, std::vector<int64_t>* indices) const override {
    for (const TextOrNumber& value : values) {
      CAIRN_ASSIGN_OR_RETURN(const int64_t index, IndexOf(vocabulary_, std::string(value.text)));
      indices->push_back(index);
    }
    return absl::OkStatus();
  }

 private:
  const Vocabulary<std::string> vocabulary_;
};

class TokenIndices : public TextIndices {
 public:
  TokenIndices(const v1::TextVectorization& layer, Vocabulary<std::string> vocabulary)
      : layer_(layer), vocabulary_(std::move(vocabulary)) {
    layer_.clear_vocabulary();
  }
  absl::Status Of(absl::Span<const TextOrNumber> values, std::vector<int64_t>* indices) const override {
    std::vector<absl::string_view> texts;
    for (const TextOrNumber& value : values) texts.push_back(value.text);
    for (const std::string& token : TokensOf(layer_, texts)) {
      CAIRN_ASSIGN_OR_RETURN(const int64_t index, IndexOf(vocabulary_, token));
      indices->push_back(index);
    }
    return absl::OkStatus();
  }

 private:
  v1::TextVectorization layer_;
  const Vocabulary<std::string> vocabulary_;
};

class HashedTexts : public TextIndices {
 public:
  explicit HashedTexts(const v1::Hashing& layer)
      : bins_(static_cast<uint64_t>(layer.num_bins())), salt_(layer.salt().begin(), layer.salt().end()) {
    if (layer.has_mask_value() && bins_ > 1) mask_ = layer.mask_value();
  }
  absl::Status Of(absl::Span<const TextOrNumber> values, std::vector<int64_t>* indices) const override {
    for (const TextOrNumber& value : values) {
      const uint64_t hash =
          salt_.empty() ? Fingerprint64(value.text) : SipHash({salt_.front(), salt_.back()}, value.text);
      if (!mask_.has_value()) {
        indices->push_back(static_cast<int64_t>(hash % bins_));
      } else {
        // Bin 0 is for the mask.
        indices->push_back(value.text == *mask_ ? 0 : 1 + static_cast<int64_t>(hash % (bins_ - 1)));
      }
    }
    return absl::OkStatus();
  }

 private:
  const uint64_t bins_;
  const std::vector<uint64_t> salt_;
  std::optional<std::string> mask_;
};

// tf.sparse.cross_hashed: a text's feature is its fingerprint, a whole number's the number.
class CrossedTexts : public TextIndices {
 public:
  explicit CrossedTexts(const v1::HashedCrossing& layer) : bins_(static_cast<uint64_t>(layer.num_bins())) {}
  absl::Status Of(absl::Span<const TextOrNumber> values, std::vector<int64_t>* indices) const override {
    uint64_t hash = kCrossingKey;
    for (const TextOrNumber& value : values) {
      if (!value.is_text && !(std::abs(value.number) < 0x1p63 && value.number == std::floor(value.number))) {
        return Bad(value.number, " is not a whole number within 64 bits; correct the data");
      }
      const uint64_t feature =
          value.is_text ? Fingerprint64(value.text) : static_cast<uint64_t>(static_cast<int64_t>(value.number));
      hash = JoinFingerprints(hash, feature);
    }
    indices->push_back(static_cast<int64_t>(hash % bins_));
    return absl::OkStatus();
  }

 private:
  const uint64_t bins_;
};

}  // namespace

Vocabulary<std::string> TextVocabularyOf(const v1::Layer& layer) {
  return Vocabulary<std::string>::Make(layer.has_string_lookup() ? VocabularyOf(layer.string_lookup())
                                                                 : VocabularyOf(layer.text_vectorization()))
      .value();  // checked when the graph was built
}

TextFunction::TextFunction(const Node& node) : name_(node.name) {
  const v1::Layer& layer = node.layer;
  if (layer.has_hashing()) {
    indices_ = std::make_unique<HashedTexts>(layer.hashing());
    code_ = CategoryCodeOf(layer);
    return;
  }
  if (layer.has_hashed_crossing()) {
    indices_ = std::make_unique<CrossedTexts>(layer.hashed_crossing());
    code_ = CategoryCodeOf(layer);
    return;
  }
  Vocabulary<std::string> vocabulary = TextVocabularyOf(layer);
  code_ = vocabulary.code();
  if (layer.has_string_lookup()) {
    indices_ = std::make_unique<LookedUpTexts>(std::move(vocabulary));
    return;
  }
  indices_ = std::make_unique<TokenIndices>(layer.text_vectorization(), std::move(vocabulary));
  if (code_.mode == v1::INT) length_ = NumElements(node.output);
}

absl::Status TextFunction::Write(absl::Span<const TextOrNumber> values, float* y) const {
  std::vector<int64_t> indices;
  if (absl::Status status = indices_->Of(values, &indices); !status.ok()) {
    return Annotate(status, absl::StrCat("layer \"", name_, "\""));
  }
  if (length_ >= 0) indices.resize(static_cast<size_t>(length_), 0);
  code_.Write(absl::MakeConstSpan(indices), y);
  return absl::OkStatus();
}

}  // namespace cairn
