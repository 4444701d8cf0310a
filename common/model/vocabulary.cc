#include "common/model/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "common/base/bad.h"
#include "common/base/fingerprint.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

std::string Shown(int64_t token) { return absl::StrCat(token); }
std::string Shown(const std::string& token) {
  return absl::StrCat("\"", absl::CEscape(token.substr(0, kKerasShownBytesMax)), "\"");
}

// Selects one of the indices for out-of-vocabulary tokens, as Keras' IndexLookup does.
int64_t PlaceOfUnknown(int64_t token, int64_t count) { return (token % count + count) % count; }
int64_t PlaceOfUnknown(const std::string& token, int64_t count) {
  return static_cast<int64_t>(Fingerprint64(token) % static_cast<uint64_t>(count));
}

// The entries that Keras puts before the tokens: the mask token, and the out-of-vocabulary token once for each of its
// indices.
template <typename Token>
bool BeginsWithSpecial(const VocabularyOptions<Token>& o, size_t masks) {
  const size_t count = masks + static_cast<size_t>(o.num_oov_indices);
  if (count == 0 || o.tokens.size() < count || (o.num_oov_indices > 0 && !o.oov_token.has_value())) return false;
  for (size_t i = 0; i < count; ++i) {
    if (o.tokens[i] != (i < masks ? *o.mask_token : *o.oov_token)) return false;
  }
  return true;
}

template <typename Token>
absl::Status CheckNumbers(const VocabularyOptions<Token>& o, int64_t size) {
  if (o.max_tokens.has_value() && size > *o.max_tokens) {
    return Bad("vocabulary has ", size, " tokens with those in front, more than max_tokens ", *o.max_tokens,
               "; raise max_tokens or leave tokens out");
  }
  if (o.pad_to_max_tokens && !o.max_tokens.has_value()) {
    return Bad("pad_to_max_tokens: max_tokens is missing; give it or leave pad_to_max_tokens out");
  }
  if (o.pad_to_max_tokens && o.mode == v1::INT) {
    return Bad("pad_to_max_tokens is for output_mode ONE_HOT, MULTI_HOT, COUNT and TF_IDF; leave it out");
  }
  if (o.mode != v1::TF_IDF && !o.idf_weights.empty()) {
    return Bad("idf_weights are for output_mode TF_IDF; set it or leave them out");
  }
  if (o.mode == v1::TF_IDF && o.idf_weights.size() != o.tokens.size()) {
    return Bad("idf_weights has ", o.idf_weights.size(), " numbers, vocabulary ", o.tokens.size(),
               " tokens; give one for each");
  }
  for (const float weight : o.idf_weights) {
    if (!std::isfinite(weight)) return Bad("idf_weights ", weight, " is not finite; use numbers");
  }
  return absl::OkStatus();
}

}  // namespace

template <typename Token>
absl::StatusOr<Vocabulary<Token>> Vocabulary<Token>::Make(const VocabularyOptions<Token>& o) {
  if (o.num_oov_indices < 0 || o.num_oov_indices > kEmbeddingIdsMax) {
    return Bad("num_oov_indices ", o.num_oov_indices, " is not in [0, ", kEmbeddingIdsMax, "]; use 1, say");
  }
  if (o.max_tokens.has_value() && (*o.max_tokens <= 0 || *o.max_tokens > kEmbeddingIdsMax)) {
    return Bad("max_tokens ", *o.max_tokens, " is not in [1, ", kEmbeddingIdsMax, "]; leave it out, or use 1000, say");
  }
  if (o.tokens.empty())
    return Bad("vocabulary is empty; give its tokens, or let `cairn data adapt` find them in the data");
  Vocabulary v;
  v.mask_token_ = o.mask_token;
  v.oov_indices_ = o.num_oov_indices;
  v.code_.mode = o.mode;
  const size_t masks = o.mask_token.has_value() && o.mode == v1::INT ? 1 : 0;
  v.oov_begin_ = static_cast<int64_t>(masks);
  const bool special = BeginsWithSpecial(o, masks);
  const int64_t begin = v.oov_begin_ + v.oov_indices_;
  v.tokens_.assign(o.tokens.begin() + (special ? begin : 0), o.tokens.end());
  const int64_t size = begin + static_cast<int64_t>(v.tokens_.size());
  if (size > kEmbeddingIdsMax)
    return Bad("vocabulary has ", size, " tokens; at most ", kEmbeddingIdsMax, " are allowed");
  CAIRN_RETURN_IF_ERROR(CheckNumbers(o, size));
  v.code_.depth = o.pad_to_max_tokens ? *o.max_tokens : size;
  for (size_t i = 0; i < v.tokens_.size(); ++i) {
    const Token& token = v.tokens_[i];
    if (token == o.mask_token || (token == o.oov_token && o.oov_token.has_value())) {
      return Bad("vocabulary holds ", Shown(token), token == o.mask_token ? ", the mask_token" : ", the oov_token",
                 ", among its tokens; leave it out there");
    }
    if (!v.indices_.emplace(token, begin + static_cast<int64_t>(i)).second) {
      return Bad("vocabulary holds ", Shown(token), " twice; give each token once");
    }
  }
  if (o.mode != v1::TF_IDF) return v;
  const double sum = std::accumulate(o.idf_weights.begin(), o.idf_weights.end(), 0.0);
  const float mean = static_cast<float>(sum / static_cast<double>(o.idf_weights.size()));
  v.code_.weights.assign(special ? 0 : static_cast<size_t>(begin), mean);  // for out-of-vocabulary tokens
  v.code_.weights.insert(v.code_.weights.end(), o.idf_weights.begin(), o.idf_weights.end());
  v.code_.weights.resize(static_cast<size_t>(v.code_.depth), 0.0f);
  return v;
}

template <typename Token>
std::optional<int64_t> Vocabulary<Token>::Find(const Token& token) const {
  if (mask_token_.has_value() && token == *mask_token_) return code_.mode == v1::INT ? 0 : kNoCategory;
  if (const auto found = indices_.find(token); found != indices_.end()) return found->second;
  if (oov_indices_ == 0) return std::nullopt;
  return oov_begin_ + (oov_indices_ == 1 ? 0 : PlaceOfUnknown(token, oov_indices_));
}

template class Vocabulary<int64_t>;
template class Vocabulary<std::string>;

namespace {

// What the layers have in common.
template <typename Token, typename Layer>
VocabularyOptions<Token> CommonOptions(const Layer& layer) {
  VocabularyOptions<Token> o;
  o.tokens.assign(layer.vocabulary().begin(), layer.vocabulary().end());
  o.idf_weights.assign(layer.idf_weights().begin(), layer.idf_weights().end());
  if (layer.has_max_tokens()) o.max_tokens = layer.max_tokens();
  o.pad_to_max_tokens = layer.pad_to_max_tokens();
  o.mode = layer.output_mode() == v1::ENCODING_MODE_UNSPECIFIED ? v1::INT : layer.output_mode();
  return o;
}

template <typename Token, typename Layer>
VocabularyOptions<Token> LookupOptions(const Layer& layer, const Token& oov_token) {
  VocabularyOptions<Token> o = CommonOptions<Token>(layer);
  o.num_oov_indices = layer.has_num_oov_indices() ? layer.num_oov_indices() : 1;
  if (layer.has_mask_token()) o.mask_token = layer.mask_token();
  o.oov_token = layer.has_oov_token() ? Token(layer.oov_token()) : oov_token;
  return o;
}

}  // namespace

VocabularyOptions<int64_t> VocabularyOf(const v1::IntegerLookup& layer) { return LookupOptions<int64_t>(layer, -1); }

VocabularyOptions<std::string> VocabularyOf(const v1::StringLookup& layer) {
  return LookupOptions<std::string>(layer, kUnknownToken);
}

VocabularyOptions<std::string> VocabularyOf(const v1::TextVectorization& layer) {
  VocabularyOptions<std::string> o = CommonOptions<std::string>(layer);
  o.mask_token = "";
  o.oov_token = kUnknownToken;
  return o;
}

}  // namespace cairn
