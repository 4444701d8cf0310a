// How Keras' TextVectorization makes tokens of a text: it standardizes, splits and joins. The text is UTF-8; letters
// and punctuation are those of ASCII, as in Keras, whose tf.strings.lower leaves other letters as they are.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cairn/v1/category_layers.pb.h"

namespace cairn {

// Letters A-Z become lower case; the 32 characters of ASCII's punctuation are dropped.
std::string StandardizeText(absl::string_view text, v1::TextVectorization::Standardize how);

// WHITESPACE: what blanks, tabs and line ends separate, none of it empty. CHARACTER: each character of UTF-8.
// NO_SPLIT: the text.
std::vector<std::string> SplitText(absl::string_view text, v1::TextVectorization::SplitBy how);

// For each size in turn: each run of as many tokens, joined by a blank. No sizes: the tokens themselves.
std::vector<std::string> JoinTokens(std::vector<std::string> tokens, absl::Span<const int32_t> sizes);

// The tokens of the texts of one example; several only if the layer does not split them.
std::vector<std::string> TokensOf(const v1::TextVectorization& layer, absl::Span<const absl::string_view> texts);

}  // namespace cairn
