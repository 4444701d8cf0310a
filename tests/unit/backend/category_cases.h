// Cases of LayerCases (layer_cases.h), and further ones: layers of categories, in the middle of a model and one behind
// another. Their numbers come from a Discretization, so that any input is valid.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/backend/layer_case.h"

namespace cairn {

inline std::string Categories(const std::string& layers, const std::string& shape = "6") {
  return "layers { input { shape: " + shape +
         " } } layers { name: 'bins' discretization { bin_boundaries: "
         "[-0.7, -0.4, -0.1, 0, 0.3, 0.6] } } " +
         layers + " layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
}

inline std::vector<LayerCase> CategoryCases() {
  std::vector<LayerCase> cases = {
      {"Discretization", Categories("")},
      {"DiscretizationOfRows", Categories("layers { embedding { input_dim: 7 output_dim: 3 } }", "[2, 3]")},
      {"DiscretizationOfOne", Categories("layers { category_encoding { num_tokens: 7 output_mode: ONE_HOT } }", "1")},
      {"CategoryEncodingOfRows",
       Categories("layers { category_encoding { num_tokens: 7 output_mode: ONE_HOT } }", "[2, 3]")},
      {"IntegerLookupDefaults", Categories("layers { integer_lookup { vocabulary: [4, 1, 2] } }")},
      {"IntegerLookupMasked", Categories("layers { integer_lookup { vocabulary: [4, 1, 2] mask_token: 0 } } "
                                         "layers { embedding { input_dim: 5 output_dim: 3 } }")},
      {"IntegerLookupSpecial", Categories("layers { integer_lookup { vocabulary: [6, -1, -1, 4, 1, 2] mask_token: 6 "
                                          "num_oov_indices: 2 } } layers { category_encoding { num_tokens: 6 } }")},
      {"IntegerLookupPadded", Categories("layers { integer_lookup { vocabulary: [4, 1] output_mode: MULTI_HOT "
                                         "mask_token: 5 max_tokens: 9 pad_to_max_tokens: true } }")},
      {"IntegerLookupTfIdf", Categories("layers { integer_lookup { vocabulary: [4, 1] idf_weights: [0.5, 2.25] "
                                        "output_mode: TF_IDF num_oov_indices: 3 } }")},
      {"IntegerLookupTfIdfSpecial",
       Categories("layers { integer_lookup { vocabulary: [-1, 4, 1] idf_weights: [0.75, 0.5, 2.25] output_mode: TF_IDF "
                  "max_tokens: 8 pad_to_max_tokens: true } }")},
      {"CategoriesInTheMiddle",
       "layers { input { shape: 5 } } layers { name: 'first' dense { units: 6 } } layers { name: 'bins' discretization "
       "{ bin_boundaries: [-0.5, 0, 0.5] output_mode: COUNT } } layers { inputs: ['first', 'bins'] concatenate {} } "
       "layers { name: 'last' dense { units: 4 activation: SOFTMAX } }"},
  };
  for (const std::string mode : {"ONE_HOT", "MULTI_HOT", "COUNT"}) {
    const std::string field = " output_mode: " + mode + " } }";
    cases.push_back({"Discretization_" + mode,
                     "layers { input { shape: 5 } } layers { discretization { bin_boundaries: "
                     "[-0.5, 0.25]" +
                         field +
                         " layers { flatten {} } layers { dense { units: "
                         "4 activation: SOFTMAX } }"});
    cases.push_back({"CategoryEncoding_" + mode, Categories("layers { category_encoding { num_tokens: 9" + field)});
    cases.push_back(
        {"IntegerLookup_" + mode, Categories("layers { integer_lookup { vocabulary: [5, 0, 3] mask_token: 1" + field)});
  }
  return cases;
}

// Not part of LayerCases: ONNX cannot express them.
inline std::vector<LayerCase> HashingCases() {
  const std::string crossed =
      "layers { name: 'a' input { shape: 1 } } layers { name: 'x' discretization { bin_boundaries: [-0.5, 0, 0.5] } } "
      "layers { name: 'b' input { shape: 1 } } layers { name: 'y' inputs: 'b' discretization { bin_boundaries: [0] } } "
      "layers { inputs: ['x', 'y'] hashed_crossing { num_bins: 5 ";
  const std::string end = " } } layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }";
  return {
      {"Hashing", Categories("layers { hashing { num_bins: 5 } }")},
      {"HashingMasked", Categories("layers { hashing { num_bins: 4 mask_value: '2' output_mode: ONE_HOT } }")},
      {"HashingSalted", Categories("layers { hashing { num_bins: 4 salt: 133 output_mode: MULTI_HOT } }")},
      {"HashingSaltedTwice", Categories("layers { hashing { num_bins: 4 salt: [133, 18446744073709551615] mask_value: "
                                        "'1' output_mode: COUNT } }")},
      {"HashingOfOneBin", Categories("layers { hashing { num_bins: 1 mask_value: '3' } }")},
      {"HashedCrossing", crossed + end},
      {"HashedCrossingOneHot", crossed + "output_mode: ONE_HOT" + end},
  };
}

}  // namespace cairn
