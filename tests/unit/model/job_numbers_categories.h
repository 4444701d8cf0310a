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

// A number like any other, or the default.
inline const std::set<std::string> kCategoryZeros = {
    "Discretization.bin_boundaries", "Discretization.epsilon",   "Hashing.salt",
    "IntegerLookup.vocabulary",      "IntegerLookup.mask_token", "IntegerLookup.oov_token",
    "IntegerLookup.num_oov_indices", "IntegerLookup.idf_weights"};
inline const std::set<std::string> kCategoryNegatives = {"Discretization.bin_boundaries", "IntegerLookup.vocabulary",
                                                         "IntegerLookup.mask_token", "IntegerLookup.oov_token",
                                                         "IntegerLookup.idf_weights"};

}  // namespace cairn
