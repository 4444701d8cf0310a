// Small models with recurrent layers and with masks of steps, as LayerCases (layer_cases.h). They are not part of these
// because ONNX has neither masks nor all activations of a recurrent layer.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/backend/layer_case.h"

namespace cairn {

// A recurrent layer behind a convolution along a sequence, before a dense layer with softmax.
inline std::string Recurring(const std::string& layers, const std::string& shape = "[5, 2]") {
  return "layers { input { shape: " + shape + " } } layers { name: 'first' conv1d { filters: 4 kernel_size: 1 } } " +
         layers + " layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
}

// Biases are not zero, so that they matter.
inline std::string Cell(const std::string& kind, const std::string& fields = "") {
  return "layers { " + kind + " { units: 3 bias_initializer { kind: RANDOM_NORMAL stddev: 0.5 } " + fields + " } }";
}

inline std::vector<LayerCase> RecurrentCases() {
  const std::string states =
      "layers { name: 'flat' inputs: 'first' flatten {} } layers { name: 'h' dense { units: 3 } } "
      "layers { name: 'c' inputs: 'flat' dense { units: 3 } } ";
  const auto both = [](const std::string& layer, const std::string& fields = "") {
    return Recurring("layers { bidirectional { layer { " + layer + " } " + fields + " } }");
  };
  const std::string sequences = "lstm { units: 3 return_sequences: true }";
  return {
      {"SimpleRnn", Recurring(Cell("simple_rnn"))},
      {"SimpleRnnSequences", Recurring(Cell("simple_rnn", "return_sequences: true activation: RELU"))},
      {"SimpleRnnBackwards", Recurring(Cell("simple_rnn", "go_backwards: true use_bias: false activation: SILU"))},
      {"SimpleRnnDropout", Recurring(Cell("simple_rnn", "dropout: 0.3 recurrent_dropout: 0.4"))},
      {"Lstm", Recurring(Cell("lstm"))},
      {"LstmSequences", Recurring(Cell("lstm", "return_sequences: true unit_forget_bias: false"))},
      {"LstmBackwards", Recurring(Cell("lstm", "return_sequences: true go_backwards: true use_bias: false"))},
      {"LstmActivations", Recurring(Cell("lstm", "activation: GELU recurrent_activation: SOFTPLUS"))},
      {"LstmRelu", Recurring(Cell("lstm", "activation: RELU recurrent_activation: LEAKY_RELU"))},
      {"LstmDropout", Recurring(Cell("lstm", "dropout: 0.3"))},
      {"LstmRecurrentDropout", Recurring(Cell("lstm", "recurrent_dropout: 0.4 return_sequences: true"))},
      {"LstmState", Recurring(states + "layers { inputs: ['first', 'h', 'c'] lstm { units: 3 } }")},
      {"LstmReturnCell", Recurring(Cell("lstm", "return_sequences: true return_cell: true"))},
      {"LstmReturnCellLast", Recurring(Cell("lstm", "return_cell: true go_backwards: true"))},
      {"LstmEncoderDecoder",
       Recurring(
           "layers { name: 'e' lstm { units: 3 return_cell: true } } layers { name: 'h' inputs: 'e' slice { axes "
           "{ begin: 3 end: 6 } } } layers { name: 'c' inputs: 'e' slice { axes { begin: 6 } } } layers { inputs: "
           "['first', 'h', 'c'] lstm { units: 3 return_sequences: true } }")},
      {"BidirectionalReturnCell", both("lstm { units: 3 return_sequences: true return_cell: true }")},
      {"LstmStacked", Recurring(Cell("lstm", "return_sequences: true") + " " + Cell("lstm"))},
      {"Gru", Recurring(Cell("gru"))},
      {"GruSequences", Recurring(Cell("gru", "return_sequences: true go_backwards: true"))},
      {"GruNoBias", Recurring(Cell("gru", "use_bias: false activation: ELU recurrent_activation: SILU"))},
      {"GruBefore", Recurring(Cell("gru", "reset_after: false"))},
      {"GruBeforeSequences",
       Recurring(Cell("gru", "reset_after: false return_sequences: true use_bias: false recurrent_activation: GELU"))},
      {"GruDropout", Recurring(Cell("gru", "dropout: 0.3 recurrent_dropout: 0.4"))},
      {"GruBeforeDropout", Recurring(Cell("gru", "reset_after: false dropout: 0.3 recurrent_dropout: 0.4"))},
      {"GruState", Recurring(states + "layers { inputs: ['c', 'h'] add {} name: 's' } "
                                      "layers { inputs: ['first', 's'] gru { units: 3 return_sequences: true } }")},
      {"Bidirectional", both(sequences)},
      {"BidirectionalLast", both("gru { units: 3 }")},
      {"BidirectionalSum", both(sequences, "merge_mode: SUM")},
      {"BidirectionalMul", both(sequences, "merge_mode: MUL")},
      {"BidirectionalAve", both("simple_rnn { units: 3 }", "merge_mode: AVE")},
      {"BidirectionalOther",
       both("lstm { units: 3 return_sequences: true dropout: 0.2 recurrent_dropout: 0.2 }",
            "backward_layer { gru { units: 2 return_sequences: true go_backwards: true dropout: 0.3 } }")},
      {"TimeDistributedDense",
       Recurring("layers { time_distributed { layer { dense { units: 3 activation: TANH } } } }")},
      {"TimeDistributedGelu",
       Recurring("layers { time_distributed { layer { dense { units: 3 activation: GELU } } } }")},
      {"TimeDistributedNormalization", Recurring("layers { time_distributed { layer { layer_normalization {} } } }")},
      {"TimeDistributedDropout", Recurring("layers { time_distributed { layer { dropout { rate: 0.4 } } } }")},
      {"TimeDistributedActivation",
       Recurring("layers { time_distributed { layer { activation { activation: ELU } } } }")},
      {"SimpleRnnSelu", Recurring(Cell("simple_rnn", "activation: SELU"))},
      {"LstmHardSigmoid", Recurring(Cell("lstm", "recurrent_activation: HARD_SIGMOID"))},
      {"LstmHardSigmoidKeras2", Recurring(Cell("lstm", "recurrent_activation: HARD_SIGMOID_KERAS2"))},
      {"TimeDistributedGlu", Recurring("layers { time_distributed { layer { activation { activation: GLU } } } }")},
      {"LstmFurther", Recurring(Cell("lstm", "activation: SOFTSIGN recurrent_activation: SPARSE_SIGMOID"))},
      {"GruHardSigmoid", Recurring(Cell("gru", "reset_after: false recurrent_activation: HARD_SIGMOID"))},
      {"GruFurther", Recurring(Cell("gru", "activation: MISH recurrent_activation: HARD_SILU"))},
      {"BidirectionalFurther", both("gru { units: 3 activation: TANH_SHRINK recurrent_activation: LOG_SIGMOID }")},
      {"BidirectionalState",
       Recurring(states +
                 "layers { inputs: ['first', 'h', 'c'] bidirectional { layer { simple_rnn { units: 3 } } } }")},
  };
}

// Ids of which about every ninth is 0, the padding.
inline std::string Padded(const std::string& layers) {
  return "layers { input { shape: 6 } } layers { name: 'ids' embedding { input_dim: 3 output_dim: 4 mask_zero: true } "
         "} " +
         layers + " layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
}

// Layers for which TimeDistributed folds the steps into the batch. shape: [steps, ...].
inline std::vector<LayerCase> DistributedCases() {
  const auto on = [](const std::string& shape, const std::string& layer) {
    return "layers { input { shape: " + shape + " } } layers { name: 'first' dense { units: 4 } } " +
           "layers { time_distributed { layer { " + layer +
           " } } } layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
  };
  const auto volumes = [](const std::string& layer) {
    return "layers { input { shape: [2, 3, 2, 4, 1] } } layers { name: 'first' time_distributed { layer { dense { "
           "units: 2 } } } } layers { time_distributed { layer { " +
           layer + " } } } layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
  };
  const std::string pictures = "[3, 4, 5, 2]", rows = "[3, 5, 2]";
  return {
      {"DistributedConv2D", on(pictures, "conv2d { filters: 3 kernel_size: 3 activation: GELU }")},
      {"DistributedConv2DSame", on(pictures, "conv2d { filters: 20 kernel_size: 3 strides: 2 padding: SAME }")},
      {"DistributedConv1D", on(rows, "conv1d { filters: 3 kernel_size: 2 activation: RELU }")},
      {"DistributedMaxPooling", on(pictures, "max_pooling2d { pool_size: 2 }")},
      {"DistributedAveragePooling", on(pictures, "average_pooling2d { pool_size: 2 }")},
      {"DistributedGlobalPooling", on(pictures, "global_average_pooling2d {}")},
      {"DistributedFlatten", on(pictures, "flatten {}")},
      {"DistributedReshape", on(rows, "reshape { target_shape: 20 }")},
      {"DistributedPadding", on(pictures, "zero_padding2d { padding: [1, 1] }")},
      {"DistributedLstm", on(rows, "lstm { units: 3 }")},
      {"DistributedRepeat", on("[3, 2]", "repeat_vector { n: 2 }")},
      {"DistributedTwice", on(pictures, "time_distributed { layer { conv1d { filters: 3 kernel_size: 2 } } }")},
      {"DistributedAdaptiveAverage", on(pictures, "adaptive_average_pooling2d { output_size: [3, 2] }")},
      {"DistributedAdaptiveMax", on(pictures, "adaptive_max_pooling2d { output_size: [3, 2] }")},
      {"DistributedResizing", on(pictures, "resizing { height: 3 width: 7 }")},
      // Steps of four axes; of fewer, that get four.
      {"DistributedVolumesConv3D", volumes("conv3d { filters: 3 kernel_size: 2 activation: GELU }")},
      {"DistributedVolumesTranspose", volumes("conv3d_transpose { filters: 2 kernel_size: 2 }")},
      {"DistributedVolumesMaxPooling", volumes("max_pooling3d { pool_size: 2 }")},
      {"DistributedVolumesAveragePooling", volumes("average_pooling3d { pool_size: 2 }")},
      {"DistributedVolumesGlobalPooling", volumes("global_average_pooling3d {}")},
      {"DistributedVolumesPadding", volumes("zero_padding3d { padding: 1 }")},
      {"DistributedVolumesUpSampling", volumes("up_sampling3d { size: [1, 2, 1] }")},
      {"DistributedVolumesActivation", volumes("activation { activation: SOFTPLUS }")},
      {"DistributedVolumesNormalization", volumes("layer_normalization {}")},
      {"DistributedVolumesFlatten", volumes("flatten {}")},
      {"DistributedVolumesTwice", volumes("time_distributed { layer { conv2d { filters: 2 kernel_size: 2 } } }")},
      {"DistributedVolumesConvLstm", volumes("conv_lstm2d { filters: 2 kernel_size: 2 }")},
      {"DistributedVolumesReshape", on(pictures, "reshape { target_shape: [2, 2, 5, 4] }")},
  };
}

// The same for layers that numpy, step by step, computes differently: their statistics are over all steps.
inline std::vector<LayerCase> DistributedBatchCases() {
  const auto on = [](const std::string& before, const std::string& fields) {
    return "layers { input { shape: [3, 4, 2] } } " + before + " layers { time_distributed { layer { " +
           "batch_normalization { " + fields + " } } } } " +
           "layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
  };
  const std::string first = "layers { name: 'first' dense { units: 3 } }";
  return {
      {"DistributedBatchNormalization", on(first, "")},
      {"DistributedBatchNormalizationPlain", on("", "center: false scale: false")},
  };
}

inline std::vector<LayerCase> MaskCases() {
  // With one filter behind a relu, about half of the steps are 0.
  const std::string gaps =
      "layers { input { shape: [6, 2] } } layers { conv1d { filters: 1 kernel_size: 1 activation: RELU } } layers { "
      "masking {} } ";
  const std::string ids =
      "layers { input { shape: 6 } } layers { name: 'ids' embedding { input_dim: 3 output_dim: 4 mask_zero: true } } ";
  const std::string some =
      "layers { input { shape: [6, 2] } } layers { conv1d { filters: 2 kernel_size: 1 activation: RELU } } layers { "
      "masking {} } ";
  const std::string end = " layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
  return {
      {"MaskedSimpleRnn", Padded(Cell("simple_rnn", "return_sequences: true"))},
      {"MaskedLstm", Padded(Cell("lstm"))},
      {"MaskedLstmSequences", Padded(Cell("lstm", "return_sequences: true"))},
      {"MaskedLstmReturnCell", Padded(Cell("lstm", "return_sequences: true return_cell: true"))},
      {"MaskedBidirectionalReturnCell",
       Padded("layers { bidirectional { layer { lstm { units: 2 return_sequences: true return_cell: true } } } }")},
      {"MaskedLstmBackwards", Padded(Cell("lstm", "return_sequences: true go_backwards: true"))},
      {"MaskedGru", Padded(Cell("gru", "return_sequences: true"))},
      {"MaskedGruBefore", Padded(Cell("gru", "return_sequences: true reset_after: false dropout: 0.2"))},
      {"MaskedState", Padded("layers { name: 'flat' flatten {} } layers { name: 'h' dense { units: 3 } } "
                             "layers { inputs: ['ids', 'h'] gru { units: 3 return_sequences: true } }")},
      {"MaskedStack", Padded(Cell("lstm", "return_sequences: true") +
                             " layers { dropout { rate: 0.2 } } layers { dense "
                             "{ units: 3 activation: TANH } } " +
                             Cell("gru"))},
      {"MaskedBidirectional",
       Padded("layers { bidirectional { layer { lstm { units: 3 return_sequences: true } } } }")},
      {"MaskedBidirectionalLast", Padded("layers { bidirectional { merge_mode: SUM layer { lstm { units: 3 } } } }")},
      {"MaskedPooling", Padded("layers { layer_normalization {} } layers { global_average_pooling1d {} }")},
      {"MaskedAttention", Padded("layers { name: 'x' dense { units: 4 } } layers { inputs: ['x', 'x'] "
                                 "multi_head_attention { num_heads: 2 key_dim: 3 } }")},
      {"MaskedAttentionCausal",
       Padded("layers { name: 'x' dense { units: 4 } } layers { inputs: ['x', 'x'] multi_head_attention { num_heads: 2 "
              "key_dim: 3 use_causal_mask: true } } layers { inputs: ['x', 'multi_head_attention'] add {} } layers { "
              "global_average_pooling1d {} }")},
      {"Masking", gaps + end},
      {"MaskingLstm", gaps + Cell("lstm", "return_sequences: true") + end},
      {"MaskingPooling",
       gaps + "layers { global_average_pooling1d {} } layers { dense { units: 3 activation: SOFTMAX } }"},
      // Of outputs with masked steps.
      {"MaskedLoss", ids + Cell("lstm", "return_sequences: true") +
                         " layers { name: 'last' dense { units: 4 activation: SOFTMAX } }"},
      {"MaskedLossTagger",
       ids + "layers { bidirectional { layer { lstm { units: 3 return_sequences: true } } } } layers { name: 'last' "
             "time_distributed { layer { dense { units: 4 activation: SOFTMAX } } } }"},
      {"MaskedLossLogits", ids + Cell("gru", "return_sequences: true") + " layers { name: 'last' dense { units: 4 } }",
       "kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true"},
      {"MaskedLossNumbers",
       some + Cell("lstm", "return_sequences: true") + " layers { name: 'last' dense { units: 2 } }",
       "kind: MEAN_SQUARED_ERROR"},
  };
}

}  // namespace cairn
