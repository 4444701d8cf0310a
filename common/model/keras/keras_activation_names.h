// The names of Keras' activations. If an activation has several names, the first one is written.
#pragma once

#include "cairn/v1/model.pb.h"

namespace cairn {

// Keras writes the same activation as text, or as an object that names a class or a function.
struct NamedActivation {
  const char* name;
  v1::Activation activation;
};
inline constexpr NamedActivation kActivations[] = {
    {"linear", v1::LINEAR},
    {"relu", v1::RELU},
    {"leaky_relu", v1::LEAKY_RELU},
    {"sigmoid", v1::SIGMOID},
    {"tanh", v1::TANH},
    {"elu", v1::ELU},
    {"softmax", v1::SOFTMAX},
    {"gelu", v1::GELU},
    {"softplus", v1::SOFTPLUS},
    {"silu", v1::SILU},
    {"swish", v1::SILU},
    {"relu6", v1::RELU6},
    {"selu", v1::SELU},
    {"hard_sigmoid", v1::HARD_SIGMOID},
    {"hard_silu", v1::HARD_SILU},
    {"hard_swish", v1::HARD_SILU},
    {"exponential", v1::EXPONENTIAL},
    {"softsign", v1::SOFTSIGN},
    {"mish", v1::MISH},
    {"log_softmax", v1::LOG_SOFTMAX},
    {"log_sigmoid", v1::LOG_SIGMOID},
    {"celu", v1::CELU},
    {"hard_tanh", v1::HARD_TANH},
    {"tanh_shrink", v1::TANH_SHRINK},
    {"soft_shrink", v1::SOFT_SHRINK},
    {"hard_shrink", v1::HARD_SHRINK},
    {"squareplus", v1::SQUAREPLUS},
    {"sparse_plus", v1::SPARSE_PLUS},
    {"sparse_sigmoid", v1::SPARSE_SIGMOID},
    {"sparsemax", v1::SPARSEMAX},
    {"glu", v1::GLU},
};

}  // namespace cairn
