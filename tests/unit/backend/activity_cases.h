// Cases of LayerCases (layer_cases.h): penalties of layers' outputs, which are part of the loss.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/backend/feature_cases.h"
#include "tests/unit/backend/layer_case.h"

namespace cairn {

inline std::vector<LayerCase> ActivityCases() {
  const std::string features = "layers { input { shape: 5 } } ";
  const std::string l2 = "activity_regularizer { l2: 0.3 } ", both = "activity_regularizer { l1: 0.2 l2: 0.1 } ";
  return {
      {"ActivityRegularization", Between("layers { activity_regularization { l1: 0.2 l2: 0.1 } }")},
      {"ActivityRegularizationOfNothing", Between("layers { activity_regularization {} }")},
      {"ActivityRegularizationFlattened",
       Between("layers { flatten {} } layers { activity_regularization { l2: 0.2 } }")},
      {"ActivityOfConv2D", Between("layers { conv2d { filters: 3 kernel_size: 2 activation: TANH " + both + "} }")},
      {"ActivityBeforeRelu",
       Between("layers { conv2d { filters: 3 kernel_size: 2 " + l2 + "} } layers { activation { activation: RELU } }")},
      {"ActivityReadTwice", Between("layers { name: 'a' conv2d { filters: 3 kernel_size: 1 activation: TANH " + both +
                                    "} } layers { inputs: ['a', 'first', 'a'] add {} }")},
      {"ActivityOfLast", features +
                             "layers { dense { units: 6 activation: TANH } } layers { dense { units: 3 "
                             "activation: SOFTMAX " +
                             l2 + "} }"},
      {"ActivityOfDense", features + "layers { dense { units: 6 activation: SIGMOID " + both +
                              "} } layers { dense { units: 3 activation: SOFTMAX } }"},
      {"ActivityOfShared", features + "layers { name: 'a' dense { units: 4 } } layers { name: 'd' dense { units: 4 " +
                               l2 +
                               "} } layers { name: 'e' shares: 'd' inputs: 'd' } layers { inputs: ['d', 'e'] add {} } "
                               "layers { dense { units: 3 activation: SOFTMAX } }"},
      {"ActivityOfLstm", Along("layers { lstm { units: 3 return_sequences: true " + both + "} }")},
      {"ActivityOfAttentionsKey",
       Along("layers { name: 'k' conv1d { filters: 4 kernel_size: 1 " + l2 +
             "} } layers { inputs: ['first', 'first', 'key=k'] multi_head_attention { num_heads: 2 key_dim: 3 } }")},
  };
}

}  // namespace cairn
