// Layers of categories in job_numbers_test.cc: a job with each of them, and the numbers that they accept.
#pragma once

#include <set>
#include <string>

namespace cairn {

inline constexpr char kCategoryJob[] = R"(
  model {
    layers { name: "in" input { shape: 4 } }
    layers { discretization { bin_boundaries: [0.5, 1] num_bins: 3 epsilon: 0.1 } }
    layers { integer_lookup { vocabulary: [5, 1] mask_token: 7 oov_token: -2 num_oov_indices: 2 max_tokens: 9 } }
    layers { name: "h" hashing { num_bins: 5 salt: [3, 4] } }
    layers { name: "t" integer_lookup { vocabulary: [5, 1] idf_weights: [0.5, 1] output_mode: TF_IDF } }
    layers { name: "e" category_encoding { num_tokens: 5 } inputs: "h" }
    layers { name: "u" reduce { kind: MAX axis: 1 } inputs: "h" }
    layers { name: "c" hashed_crossing { num_bins: 6 } inputs: ["u", "u"] }
    layers { concatenate {} inputs: ["e", "t", "c"] }
    layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { sgd {} }
  batch_size: 8 )";

inline constexpr char kTextJob[] = R"(
  model {
    layers { name: "t" input { text: true shape: 1 } }
    layers { name: "w" inputs: "t" text_vectorization { vocabulary: ["a", "b"] max_tokens: 9 ngrams: [1, 2]
                                                        output_sequence_length: 4 } }
    layers { name: "f" inputs: "t" text_vectorization { vocabulary: ["a", "b"] output_mode: TF_IDF
                                                        idf_weights: [0.5, 1] } }
    layers { name: "s" inputs: "t" string_lookup { vocabulary: ["a", "b"] output_mode: TF_IDF idf_weights: [0.5, 1]
                                                   num_oov_indices: 2 max_tokens: 9 } }
    layers { concatenate {} inputs: ["w", "f", "s"] }
    layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" format: TEXT_FOLDER max_length: 100 }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { sgd {} }
  batch_size: 8 )";

// A number like any other, or the default.
inline const std::set<std::string> kCategoryZeros = {"Data.max_length",
                                                     "StringLookup.num_oov_indices",
                                                     "StringLookup.idf_weights",
                                                     "TextVectorization.idf_weights",
                                                     "Discretization.bin_boundaries",
                                                     "Discretization.epsilon",
                                                     "Hashing.salt",
                                                     "IntegerLookup.vocabulary",
                                                     "IntegerLookup.mask_token",
                                                     "IntegerLookup.oov_token",
                                                     "IntegerLookup.num_oov_indices",
                                                     "IntegerLookup.idf_weights"};
inline const std::set<std::string> kCategoryNegatives = {"Discretization.bin_boundaries", "IntegerLookup.vocabulary",
                                                         "IntegerLookup.mask_token",      "IntegerLookup.oov_token",
                                                         "IntegerLookup.idf_weights",     "StringLookup.idf_weights",
                                                         "TextVectorization.idf_weights"};

}  // namespace cairn
