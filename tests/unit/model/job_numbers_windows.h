// Layers with windows over steps and volumes in job_numbers_test.cc: a job with each of them.
#pragma once

namespace cairn {

inline constexpr char kVolumes[] = R"(
  model {
    layers { input { shape: [16, 16, 16, 1] } }
    layers { conv3d { filters: 4 kernel_size: 3 strides: 1 dilation_rate: 1 groups: 1 padding: SAME } }
    layers { max_pooling3d { pool_size: 2 strides: 2 } } layers { average_pooling3d { pool_size: 2 strides: 1 } }
    layers { spatial_dropout3d { rate: 0.1 seed: 1 } }
    layers { zero_padding3d { padding: 1 } } layers { cropping3d { cropping: 1 } } layers { up_sampling3d { size: 1 } }
    layers { conv3d_transpose { filters: 4 kernel_size: 2 strides: 2 dilation_rate: 1 output_padding: 1 } }
    layers { adaptive_max_pooling3d { output_size: 4 } } layers { reshape { target_shape: [8, 8, 4] } }
    layers { resizing { height: 9 width: 9 pad_to_aspect_ratio: true fill_value: 1 } }
    layers { center_crop { height: 8 width: 8 } }
    layers { reshape { target_shape: [-1, 4] } } layers { zero_padding1d { padding: 1 } }
    layers { cropping1d { cropping: 1 } } layers { up_sampling1d { size: 1 } }
    layers { depthwise_conv1d { kernel_size: 3 strides: 1 dilation_rate: 1 depth_multiplier: 1 } }
    layers { separable_conv1d { filters: 4 kernel_size: 3 strides: 1 dilation_rate: 1 depth_multiplier: 1 } }
    layers { conv1d_transpose { filters: 4 kernel_size: 2 strides: 2 dilation_rate: 1 output_padding: 1 } }
    layers { global_max_pooling1d {} } layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" format: TFRECORD tfrecord { shape: [16, 16, 16, 1] } }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  batch_size: 8 optimizer { sgd {} } )";

}  // namespace cairn
