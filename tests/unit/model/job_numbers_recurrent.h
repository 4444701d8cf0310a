// Recurrent layers in job_numbers_test.cc: a job with each of them, and the numbers that they accept.
#pragma once

#include <set>
#include <string>

namespace cairn {

inline constexpr char kRecurrentJob[] = R"(
  model {
    layers { input { shape: [6, 4] } } layers { masking { mask_value: 0.5 } }
    layers { simple_rnn { units: 4 dropout: 0.1 recurrent_dropout: 0.1 return_sequences: true
                          recurrent_initializer { kind: ORTHOGONAL gain: 2 } } }
    layers { lstm { units: 4 dropout: 0.1 recurrent_dropout: 0.1 return_sequences: true
                    recurrent_initializer { kind: IDENTITY gain: 2 } recurrent_regularizer { l1: 0.1 l2: 0.1 } } }
    layers { bidirectional { layer { gru { units: 4 return_sequences: true } }
                             backward_layer { lstm { units: 5 return_sequences: true go_backwards: true } } } }
    layers { time_distributed { layer { dense { units: 4 } } } }
    layers { gru { units: 4 dropout: 0.1 recurrent_dropout: 0.1 } }
    layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  metrics { kind: PRECISION threshold: 0.5 class_id: 1 } metrics { kind: FBETA_SCORE average: MACRO beta: 2 }
  metrics { kind: PRECISION_AT_RECALL value: 0.5 num_thresholds: 20 } metrics { kind: IOU target_class_ids: 1 }
  metrics { kind: CATEGORICAL_CROSSENTROPY label_smoothing: 0.1 }
  optimizer { sgd {} }
  batch_size: 8 )";

inline constexpr char kFilmJob[] = R"(
  model {
    layers { input { shape: [2, 4, 4, 4, 2] } }
    layers { conv_lstm3d { filters: 3 kernel_size: [2, 2, 2] strides: [1, 1, 2] return_sequences: true dropout: 0.1
                           recurrent_dropout: 0.1 recurrent_initializer { kind: ORTHOGONAL gain: 2 } } }
    layers { reshape { target_shape: [2, 9, 2, 3] } }
    layers { conv_lstm2d { filters: 3 kernel_size: 2 dilation_rate: [1, 1] return_sequences: true
                           recurrent_regularizer { l1: 0.1 l2: 0.1 } } }
    layers { reshape { target_shape: [2, 8, 3] } }
    layers { conv_lstm1d { filters: 3 kernel_size: 2 strides: 2 dropout: 0.1 recurrent_dropout: 0.1 } }
    layers { flatten {} } layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { sgd {} }
  batch_size: 8 )";

// 0 is a number like any other, or the default.
inline const std::set<std::string> kRecurrentZeros = {"ConvLSTM.dropout",
                                                      "ConvLSTM.recurrent_dropout",
                                                      "Masking.mask_value",
                                                      "SimpleRNN.dropout",
                                                      "SimpleRNN.recurrent_dropout",
                                                      "LSTM.dropout",
                                                      "LSTM.recurrent_dropout",
                                                      "GRU.dropout",
                                                      "GRU.recurrent_dropout",
                                                      "Metric.label_smoothing",
                                                      "Metric.threshold",
                                                      "Metric.class_id",
                                                      "Metric.value",
                                                      "Metric.target_class_ids",
                                                      "Initializer.gain"};

// -1 too.
inline const std::set<std::string> kRecurrentNegatives = {"Masking.mask_value", "Metric.threshold", "Initializer.gain"};

}  // namespace cairn
