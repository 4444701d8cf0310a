// A job whose model a program computes.
#pragma once

namespace cairn {

inline constexpr char kExternalJob[] = R"(
  model {
    layers { name: "examples" input { shape: 8 } }
    layers { name: "external" external {
      program: "lenet" version: "1" figures: "accuracy" output_shape: 3 config: "{}"
      variables { name: "conv.weight" shape: [4, 2] initializer { kind: CONSTANT value: 0.5 }
                  regularizer { l1: 0.1 l2: 0.1 } }
      variables { name: "bn.running_mean" shape: 2 kind: MOVING_AVERAGE momentum: 0.5 }
    } }
  }
  data { external { examples: 64 validation_examples: 8 test_examples: 8 } }
  batch_size: 8 replicas: 4 optimizer { sgd {} })";

}  // namespace cairn
