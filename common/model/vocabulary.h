// Vocabulary: the tokens of a Keras lookup layer and their indices: 0 for the mask token (INT only), then
// num_oov_indices for out-of-vocabulary tokens, then the tokens.
//
// Immutable after Make; any thread. Token: int64_t or std::string.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cairn/v1/category_layers.pb.h"
#include "common/base/status.h"
#include "common/model/category_code.h"

namespace cairn {

template <typename Token>
struct VocabularyOptions {
  std::vector<Token> tokens;  // may begin with the mask and out-of-vocabulary tokens that Keras puts first
  std::vector<float> idf_weights;
  int64_t num_oov_indices = 1;
  std::optional<Token> mask_token;
  std::optional<Token> oov_token;
  std::optional<int64_t> max_tokens;
  bool pad_to_max_tokens = false;
  v1::EncodingMode mode = v1::INT;
};

template <typename Token>
class Vocabulary {
 public:
  // Errors (INVALID_ARGUMENT) begin with the field: no token, a duplicate, too many tokens, or weights whose number
  // does not match.
  static absl::StatusOr<Vocabulary> Make(const VocabularyOptions<Token>& options);

  const CategoryCode& code() const { return code_; }
  int64_t num_oov_indices() const { return oov_indices_; }
  int64_t oov_begin() const { return oov_begin_; }  // the first index of out-of-vocabulary tokens
  // The tokens without those that Keras puts first, in the order of their indices, which begin at oov_begin() +
  // num_oov_indices().
  const std::vector<Token>& tokens() const { return tokens_; }
  const std::optional<Token>& mask_token() const { return mask_token_; }

  // kNoCategory: the mask token in a mode other than INT. nullopt: the token is not in the vocabulary and there is no
  // index for such tokens.
  std::optional<int64_t> Find(const Token& token) const;

 private:
  CategoryCode code_;
  int64_t oov_begin_ = 0, oov_indices_ = 1;
  std::vector<Token> tokens_;
  std::optional<Token> mask_token_;
  absl::flat_hash_map<Token, int64_t> indices_;
};

// The options of a layer, with Keras' defaults for unset fields.
VocabularyOptions<int64_t> VocabularyOf(const v1::IntegerLookup& layer);
VocabularyOptions<std::string> VocabularyOf(const v1::StringLookup& layer);
VocabularyOptions<std::string> VocabularyOf(const v1::TextVectorization& layer);

// Keras' default oov_token of texts.
inline constexpr char kUnknownToken[] = "[UNK]";

}  // namespace cairn
