// Small models with ConvLSTM1D, ConvLSTM2D and ConvLSTM3D, as RecurrentCases (recurrent_cases.h): not part of
// LayerCases, because ONNX has no such layer.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/backend/layer_case.h"

namespace cairn {

// axes: of the window. Biases are not zero, so that they matter.
inline std::string ConvCell(int axes, const std::string& fields = "kernel_size: 2") {
  return absl::StrCat("conv_lstm", axes, "d { filters: 2 bias_initializer { kind: RANDOM_NORMAL stddev: 0.5 } ", fields,
                      " }");
}

// Behind a layer whose gradient needs that of the input, before a dense layer with softmax.
inline std::string Filmed(const std::string& layers, const std::string& shape = "[3, 4, 5, 2]") {
  return "layers { input { shape: " + shape + " } } layers { name: 'first' dense { units: 2 } } " + layers +
         " layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
}

inline std::vector<LayerCase> ConvLstmCases() {
  const std::string rows = "[3, 5, 2]", volumes = "[2, 3, 4, 3, 1]";
  const auto one = [](const std::string& cell) { return "layers { " + cell + " }"; };
  const auto on = [&](int axes, const std::string& shape, const std::string& fields) {
    return Filmed(one(ConvCell(axes, fields)), shape);
  };
  const auto films = [&](const std::string& fields) { return on(2, "[3, 4, 5, 2]", fields); };
  const auto both = [](const std::string& layer, const std::string& fields = "") {
    return Filmed("layers { bidirectional { layer { " + layer + " } " + fields + " } }", "[3, 3, 4, 2]");
  };
  // A model of volumes in steps, with few numbers: a layer that keeps them comes behind the ConvLSTM3D.
  const auto in_steps = [&](const std::string& layers) {
    return "layers { name: 'x' input { shape: " + volumes + " } } layers { name: 'first' " +
           ConvCell(3, "kernel_size: 2 return_sequences: true") + " } " + layers +
           " layers { flatten {} } layers { name: 'last' dense { units: 3 activation: SOFTMAX } }";
  };
  // The first states, [4, 5, 2], are made of the first two steps.
  const std::string states =
      "layers { name: 'h' inputs: 'first' slice { axes { begin: 0 drop: true } } } "
      "layers { name: 'c' inputs: 'first' slice { axes { begin: 1 drop: true } } } ";
  return {
      {"ConvLstm1D", on(1, rows, "kernel_size: 3")},
      {"ConvLstm1DSame", on(1, rows, "kernel_size: 2 padding: SAME return_sequences: true")},
      {"ConvLstm1DStrides", on(1, rows, "kernel_size: 2 strides: 2 go_backwards: true return_sequences: true")},
      {"ConvLstm1DDilated", on(1, rows, "kernel_size: 2 dilation_rate: 3 use_bias: false")},
      {"ConvLstm1DDilatedSame", on(1, rows, "kernel_size: 3 dilation_rate: 2 padding: SAME")},
      {"ConvLstm1DDropout", on(1, rows, "kernel_size: 2 dropout: 0.3 recurrent_dropout: 0.4 return_sequences: true")},
      {"ConvLstm2D", films("kernel_size: 3")},
      {"ConvLstm2DSame", films("kernel_size: 3 padding: SAME return_sequences: true")},
      {"ConvLstm2DOblong", films("kernel_size: [1, 4] padding: SAME go_backwards: true")},
      {"ConvLstm2DStrides", films("kernel_size: [3, 2] strides: [2, 1] return_sequences: true")},
      {"ConvLstm2DStridesSame", films("kernel_size: 3 strides: 2 padding: SAME return_sequences: true")},
      {"ConvLstm2DDilated", films("kernel_size: 2 dilation_rate: [2, 3] unit_forget_bias: false")},
      {"ConvLstm2DDilatedSame", films("kernel_size: 2 dilation_rate: 2 padding: SAME go_backwards: true")},
      {"ConvLstm2DActivations", films("kernel_size: 2 activation: GELU recurrent_activation: HARD_SIGMOID")},
      {"ConvLstm2DRelu", films("kernel_size: 2 activation: RELU recurrent_activation: SOFTPLUS")},
      {"ConvLstm2DDropout", films("kernel_size: 2 dropout: 0.3 return_sequences: true")},
      {"ConvLstm2DRecurrentDropout", films("kernel_size: 2 recurrent_dropout: 0.4 return_sequences: true")},
      {"ConvLstm2DReturnCell", films("kernel_size: 3 return_sequences: true return_cell: true")},
      {"ConvLstm2DReturnCellLast", films("kernel_size: 3 return_cell: true go_backwards: true")},
      {"ConvLstm2DState",
       Filmed(states + "layers { inputs: ['first', 'h', 'c'] " + ConvCell(2, "kernel_size: 3 padding: SAME") + " }")},
      {"ConvLstm2DEncoderDecoder",
       Filmed("layers { name: 'e' " + ConvCell(2, "kernel_size: 2 return_cell: true") +
              " } layers { name: 'h' inputs: 'e' slice { axes {} axes {} axes { begin: 2 end: 4 } } } "
              "layers { name: 'c' inputs: 'e' slice { axes {} axes {} axes { begin: 4 } } } "
              "layers { inputs: ['first', 'h', 'c'] " +
              ConvCell(2, "kernel_size: 2 return_sequences: true") + " }")},
      {"ConvLstm2DStacked", Filmed(one(ConvCell(2, "kernel_size: 2 return_sequences: true")) +
                                   " layers { batch_normalization {} } " + one(ConvCell(2)))},
      {"ConvLstm2DActivity", films("kernel_size: 3 return_sequences: true activity_regularizer { l1: 0.01 l2: 0.02 }")},
      {"ConvLstm3D", in_steps(one(ConvCell(3)))},
      {"ConvLstm3DLast", "layers { name: 'x' input { shape: " + volumes + " } } layers { " +
                             ConvCell(3, "kernel_size: [2, 3, 1] strides: [1, 2, 1] padding: SAME") +
                             " } layers { conv3d { filters: 2 kernel_size: 2 } } layers { flatten {} } layers { name: "
                             "'last' dense { units: 3 activation: SOFTMAX } }"},
      {"ConvLstm3DDilated", in_steps(one(ConvCell(3,
                                                  "kernel_size: [1, 2, 2] dilation_rate: [1, 2, 1] dropout: 0.2 "
                                                  "recurrent_dropout: 0.2 go_backwards: true")))},
      {"ConvLstm3DReturnCell",
       "layers { name: 'x' input { shape: " + volumes + " } } layers { name: 'first' " +
           ConvCell(3, "kernel_size: 2 return_sequences: true return_cell: true") +
           " } layers { name: 'h' slice { axes { begin: -1 drop: true } axes {} axes {} axes {} axes { begin: 2 end: 4 "
           "} } } layers { name: 'c' inputs: 'first' slice { axes { begin: -1 drop: true } axes {} axes {} axes {} "
           "axes { begin: 4 end: 6 } } } layers { name: 'y' inputs: 'first' slice { axes {} axes {} axes {} axes {} "
           "axes { end: 2 } } } layers { inputs: ['y', 'h', 'c'] " +
           ConvCell(3, "kernel_size: 2 padding: SAME") +
           " } layers { flatten {} } layers { name: 'last' dense { units: 3 activation: SOFTMAX } }"},
      // The other layers that take volumes in steps.
      {"VolumesNormalized", in_steps("layers { batch_normalization {} }")},
      {"VolumesActivated", in_steps("layers { activation { activation: SOFTPLUS } } layers { activation { "
                                    "activation: SOFTMAX } }")},
      {"VolumesFurther", in_steps("layers { activation { activation: MISH } }")},
      {"VolumesRescaled", in_steps("layers { rescaling { scale: 0.5 offset: 0.25 } }")},
      {"VolumesDropped", in_steps("layers { dropout { rate: 0.4 } }")},
      {"VolumesDroppedTogether", in_steps("layers { dropout { rate: 0.4 noise_shape: [2, 1, 3, 1, 2] } }")},
      {"VolumesAdded", in_steps("layers { name: 'a' activation { activation: RELU } } layers { inputs: ['first', 'a'] "
                                "add {} }")},
      {"VolumesConcatenated", in_steps("layers { name: 'a' activation { activation: RELU } } layers { inputs: "
                                       "['first', 'a'] concatenate {} }")},
      {"VolumesReshaped", in_steps("layers { reshape { target_shape: [2, 24] } } layers { lstm { units: 2 } }")},
      {"VolumesFlattened", "layers { input { shape: " + volumes +
                               " } } layers { flatten {} } layers { name: 'last' "
                               "dense { units: 3 activation: SOFTMAX } }"},
      {"VolumesPenalized", in_steps("layers { activity_regularization { l1: 0.01 l2: 0.02 } }")},
      {"BidirectionalConvLstm", both(ConvCell(2, "kernel_size: 2 return_sequences: true"))},
      {"BidirectionalConvLstmSum", both(ConvCell(2, "kernel_size: 2 return_sequences: true"), "merge_mode: SUM")},
      {"BidirectionalConvLstmMulLast", both(ConvCell(2), "merge_mode: MUL")},
      {"BidirectionalConvLstmAve", both(ConvCell(2, "kernel_size: 3 padding: SAME"), "merge_mode: AVE")},
      {"BidirectionalConvLstmOther",
       both("conv_lstm2d { filters: 2 kernel_size: 3 padding: SAME return_sequences: true dropout: 0.2 "
            "recurrent_dropout: 0.2 }",
            "backward_layer { conv_lstm2d { filters: 1 kernel_size: 2 padding: SAME return_sequences: true "
            "go_backwards: true dropout: 0.3 recurrent_dropout: 0.1 } }")},
      {"BidirectionalConvLstmReturnCell", both(ConvCell(2, "kernel_size: 2 return_sequences: true return_cell: true"))},
      {"BidirectionalConvLstm1D",
       Filmed("layers { bidirectional { layer { " + ConvCell(1, "kernel_size: 2 strides: 2") + " } } }", rows)},
      {"DistributedConvLstm", Filmed("layers { time_distributed { layer { " + ConvCell(1) + " } } }", "[2, 2, 4, 2]")},
  };
}

// Steps that do not count: a masked sequence of vectors that are made images, or rows.
inline std::vector<LayerCase> ConvLstmMaskCases() {
  const std::string last = " layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
  const auto made = [](const std::string& shape) {
    return "layers { input { shape: 5 } } layers { name: 'ids' embedding { input_dim: 3 output_dim: 6 mask_zero: true "
           "} } layers { name: 'x' time_distributed { layer { reshape { target_shape: " +
           shape + " } } } } ";
  };
  const auto masked = [&](const std::string& shape, const std::string& layers) {
    return made(shape) + layers + " layers { flatten {} }" + last;
  };
  const auto images = [&](const std::string& fields) {
    return masked("[3, 2, 1]", "layers { " + ConvCell(2, fields) + " }");
  };
  return {
      {"MaskedConvLstm", images("kernel_size: 2")},
      {"MaskedLossOfFilm",  // of each position of the steps that count
       made("[3, 2, 1]") + "layers { " + ConvCell(2, "kernel_size: 2 return_sequences: true") + " }" + last},
      {"MaskedConvLstmSequences", images("kernel_size: 2 return_sequences: true")},
      {"MaskedConvLstmBackwards", images("kernel_size: 2 return_sequences: true go_backwards: true")},
      {"MaskedConvLstmReturnCell", images("kernel_size: 2 return_sequences: true return_cell: true")},
      {"MaskedConvLstm1D", masked("[3, 2]", "layers { " + ConvCell(1, "kernel_size: 2 dropout: 0.2") + " }")},
      {"MaskedConvLstmState",
       masked("[3, 2, 1]",
              "layers { name: 'h' slice { axes { begin: 0 drop: true } } } layers { name: 'hh' concatenate {} inputs: "
              "['h', 'h'] } layers { inputs: ['x', 'hh', 'hh'] " +
                  ConvCell(2, "kernel_size: 2 padding: SAME return_sequences: true") + " }")},
      {"MaskedConvLstmStack",
       masked("[3, 2, 1]", "layers { " + ConvCell(2, "kernel_size: 2 return_sequences: true") +
                               " } layers { time_distributed { layer { flatten {} } } } layers { lstm { units: 2 } }")},
      {"MaskedBidirectionalConvLstm",
       masked("[3, 2, 1]",
              "layers { bidirectional { layer { " + ConvCell(2, "kernel_size: 2 return_sequences: true") + " } } }")},
      {"MaskedBidirectionalConvLstmLast",
       masked("[3, 2, 1]", "layers { bidirectional { merge_mode: SUM layer { " + ConvCell(2) + " } } }")},
  };
}

// Enough numbers under the windows for several threads; few filters, since the reference takes its time.
inline std::vector<LayerCase> WideConvLstmCases() {
  return {{"WideConvLstm",
           "layers { input { shape: [2, 5, 6, 4] } } layers { name: 'first' dense { units: 16 } } "
           "layers { conv_lstm2d { filters: 4 kernel_size: 3 padding: SAME } } layers { flatten {} } "
           "layers { name: 'last' dense { units: 4 activation: SOFTMAX } }"}};
}

}  // namespace cairn
