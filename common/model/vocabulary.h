// Vocabulary: the tokens of a lookup layer of Keras and their indices: 0 for the mask token (INT only), then
// num_oov_indices for tokens that are not there, then the tokens.
//
// Immutable after Make; any thread. Token: int64_t or std::string.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cairn/v1/category_layers.pb.h"
#include "common/base/status.h"
#include "common/model/category_code.h"

namespace cairn {

template <typename Token>
struct VocabularyOptions {
  std::vector<Token> tokens;  // may begin with the mask token and the others that Keras puts in front
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
  // Errors (INVALID_ARGUMENT): no token, one twice, too many; weights that do not fit. They begin with the field.
  static absl::StatusOr<Vocabulary> Make(const VocabularyOptions<Token>& options);

  const CategoryCode& code() const { return code_; }
  int64_t num_oov_indices() const { return oov_indices_; }
  int64_t oov_begin() const { return oov_begin_; }  // the first index of tokens that are not there
  // Without those in front, in the order of their indices, the first of which is oov_begin() + num_oov_indices().
  const std::vector<Token>& tokens() const { return tokens_; }
  const std::optional<Token>& mask_token() const { return mask_token_; }

  // kNoCategory: the mask token of a mode other than INT. nullopt: not there, and no index for such.
  std::optional<int64_t> Find(const Token& token) const;

 private:
  CategoryCode code_;
  int64_t oov_begin_ = 0, oov_indices_ = 1;
  std::vector<Token> tokens_;
  std::optional<Token> mask_token_;
  absl::flat_hash_map<Token, int64_t> indices_;
};

// Of a layer with Keras' defaults where a field is not given.
VocabularyOptions<int64_t> VocabularyOf(const v1::IntegerLookup& layer);

}  // namespace cairn
